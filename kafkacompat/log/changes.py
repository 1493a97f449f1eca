"""Changes that span several files, which a disk error, damage or a lack of memory may interrupt half way.

HalfDone separates such an interruption from an error before the first change.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from kafkacompat.ports import HalfDone, LogRefused
from kafkacompat.records.batch import BatchCorrupt


@contextmanager
def change_of_many(what: str) -> Iterator[None]:
    """Turn an error of the block into HalfDone: the log is neither in its old nor in its new state."""
    try:
        yield
    except (OSError, LogRefused, BatchCorrupt, MemoryError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EIO
        raise HalfDone(number, f"{what} has stopped half way: {error or 'no memory'}") from error
