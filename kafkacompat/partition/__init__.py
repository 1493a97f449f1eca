"""Partitions this node leads or follows: leadership, high watermark, fetches, parked requests."""
