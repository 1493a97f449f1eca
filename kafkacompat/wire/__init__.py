"""Bytes to messages and back, as Kafka 4.3 puts them on the wire; knows no broker."""
