"""The partitions that this node leads or follows: leadership, high watermark, fetches, parked requests."""
