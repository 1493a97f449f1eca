"""The partitions of an internal topic, as a coordinator's shards write and read them.

It passes the shards' appends to the partition service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.records.validate import Origin
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Buffer, Log, TransactionTerms

ALL_REPLICAS = -1
BATCH_FORMAT_VERSION = 13
"""The Produce version that the batches conform to."""


class ServicePartitionWriter:
    """PartitionWriter over the partition service. `timeout_ms` bounds the wait for the high watermark."""

    __slots__ = ("_names", "_partitions", "_timeout_ms", "_topic")

    def __init__(self, partitions: PartitionService, topic: str, timeout_ms: int) -> None:
        self._partitions = partitions
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._names: dict[int, TopicPartition] = {}

    def append(self, partition: int, batch: Buffer) -> tuple[ErrorCode, int]:
        result = self._partitions.append(
            self._name(partition), batch, ALL_REPLICAS, BATCH_FORMAT_VERSION, True
        )
        return result.error, result.last_offset

    def append_transactional(
        self, partition: int, batch: Buffer, terms: TransactionTerms
    ) -> tuple[ErrorCode, int]:
        result = self._partitions.append(
            self._name(partition),
            batch,
            ALL_REPLICAS,
            BATCH_FORMAT_VERSION,
            True,
            terms,
            Origin.COORDINATOR,
        )
        return result.error, result.last_offset

    def when_committed(self, partition: int, end_offset: int) -> Deferred[ErrorCode] | None:
        name = self._name(partition)
        log = self._partitions.log(name)
        if log is not None and log.high_watermark >= end_offset:
            return None
        replicated = self._partitions.when_replicated({name: end_offset}, self._timeout_ms)

        def outcome(errors: Mapping[TopicPartition, ErrorCode]) -> ErrorCode:
            return errors.get(name, ErrorCode.NONE)

        return None if replicated is None else replicated.then(outcome)

    def log(self, partition: int) -> Log | None:
        return self._partitions.log(self._name(partition))

    def hand_over(self, partition: int, damaged_offset: int) -> bool:
        return self._partitions.hand_over(self._name(partition), damaged_offset)

    def _name(self, partition: int) -> TopicPartition:
        name = self._names.get(partition)
        if name is None:
            name = self._names[partition] = TopicPartition(self._topic, partition)
        return name
