"""Compaction: of each key the log keeps the last record. KIP-354, KIP-534, KIP-98 and Kafka's log cleaner."""
