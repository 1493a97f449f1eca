"""Error codes of transactions as a client of a version knows them."""

from __future__ import annotations

from kafkacompat.wire.errors import ErrorCode


def without_fenced(code: int, version: int, known_since: int) -> int:
    """PRODUCER_FENCED only where the client knows it; before, INVALID_PRODUCER_EPOCH."""
    if code == ErrorCode.PRODUCER_FENCED and version < known_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
