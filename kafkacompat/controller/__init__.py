"""Cluster metadata as a state machine that is replayed from the metadata log."""
