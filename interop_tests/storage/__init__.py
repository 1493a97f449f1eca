"""One data folder under both brokers in turn."""
