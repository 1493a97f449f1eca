"""The state of one share-partition, as records carry it and as the coordinator remembers it."""

from __future__ import annotations

from dataclasses import dataclass

from kafkacompat.api.share_services import UNKNOWN_DELIVERY_COMPLETE_COUNT
from kafkacompat.ids import NO_OFFSET
from kafkacompat.share.state.batches import Batches, combine

FIRST_EPOCH = 0
NO_TIMESTAMP = 0
NOT_SEEN = -(1 << 31)
"""Lower than any epoch."""


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """A whole state: the value of a snapshot."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches
    create_timestamp: int = NO_TIMESTAMP
    write_timestamp: int = NO_TIMESTAMP
    """Later than the creation if it was written again because the share-partition is cold."""


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A change since the last snapshot. -1 as leader epoch or start offset leaves it as it is."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches


class ShareState:
    """What is known of one share-partition.

    The highest epochs are kept apart from the state, because a new initialisation resets the leader epoch but must not
    let an older leader in again.
    """

    __slots__ = ("leader_epoch", "offset", "state_epoch", "updates")

    def __init__(self, offset: ShareGroupOffset) -> None:
        self.offset = offset
        self.leader_epoch = NOT_SEEN
        """The highest so far."""
        self.state_epoch = NOT_SEEN
        """The highest so far in a snapshot."""
        self.updates = 0
        """Updates since the last snapshot that was written because there were enough of them. Other snapshots do not
        reset it."""


def initial_offset(snapshot_epoch: int, state_epoch: int, start_offset: int, now_ms: int) -> ShareGroupOffset:
    """The lag can be told from a start offset onwards: then no records of it are complete yet."""
    return ShareGroupOffset(
        snapshot_epoch,
        state_epoch,
        FIRST_EPOCH,
        start_offset,
        UNKNOWN_DELIVERY_COMPLETE_COUNT if start_offset == NO_OFFSET else 0,
        Batches(),
        now_ms,
        now_ms,
    )


def first_of(update: ShareUpdate) -> ShareGroupOffset:
    """The state after an update whose snapshot is no longer in the log."""
    return ShareGroupOffset(
        update.snapshot_epoch,
        FIRST_EPOCH,
        update.leader_epoch,
        update.start_offset,
        update.delivery_complete_count,
        update.batches,
    )


def merged(offset: ShareGroupOffset, update: ShareUpdate) -> ShareGroupOffset:
    """The state after an update."""
    start_offset = offset.start_offset if update.start_offset == NO_OFFSET else update.start_offset
    return changed(offset, update, combine(offset.batches, update.batches.items, start_offset))


def changed(offset: ShareGroupOffset, update: ShareUpdate, batches: Batches) -> ShareGroupOffset:
    """The state after an update whose batches are combined already."""
    return ShareGroupOffset(
        offset.snapshot_epoch,
        offset.state_epoch,
        offset.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
        offset.start_offset if update.start_offset == NO_OFFSET else update.start_offset,
        update.delivery_complete_count,
        batches,
        offset.create_timestamp,
        offset.write_timestamp,
    )
