"""What a start after an unclean stop does with one segment: check every batch, index it anew, cut the file at the first bad one.

A full disk keeps nobody from what is on it: the indexes of the active segment then stay in memory, as they do while it is appended
to, and are written with its next flush or its close. Those of a closed one have to be in their files, since no flush writes them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkacompat.log.replay import apply_batch
from kafkacompat.log.soundness import DAMAGE, check_order
from kafkacompat.ports import SyncFailed

if TYPE_CHECKING:
    from kafkacompat.log.epoch_cache import LeaderEpochCache
    from kafkacompat.log.producer_state import ProducerStateManager
    from kafkacompat.log.segment import Segment
    from kafkacompat.records.batch import BatchHeader

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def spared_on_a_full_disk() -> Iterator[None]:
    """Of what a later start does again, or does without."""
    try:
        yield
    except OSError as error:
        if not _is_full(error):
            raise


def _is_full(error: OSError) -> bool:
    return error.errno in NO_ROOM and not isinstance(error, SyncFailed)


def recover_segment(
    segment: Segment,
    state: ProducerStateManager,
    epochs: LeaderEpochCache,
    before_cut: Callable[[], None],
    *,
    is_active: bool,
) -> int:
    """Bring state and epochs up to it as well. Bytes cut.

    `before_cut` takes away what follows: a segment behind one that was cut shows no damage at the next start.
    """
    index = _Indexing(segment, may_wait=is_active)
    segment.begin_reindex()
    segment.aborted.begin()
    valid, after = 0, segment.base_offset
    try:
        for header, batch in segment.checked_batches():
            check_order(segment, header, after)
            after = header.last_offset + 1
            if header.magic == 2:
                if header.leader_epoch >= 0:
                    epochs.confirm(header.leader_epoch, header.base_offset)
                apply_batch(state, header, batch, segment)
            index.add(header)
            valid = header.position + header.size
    except DAMAGE:
        pass
    cut = segment.size - valid
    if cut:
        before_cut()
    segment.cut(valid)
    index.finish()
    return cut


class _Indexing:
    """Page by page into the files, or, where there is no room, in memory from there on."""

    def __init__(self, segment: Segment, *, may_wait: bool) -> None:
        self._segment = segment
        self._may_wait = may_wait
        self._in_memory = False

    def add(self, header: BatchHeader) -> None:
        try:
            self._segment.index_batch(header, in_memory=self._in_memory)
        except OSError as error:
            if not self._may_wait or not _is_full(error):
                raise
            self._in_memory = True
            self._segment.index_batch(header, in_memory=True)

    def finish(self) -> None:
        try:
            self._segment.finish_reindex()
        except OSError as error:
            if not self._may_wait or not _is_full(error):
                raise
