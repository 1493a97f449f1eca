"""The check that the three ACL requests share: codes without a meaning close the connection."""

from __future__ import annotations

from kafkacompat.wire.errors import WireError

UNKNOWN = 0
"""The code UNKNOWN of each enumeration. No version of Kafka gives it a meaning."""


def refuse_unknown(*codes: int) -> None:
    """Raise WireError if a code is UNKNOWN. Apache Kafka treats such a request as one that it cannot parse."""
    if UNKNOWN in codes:
        raise WireError("an ACL request holds a code of 0")
