"""The error that all commands raise."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command failed. The text is for a person."""
