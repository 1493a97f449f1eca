"""Compaction: the log keeps the last record of each key. KIP-354, KIP-534, KIP-98 and Kafka's log cleaner."""
