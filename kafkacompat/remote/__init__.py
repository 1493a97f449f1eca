"""Tiered storage (KIP-405): segments of partitions' logs in a remote store, and what is known of them."""
