"""The errors of the console's shells. Knows nothing."""

from __future__ import annotations


class ConsoleError(Exception):
    """What the console could not do, said for a person."""


class BrokerAway(ConsoleError):
    """The broker did not answer, or not in time."""


class NotRead(ConsoleError):
    """The broker answers, but no record came: it is slow, or there is one that the client library cannot read."""


class NotThere(ConsoleError):
    """The topic or partition that was asked for does not exist."""


class Busy(ConsoleError):
    """As many requests as are allowed are being answered already."""
