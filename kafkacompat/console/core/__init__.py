"""The console's pure parts: decoding, folding, rates, lag and view models. The time is a parameter, in milliseconds."""
