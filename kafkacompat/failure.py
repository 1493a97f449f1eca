"""The error for a person: what a command, or a request to a cluster, cannot do."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command failed. The text is for a person."""
