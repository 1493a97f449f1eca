"""Bugs planted in share groups (KIP-932). The simulation with a share group must find each of them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.deferred import Deferred
from kafkacompat.share import dead_letter_queue, dead_letters, share_partition, transitions
from kafkacompat.share.dead_letter_queue import DeadLetterQueue
from kafkacompat.share.in_flight import ACKNOWLEDGED, ARCHIVED, AVAILABLE, InFlightBatch, Run
from kafkacompat.share.service import ShareError
from kafkacompat.share.share_partition_cache import SharePartitionCache
from kafkacompat.share.state import batches, share_coordinator_shard
from kafkacompat.share.transitions import EndedLocks, StateBatches
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def acknowledgements_are_answered_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    original = SharePartitionCache.write

    def write(self: SharePartitionCache, led: Any, pending: Any) -> Deferred[ShareError]:
        original(self, led, pending)
        return Deferred.of(ShareError())

    patch.setattr(SharePartitionCache, "write", write)


def deposed_leaders_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_coordinator_shard, "_is_fenced", lambda known, asked: False)


def locks_do_not_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_partition, "end_locks", lambda records, now_ms, settings: EndedLocks(records))


def released_records_forget_their_deliveries(patch: pytest.MonkeyPatch) -> None:
    original = StateBatches.add

    def add(self: StateBatches, batch: InFlightBatch, run: Run) -> None:
        if run.state is AVAILABLE:
            run.delivery_count = 0
        original(self, batch, run)

    patch.setattr(StateBatches, "add", add)


def the_start_offset_passes_available_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "is_terminal", lambda self: self.state in (ACKNOWLEDGED, ARCHIVED, AVAILABLE))


def of_two_states_the_weaker_one_counts(patch: pytest.MonkeyPatch) -> None:
    original = batches._part
    patch.setattr(
        batches,
        "_part",
        lambda heap, low, high: original(heap, (*low[:2], *high[2:]), (*high[:2], *low[2:])),
    )


def snapshots_have_only_what_is_new(patch: pytest.MonkeyPatch) -> None:
    original = share_coordinator_shard.combine
    patch.setattr(
        share_coordinator_shard,
        "combine",
        lambda so_far, new, start_offset: original(batches.NO_BATCHES, new, start_offset),
    )


def the_end_of_a_session_releases_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_partition, "release_acquired", lambda records, member_id, transition: None)


def states_are_read_before_they_are_loaded(patch: pytest.MonkeyPatch) -> None:
    """The coordinator answers from what it has loaded so far."""
    original = Shard.write

    def write(self: Shard, operation: Any) -> Any:
        if self.state is ShardState.LOADING and operation.__qualname__.startswith("ShareCoordinator"):
            try:
                return Deferred.of(operation(0).response)
            except OperationRefused as refused:
                failed: Deferred[Any] = Deferred()
                failed.fail(refused)
                return failed
        return original(self, operation)

    patch.setattr(Shard, "write", write)


def records_are_archived_before_their_dead_letters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transitions, "undeliverable", lambda settings: ARCHIVED)


def dead_letters_are_said_to_be_written_at_once(patch: pytest.MonkeyPatch) -> None:
    def enqueue(self: DeadLetterQueue, *letters: Any) -> Deferred[bool]:
        original(self, *letters)
        return Deferred.of(True)

    original = DeadLetterQueue.enqueue
    patch.setattr(DeadLetterQueue, "enqueue", enqueue)


def dead_letters_are_given_up_at_the_first_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dead_letters, "ATTEMPTS", 1)


def dead_letters_go_to_a_topic_that_takes_none(patch: pytest.MonkeyPatch) -> None:
    original = dead_letter_queue.flaw_of_topic
    patch.setattr(
        dead_letter_queue,
        "flaw_of_topic",
        lambda policy, exists, takes_letters: original(policy, exists, True),
    )


def a_range_of_dead_letters_is_finished_after_its_first_batch(patch: pytest.MonkeyPatch) -> None:
    original: Any = dead_letter_queue.build

    def build(*given: Any) -> Any:
        letters = given[2]
        written = original(*given[:2], letters._replace(last_offset=given[3]), *given[3:])
        return written._replace(next_offset=letters.last_offset + 1)

    patch.setattr(dead_letter_queue, "build", build)


SHARE_GROUP_MUTANTS: tuple[Plant, ...] = (
    acknowledgements_are_answered_before_they_are_written,
    deposed_leaders_are_not_fenced,
    locks_do_not_end,
    released_records_forget_their_deliveries,
    the_start_offset_passes_available_records,
    of_two_states_the_weaker_one_counts,
    snapshots_have_only_what_is_new,
    the_end_of_a_session_releases_nothing,
    states_are_read_before_they_are_loaded,
    records_are_archived_before_their_dead_letters,
    dead_letters_are_said_to_be_written_at_once,
    dead_letters_are_given_up_at_the_first_error,
    dead_letters_go_to_a_topic_that_takes_none,
    a_range_of_dead_letters_is_finished_after_its_first_batch,
)
SHARE_GROUP_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "deposed_leaders_are_not_fenced": (38, 32, 7, 28),
    "locks_do_not_end": (7, 0, 6),
    "states_are_read_before_they_are_loaded": (0, 27, 2),
}
"""The seeds that found them when they were planted, unless it was the first seed."""
