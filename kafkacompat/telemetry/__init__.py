"""Clients' own metrics (KIP-714): which client sends what, what it may send, and its last values. Pure."""
