"""The metrics of a node: counters, what a scrape reads of the node's parts, and the listener that serves them."""
