"""A Kafka Streams application."""
