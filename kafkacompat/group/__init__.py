"""Classic groups and committed offsets: the pure part of the group coordinator."""
