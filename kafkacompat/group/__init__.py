"""Groups of all kinds and their offsets: the group coordinator, its pure machine and its service."""
