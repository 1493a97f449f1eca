"""Streams groups (KIP-1071): topologies of Kafka Streams applications, their tasks, and the members that run them."""
