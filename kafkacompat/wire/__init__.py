"""Converts between bytes and messages, in Kafka 4.4's formats. Knows nothing of brokers."""
