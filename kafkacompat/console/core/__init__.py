"""The console's pure parts: decoding, folding, rates, lag and view models. Time comes in as milliseconds."""
