"""The runtime of coordinators, and the group service that stands on it."""
