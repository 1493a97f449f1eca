"""Bugs planted in transactions. The cluster simulation must find each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacompat.coordinator import loading, partition_writer
from kafkacompat.deferred import Deferred
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.records.batch import BatchHeader
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt
from kafkacompat.txn import add_partitions_to_txn_manager, transaction_coordinator
from kafkacompat.wire.errors import ErrorCode


def everything_is_stable(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(UnifiedLog, "last_stable_offset", property(lambda self: self.high_watermark))


def aborted_ranges_are_not_told(patch: pytest.MonkeyPatch) -> None:
    def told(
        self: UnifiedLog, fetch_offset: int, upper_bound_offset: int, most: int = 0
    ) -> tuple[list[Any], int]:
        return [], upper_bound_offset

    patch.setattr(UnifiedLog, "aborted_transactions", told)


def coordinators_answer_at_the_append(patch: pytest.MonkeyPatch) -> None:
    """A coordinator's answer may be lost together with the coordinator."""
    patch.setattr(
        partition_writer.ServicePartitionWriter, "when_committed", lambda self, partition, end_offset: None
    )


def leaders_do_not_verify(patch: pytest.MonkeyPatch) -> None:
    """A leader accepts records of a transaction that its coordinator does not know."""

    def ask(self: Any, name: str, producer_id: int, epoch: int, partitions: Any, adds: bool) -> Deferred[Any]:
        return Deferred.of(dict.fromkeys(partitions, ErrorCode.NONE))

    patch.setattr(add_partitions_to_txn_manager.AddPartitionsToTxnManager, "ask", ask)


def offsets_count_before_their_transaction_ends(patch: pytest.MonkeyPatch) -> None:
    def replayed(self: GroupMetadataManager, record: Any, offset: int, producer_id: int) -> None:
        original(self, record, offset, -1)

    original = GroupMetadataManager.replay
    patch.setattr(GroupMetadataManager, "replay", replayed)


def markers_are_not_loaded(patch: pytest.MonkeyPatch) -> None:
    """A group's next coordinator waits for markers that its log already has."""

    def replay_records(self: Any, body: Any, header: BatchHeader) -> Iterator[int]:
        if not header.is_control:
            yield from original(self, body, header)

    original = loading.Loader._replay_records
    patch.setattr(loading.Loader, "_replay_records", replay_records)


def a_fetch_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """A follower waits for its maximum wait although a coordinator has appended while the fetch was read."""

    def read(self: Any, context: Any, parameters: Any) -> Any:
        return self._reads.read_all(context, parameters, context.partitions, arrived=True)

    patch.setattr(FetchEngine, "_read_of_follower", read)


def every_id_has_expired(patch: pytest.MonkeyPatch) -> None:
    original = transaction_coordinator.expired_id_records

    def expired_id_records(machine: Any, stretch: Any, now_ms: int) -> Any:
        return original(machine, stretch, now_ms + machine.env.settings.expiration_ms)

    patch.setattr(transaction_coordinator, "expired_id_records", expired_id_records)


TRANSACTION_MUTANTS: tuple[Plant, ...] = (
    everything_is_stable,
    aborted_ranges_are_not_told,
    coordinators_answer_at_the_append,
    leaders_do_not_verify,
    offsets_count_before_their_transaction_ends,
    markers_are_not_loaded,
    a_fetch_is_not_looked_at_again,
    every_id_has_expired,
)
TRANSACTION_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "everything_is_stable": 3,
    "aborted_ranges_are_not_told": 3,
    "coordinators_answer_at_the_append": (40, 11, 3),
    "leaders_do_not_verify": 3,
    "offsets_count_before_their_transaction_ends": 3,
    "markers_are_not_loaded": 3,
    "a_fetch_is_not_looked_at_again": 31,
    "every_id_has_expired": 3,
}
