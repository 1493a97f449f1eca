"""Client quotas: which quota applies to a request, and how long a client over its quota is throttled (KIP-13, 124, 546, 599)."""
