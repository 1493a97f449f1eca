"""kafkacompat and Apache Kafka 4.3 side by side: one run, one machine, the same client and load, in turn."""
