"""Cluster metadata as a replayed machine on the metadata log."""
