"""The interop suite on kafkacompat and on Apache Kafka, side by side, into docs/compatibility.md."""
