"""Reads the partitions of one topic, each from its leader. It continues after leader changes and while brokers are away."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from kafkacompat.cli.trouble import Trouble
from kafkacompat.client.blocking import API_TIMEOUT_S, Backoff, Cluster
from kafkacompat.client.brokers import check, error_name
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import ZERO_UUID
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.control import parse_end_transaction_marker
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record, RecordMalformed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.fetch_response import FetchResponse, PartitionData
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.list_offsets_response import ListOffsetsResponse
from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

EARLIEST, LATEST = -2, -1
NO_REPLICA = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_VERSION = 12
"""The newest version of Fetch that has topic names instead of ids."""
WAIT_MS = 500
MAX_BYTES = 8 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
RECORDS_AT_ONCE = 1000
FETCH_RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors that a retry with newer metadata may fix. The metadata shows whether a topic was deleted."""

Records = list[tuple[int, Record]]
"""Pairs of offset and record."""


class Reader:
    """Call `seek` or `assign` first, then `batches`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        only: Collection[int] | None,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        """`only`: the partitions to read, None for all. Raises CommandFailed if the topic or a partition does not exist."""
        self._cluster = cluster
        self._name = topic
        self._isolation_level = isolation_level
        self._topic_id = ZERO_UUID
        self._leaders: dict[int, int] = {}
        self._refresh(cluster.metadata([topic]).topics[0])
        missing = [number for number in only or () if number not in self._leaders]
        if missing:
            raise CommandFailed(
                f"topic {topic} has partitions 0 to {len(self._leaders) - 1}, not {missing[0]}"
            )
        self.partitions = sorted(self._leaders if only is None else set(only))
        """The partitions that are read."""
        self.positions: dict[int, int] = {}
        """The next offset of each partition."""
        self._trouble = Trouble()

    @property
    def partition_count(self) -> int:
        return len(self._leaders)

    def seek(self, timestamp_ms: int, offset: int | None) -> None:
        """Go to an offset in every partition, or to the first record with that timestamp or a later one, otherwise to the end."""
        if offset is not None:
            self.positions = dict.fromkeys(self.partitions, offset)
        else:
            self.positions = self.starts(timestamp_ms)

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read only these partitions, from these offsets."""
        self.partitions = sorted(positions)
        self.positions = dict(positions)

    def starts(self, timestamp_ms: int) -> dict[int, int]:
        """Return the offset of each partition's first record with that timestamp or a later one, otherwise its end offset."""
        found = self.offsets(timestamp_ms)
        if any(offset < 0 for offset in found.values()):
            ends = self.offsets(LATEST)
            found = {number: ends[number] if offset < 0 else offset for number, offset in found.items()}
        return found

    def offsets(self, timestamp_ms: int) -> dict[int, int]:
        """Return the answers of ListOffsets for all partitions that are read. -1 if no record is that late."""
        found: dict[int, int] = {}
        backoff = Backoff(API_TIMEOUT_S)
        while True:
            problem = self._ask_offsets(timestamp_ms, found)
            if problem is None:
                return found
            if backoff.is_over:
                raise CommandFailed(problem)
            backoff.wait()
            self._refresh(self._cluster.metadata([self._name]).topics[0])

    def _ask_offsets(self, timestamp_ms: int, found: dict[int, int]) -> str | None:
        """Add the offsets that were not found yet. Return a problem that may pass."""
        problem = None
        for leader, partitions in self._by_leader(
            [number for number in self.partitions if number not in found]
        ).items():
            asked = [
                ListOffsetsPartition(partition_index=number, timestamp=timestamp_ms) for number in partitions
            ]
            topic = ListOffsetsTopic(name=self._name, partitions=asked)
            request = ListOffsetsRequest(
                replica_id=NO_REPLICA, isolation_level=self._isolation_level, topics=[topic]
            )
            try:
                answer = self._cluster.leader(leader, f"{self._name}-{partitions[0]}").call(
                    request, ListOffsetsResponse
                )
            except BrokerAway as away:
                problem = str(away)
                continue
            for result in answer.topics[0].partitions:
                where = f"{self._name}-{result.partition_index}"
                if result.error_code in FETCH_RETRIABLE:
                    problem = f"{where}: {error_name(result.error_code)}"
                    continue
                check(result.error_code, where)
                found[result.partition_index] = result.offset
        return problem

    def batches(self, ends: Mapping[int, int] | None) -> Iterator[tuple[int, Records]]:
        """Yield (partition, records) for ever, or until each partition has reached its end. Nothing is read of one that has no
        end: a group may assign a partition that was added later.

        Between two rounds of requests, and after an empty round, it yields partition -1 without records.
        """
        backoff = Backoff(API_TIMEOUT_S)
        while True:
            wanted = [
                number
                for number in self.partitions
                if ends is None or self.positions[number] < ends.get(number, 0)
            ]
            if not wanted and ends is not None:
                return
            problem: str | None = None
            for leader, partitions in self._by_leader(wanted).items():
                try:
                    yield from self._fetch(leader, partitions, ends)
                except (BrokerAway, _Passing) as trouble:
                    problem = str(trouble)
            if problem is None:
                self._trouble.end()
                backoff = Backoff(API_TIMEOUT_S)
                if not wanted:
                    backoff.wait()
            else:
                self._trouble.tell(problem)
                backoff.wait()
                try:
                    self._refresh(self._cluster.ask_metadata([self._name]).topics[0])
                except BrokerAway as away:
                    self._trouble.tell(str(away))
            yield -1, []

    def _refresh(self, topic: MetadataResponseTopic) -> None:
        if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            return
        check(topic.error_code, f"topic {self._name}")
        if ZERO_UUID not in (self._topic_id, topic.topic_id) and topic.topic_id != self._topic_id:
            raise CommandFailed(f"topic {self._name} was deleted and created again")
        self._topic_id = topic.topic_id
        self._leaders = {each.partition_index: each.leader_id for each in topic.partitions}

    def _fetch(
        self, leader: int, partitions: list[int], ends: Mapping[int, int] | None
    ) -> Iterator[tuple[int, Records]]:
        asked = [
            FetchPartition(
                partition=number,
                fetch_offset=self.positions[number],
                partition_max_bytes=PARTITION_MAX_BYTES,
            )
            for number in partitions
        ]
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._name, partitions=asked)],
        )
        answer = self._cluster.leader(leader, f"{self._name}-{partitions[0]}").call(
            request, FetchResponse, max_version=FETCH_VERSION
        )
        check(answer.error_code, "fetch")
        problem = None
        for response in answer.responses:
            for result in response.partitions:
                number = result.partition_index
                where = f"{self._name}-{number}"
                if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    first, last = self.offsets(EARLIEST)[number], self.offsets(LATEST)[number]
                    raise CommandFailed(
                        f"{where} has the offsets from {first} up to {last}, not {self.positions[number]}"
                    )
                if result.error_code in FETCH_RETRIABLE:
                    problem = f"{where}: {error_name(result.error_code)}"
                    continue
                check(result.error_code, where)
                try:
                    yield from self._batches_of(number, result, None if ends is None else ends[number])
                except (BatchCorrupt, RecordMalformed, DecompressionFailed) as error:
                    raise CommandFailed(
                        f"{where} is corrupt at offset {self.positions[number]}: {error}"
                    ) from error
        if problem is not None:
            raise _Passing(problem)

    def _batches_of(
        self, partition: int, result: PartitionData, end: int | None = None
    ) -> Iterator[tuple[int, Records]]:
        """The position stops at `end`, though more was fetched: a group commits it, and its next member reads the rest."""
        data = memoryview(result.records or b"")
        aborted = _Aborted(result) if self._isolation_level == READ_COMMITTED else None
        for header in iterate_batches(data):
            if end is not None and self.positions[partition] >= end:
                return
            batch = data[header.position : header.position + header.size]
            if not has_valid_crc(batch, header):
                raise BatchCorrupt("the batch's checksum does not match its bytes")
            is_hidden = aborted is not None and aborted.hides(header, batch)
            if not header.is_control and not is_hidden:
                position = self.positions[partition]
                wanted = (
                    each
                    for each in records_of(batch, header)
                    if each[0] >= position and (end is None or each[0] < end)
                )
                # A batch of one kilobyte can decompress to millions of records.
                while records := list(islice(wanted, RECORDS_AT_ONCE)):
                    yield partition, records
                    # Not before: whoever takes them may fail, and then commits how far it has come.
                    self.positions[partition] = records[-1][0] + 1
            behind = header.last_offset + 1 if end is None else min(header.last_offset + 1, end)
            self.positions[partition] = max(self.positions[partition], behind)

    def _by_leader(self, partitions: list[int]) -> dict[int, list[int]]:
        grouped: dict[int, list[int]] = {}
        for number in partitions:
            grouped.setdefault(self._leaders.get(number, -1), []).append(number)
        return grouped


class _Passing(Exception):
    """A partition could not be read. A retry with newer metadata may fix that."""


class _Aborted:
    """Tells which batches of a fetched partition belong to aborted transactions (KIP-98)."""

    def __init__(self, result: PartitionData) -> None:
        self._begins = sorted(
            ((each.first_offset, each.producer_id) for each in result.aborted_transactions or ()),
            reverse=True,
        )
        self._open: set[int] = set()
        """Producers inside an aborted transaction."""

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._begins and self._begins[-1][0] <= header.last_offset:
            self._open.add(self._begins.pop()[1])
        if header.producer_id not in self._open:
            return False
        if header.is_control:
            for _, record in records_of(batch, header):
                marker = parse_end_transaction_marker(record)
                if marker is not None and not marker.committed:
                    self._open.discard(header.producer_id)
        return header.is_transactional
