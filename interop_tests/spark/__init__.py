"""Spark's stock Kafka source and sink against the broker."""
