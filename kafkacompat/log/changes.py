"""Changes that span several files, which a disk error may interrupt half way.

HalfDone separates such an interruption from an error before the first change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkacompat.ports import HalfDone


@contextmanager
def change_of_many(what: str) -> Iterator[None]:
    """Turn an OSError of the block into HalfDone: the log is neither in its old nor in its new state."""
    try:
        yield
    except OSError as error:
        raise HalfDone(error.errno, f"{what} has stopped half way: {error}") from error
