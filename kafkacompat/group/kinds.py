"""The kinds of groups, as the protocol names them."""

from __future__ import annotations

from enum import Enum

DEAD = "Dead"
"""The state of a group that is being deleted."""


class GroupKind(Enum):
    """The values are the types in the protocol."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
