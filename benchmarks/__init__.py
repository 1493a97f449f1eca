"""Compares kafkacompat with Apache Kafka 4.3 in one run on one machine, with the same client and load, in turn."""
