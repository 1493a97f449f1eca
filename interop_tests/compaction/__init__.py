"""Compacted topics: what clients, tools and Apache Kafka read after a cleaning, and after kills during a cleaning."""
