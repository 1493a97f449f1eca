"""Compacted topics: what clients, tools and Apache Kafka find after cleaning, and after kills in its midst."""
