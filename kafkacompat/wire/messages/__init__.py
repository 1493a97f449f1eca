"""Typed messages, one module a definition; written by `python -m kafkacompat.wire.generate`."""
