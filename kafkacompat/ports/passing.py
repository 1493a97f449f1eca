"""Errors that pass by themselves: the same operation may succeed soon, although nobody repairs anything."""

from __future__ import annotations

import errno

from kafkacompat.ports.files import HalfDone, SyncFailed
from kafkacompat.ports.logs import IndexesRebuilt
from kafkacompat.ports.process import WorkersBusy

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Shortages of the process or the machine, not of a disk."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def passes(error: BaseException | None) -> bool:
    """Whether to wait and try again, however often: a lack of descriptors, memory or threads, or indexes that are being
    rebuilt. Other errors of a disk may pass too, but not if they repeat."""
    if isinstance(error, OSError):
        return error.errno in SHORTAGES and not isinstance(error, (SyncFailed, HalfDone))
    return isinstance(error, (IndexesRebuilt, WorkersBusy, MemoryError))


def is_full(error: BaseException | None) -> bool:
    """Whether a disk had no room. A failed sync is something else, also for lack of room."""
    return isinstance(error, OSError) and error.errno in NO_ROOM and not isinstance(error, SyncFailed)
