"""Unmodified clients against real broker processes over TCP. Nothing here imports kafkacompat."""
