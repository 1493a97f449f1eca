"""Hand-made requests: what brokers of this field got wrong, bad input, restarts."""
