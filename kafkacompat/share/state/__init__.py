"""The share coordinator as a pure machine: the state of share-partitions, operations, the records of `__share_group_state`."""
