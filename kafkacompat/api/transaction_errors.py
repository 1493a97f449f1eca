"""Error codes of transactions, as clients of a version know them."""

from __future__ import annotations

from kafkacompat.wire.errors import ErrorCode


def without_fenced(code: int, version: int, known_since: int) -> int:
    """Return PRODUCER_FENCED only to versions that know it, and INVALID_PRODUCER_EPOCH to older ones."""
    if code == ErrorCode.PRODUCER_FENCED and version < known_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
