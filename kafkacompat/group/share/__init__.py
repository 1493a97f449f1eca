"""Share groups (KIP-932): the members of a share group and which partitions they read together."""
