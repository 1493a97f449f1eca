"""The errors of the console's shells. No imports."""

from __future__ import annotations


class ConsoleError(Exception):
    """The console could not do something. The text is for a person."""


class BrokerAway(ConsoleError):
    """The broker did not answer, or not in time."""


class NotRead(ConsoleError):
    """The broker answers but no record came: the broker is slow, or the client library cannot read a record."""


class NotThere(ConsoleError):
    """The requested topic or partition does not exist."""


class Busy(ConsoleError):
    """The maximum number of requests is already being answered."""
