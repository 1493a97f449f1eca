"""Converts between bytes and messages, in Kafka 4.3's formats. Knows nothing of brokers."""
