"""Compares kafkacompat with Apache Kafka 4.4 in one run on one machine, with the same client and load, in turn."""
