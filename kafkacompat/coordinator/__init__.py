"""The runtime of coordinators, and the group and transaction services that use it."""
