"""The one error of the commands. Knows nothing."""

from __future__ import annotations


class CommandFailed(Exception):
    """What a command could not do, said for a person."""
