"""Hostile input: requests that are well-formed and mean harm, sent to a whole node in this process. See docs/testing.md."""
