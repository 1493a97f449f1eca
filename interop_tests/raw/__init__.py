"""Hand-made requests: the traps of the field, bad input, restarts."""
