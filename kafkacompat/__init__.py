"""A Kafka broker in Python: Kafka's wire protocol, Kafka's files, KRaft metadata."""

__version__ = "0.1.0"
