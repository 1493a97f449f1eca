"""What the three ACL requests have in common: codes that say nothing end the connection."""

from __future__ import annotations

from kafkacompat.wire.errors import WireError

UNKNOWN = 0
"""The code of each kind that means no value, not even one of a later Kafka."""


def refuse_unknown(*codes: int) -> None:
    """WireError: Apache Kafka takes such a request for one that it cannot parse."""
    if UNKNOWN in codes:
        raise WireError("an ACL request holds a code of 0")
