"""Apache Kafka's own command-line tools against the broker."""
