"""Runs the interop suite on kafkacompat and on Apache Kafka, and writes both results to docs/reference/compatibility.md."""
