"""The classic rebalance protocol (KIP-62, KIP-345, KIP-394)."""
