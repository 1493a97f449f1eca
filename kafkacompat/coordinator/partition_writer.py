"""What a coordinator's shard writes to its partition of an internal topic: records as batches, markers, and the position
up to which they are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import UNBOUNDED, InTransaction, PartitionWriter, RecordRun
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition.service import ProduceResult
from kafkacompat.ports import TransactionTerms
from kafkacompat.records.batch import build_batch, build_plain_batch, build_run_batch
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.record import Record
from kafkacompat.records.validate import Origin
from kafkacompat.wire.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Buffer, Log

    Encode = Callable[[Any], tuple[bytes, bytes | None]]


ALL_REPLICAS = -1
BATCH_FORMAT_VERSION = 13
"""The Produce version that the batches conform to."""
SHORT_RECORDS = 1_000
SHORT_BYTES = 64 * 1024
"""Of records that are encoded before anything else is looked at, and the bytes of their keys and values."""


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

    def append_built(
        self, partition: int, batch: bytearray, count: int, now_ms: int, base_sequence: int
    ) -> tuple[ErrorCode, int, bool] | None:
        size = len(batch)
        facts = partition, 0, size, size, 0, count, now_ms, now_ms, -1, -1, base_sequence, 1
        result = self._partitions.append_built(self._topic, batch, facts)
        if isinstance(result, ProduceResult):
            return result.error, -1, False
        return None if result is None else (NONE, *result)

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
            error = errors.get(name, ErrorCode.NONE)
            # As in Kafka, who waits while the topic is deleted is told what all are told whose partition goes.
            is_deleted = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_deleted else error

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


logger = logging.getLogger(__name__)


class ShardLog:
    __slots__ = (
        "_base_sequence",
        "_committed_end",
        "_compression",
        "_doubtful_end",
        "_partition",
        "_told",
        "_uncommitted",
        "_writer",
    )

    def __init__(self, writer: PartitionWriter, partition: int, compression: int, base_sequence: int) -> None:
        self._writer = writer
        self._partition = partition
        self._compression = compression
        self._base_sequence = base_sequence
        self._uncommitted: Deferred[ErrorCode] | None = None
        """The latest append that is not committed yet."""
        self._doubtful_end = -1
        """The end offset of the latest append if the wait for it has failed, or of what was loaded."""
        self._committed_end = -1
        """The end offset of the latest append that was committed at once."""
        self._told = NONE
        """The error of the last append, to log it once."""

    def found(self) -> Log | None:
        """The log if this node leads the partition, otherwise None."""
        return self._writer.log(self._partition)

    def hand_over(self, damaged_offset: int) -> bool:
        return self._writer.hand_over(self._partition, damaged_offset)

    @property
    def end_offset(self) -> int:
        """The present log end offset. -1 without a log."""
        log = self.found()
        return -1 if log is None else log.log_end_offset

    def batch_bytes_max(self) -> int:
        """The most bytes of keys and values in one operation's records. Unbounded if they are compressed."""
        log = None if self._compression else self.found()
        return UNBOUNDED if log is None else log.config.max_message_bytes

    def append(
        self, records: tuple[Any, ...], encode: Encode, now_ms: int, owner: InTransaction | None
    ) -> tuple[ErrorCode, int, int]:
        """Returns (error, first offset, end offset)."""
        pairs: list[tuple[bytes, bytes | None]] = []
        if owner is None and not self._compression and len(records) <= SHORT_RECORDS:
            appended = self._append_short(records, encode, now_ms, pairs)
            if appended is not None:
                return appended
        return self._append_any(records, encode, now_ms, owner, pairs)

    def _append_short(
        self,
        records: tuple[Any, ...],
        encode: Encode,
        now_ms: int,
        pairs: list[tuple[bytes, bytes | None]],
    ) -> tuple[ErrorCode, int, int] | None:
        """`append` of a few short records, as nearly all are. None, before any effect, if they need a closer look. `pairs` gets
        those that were encoded."""
        first = records[0]
        if type(first) is RecordRun:
            return None if len(records) > 1 or first.size > SHORT_BYTES else self._append_run(first, now_ms)
        left = SHORT_BYTES
        for record in records:
            key, value = pair = encode(record)
            pairs.append(pair)
            left -= len(key) if value is None else len(key) + len(value)
            if left < 0:
                return None
        return self._append_built(build_plain_batch(pairs, now_ms, self._base_sequence), len(pairs), now_ms)

    def _append_run(self, run: RecordRun, now_ms: int) -> tuple[ErrorCode, int, int] | None:
        batch = build_run_batch(run.body, run.count, now_ms, self._base_sequence)
        return self._append_built(batch, run.count, now_ms)

    def _append_built(self, batch: bytearray, count: int, now_ms: int) -> tuple[ErrorCode, int, int] | None:
        appended = self._writer.append_built(self._partition, batch, count, now_ms, self._base_sequence)
        if appended is None:
            return None
        error, first_offset, is_committed = appended
        if error is not NONE:
            self._tell_of(error, count)
            return error, -1, 0
        self._told = NONE
        end_offset = first_offset + count
        if is_committed:
            self._committed_end = end_offset
        return NONE, first_offset, end_offset

    def _append_any(
        self,
        records: tuple[Any, ...],
        encode: Encode,
        now_ms: int,
        owner: InTransaction | None,
        known: Sequence[tuple[bytes, bytes | None]],
    ) -> tuple[ErrorCode, int, int]:
        """`known`: the first records as they are encoded. One may have a megabyte, which takes long to encode twice."""
        entries = []
        left = self.batch_bytes_max()
        count, before = 0, b""
        if isinstance(records[0], RecordRun):
            run, *records = records  # type: ignore[assignment]  # a list is read as well
            count, before = run.count, run.body
            left -= run.size
        for index, record in enumerate(records, count):
            key, value = known[index] if index < len(known) else encode(record)
            entries.append(Record(index, now_ms, key, value))
            left -= len(key) + (0 if value is None else len(value))
            if left < 0:
                break
        count += len(records)
        error, last_offset = ErrorCode.MESSAGE_TOO_LARGE, -1
        if left < 0:
            pass  # the log would refuse the whole batch with this error
        elif not entries and owner is None:
            batch = build_run_batch(before, count, now_ms, self._base_sequence, self._compression)
            error, last_offset = self._writer.append(self._partition, batch)
        elif owner is None:
            batch = build_batch(
                entries, base_sequence=self._base_sequence, compression=self._compression, before=before
            )
            error, last_offset = self._writer.append(self._partition, batch)
        else:
            batch = build_batch(
                entries,
                compression=self._compression,
                producer_id=owner.producer_id,
                producer_epoch=owner.epoch,
                base_sequence=self._base_sequence,
                is_transactional=True,
                before=before,
            )
            terms = TransactionTerms(owner.verification_guard, from_client=False)
            error, last_offset = self._writer.append_transactional(self._partition, batch, terms)
        self._tell_of(error, count)
        return error, last_offset - count + 1, last_offset + 1

    def _tell_of(self, error: ErrorCode, count: int) -> None:
        if error is not NONE and error is not self._told:
            # Log it once: a full disk refuses every commit of every client, and the log file may be on the same disk.
            logger.warning(
                "coordinator partition %d: %d records could not be written: %s",
                self._partition,
                count,
                error.name,
            )
        self._told = error

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> tuple[ErrorCode, int]:
        """End a transaction. Returns (error, offset of the marker)."""
        marker = build_end_transaction_marker(
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        terms = TransactionTerms(transaction_version=transaction_version)
        return self._writer.append_transactional(self._partition, marker, terms)

    def when_committed(self, end_offset: int) -> Deferred[ErrorCode] | None:
        """The result for records just appended, which later reads wait for too. None if they are committed."""
        if end_offset <= self._committed_end:
            return None
        pending = self._writer.when_committed(self._partition, end_offset)
        if pending is not None and not pending.done:
            self._wait_for(pending, end_offset)
        elif pending is not None and pending.result() is not ErrorCode.NONE:
            self._doubtful_end = end_offset
        return pending

    @property
    def is_all_committed(self) -> bool:
        """False if that is not known."""
        return self._uncommitted is None and self._doubtful_end < 0

    def when_all_committed(self) -> Deferred[ErrorCode] | None:
        """The result that a read must wait for. None if everything is committed."""
        if self._uncommitted is None and self._doubtful_end >= 0:
            pending = self._writer.when_committed(self._partition, self._doubtful_end)
            if pending is not None and pending.done:
                return pending
            if pending is not None:
                self._wait_for(pending, self._doubtful_end)
            self._doubtful_end = -1
        return self._uncommitted

    def doubt(self, loaded_end: int) -> None:
        """Reads wait for loaded records, which an earlier leader may not have committed."""
        self._doubtful_end = loaded_end

    def when_loaded_is_committed(self, end_offset: int) -> Deferred[ErrorCode] | None:
        """Like `when_committed`, for loaded records of a shard that nobody reads yet."""
        return self._writer.when_committed(self._partition, end_offset)

    def _wait_for(self, pending: Deferred[ErrorCode], end_offset: int) -> None:
        self._uncommitted = pending

        def done(finished: Deferred[ErrorCode]) -> None:
            if self._uncommitted is pending:
                self._uncommitted = None
                self._doubtful_end = -1 if finished.result() is ErrorCode.NONE else end_offset

        pending.on_done(done)
