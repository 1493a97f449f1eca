"""The segmented log of one partition on disk, its indexes, recovery and retention; the manager of all of them."""
