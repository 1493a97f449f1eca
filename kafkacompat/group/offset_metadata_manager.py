"""Committed offsets of all groups of one shard, and the offsets of open transactions (Kafka's OffsetMetadataManager).

The replayed state, found by group, topic and partition. The offsets of a transaction are kept separately until its
marker. Then the record that is later in the log wins (KIP-447).

OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete of one group: it checks who may commit, and turns requests
into records and stored offsets into answers. A producer that sends no consumer membership (before KIP-447) is
accepted, as in Kafka. Follows KIP-211, KIP-447 and KIP-848.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused, RecordRun, encoded_run
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic.rebalance import reschedule_heartbeat
from kafkacompat.group.environment import Environment
from kafkacompat.group.records import GroupRecord, OffsetAndMetadata, OffsetRecord, encode_record
from kafkacompat.group.sizes import size_of_group
from kafkacompat.ids import ZERO_UUID
from kafkacompat.tasks import Pace, Work, at_once
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.layouts import layout_of
from kafkacompat.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkacompat.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafkacompat.wire.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafkacompat.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Mapping, Sequence

    from kafkacompat.group.group import CommitPartitionValidator
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.offset_commit_request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest
    from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
    from kafkacompat.wire.messages.txn_offset_commit_request import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )


OFFSET_BYTES = 300
"""The memory that an offset takes besides its metadata."""
COMPARED_TRANSACTIONS = 100
"""Open transactions of a group in which an offset is looked for. A request may write 250 offsets."""
MOVED_AT_ONCE = 100
"""Offsets of a transaction that ends. A request may end one in each of fifty partitions."""
MOVE_COST = 2
"""Of one of them."""

Offsets = dict[str, dict[str, dict[int, OffsetAndMetadata]]]
"""Group -> topic -> partition."""

NO_PRODUCER_ID = -1


class OffsetMetadataManager:
    __slots__ = (
        "_committed",
        "_groups_of",
        "_held",
        "_open_transactions",
        "_pending",
        "count",
        "deleting",
        "env",
    )

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.deleting: dict[str, dict[Uuid, int]] = {}
        """Deleted topics whose offsets must still be removed: name -> id -> end of the log at the deletion."""
        self._held = env.memory.hold(0)
        self.count = 0
        """Committed offsets of all groups. Kept with each change, because there may be millions."""
        self._committed: Offsets = {}
        self._pending: dict[int, Offsets] = {}
        """By producer id."""
        self._open_transactions: dict[str, set[int]] = {}
        """Group -> producer ids."""
        self._groups_of: dict[int, dict[str, None]] = {}
        """The same by producer id: the end of one transaction must not look through all groups."""

    def replay(self, record: OffsetRecord, offset: int, producer_id: int) -> None:
        value = record.value
        if value is None:
            self.count -= self._remove(self._committed, record.group_id, record.topic, record.partition)
            for open_id in sorted(self._open_transactions.get(record.group_id, ())):
                self._remove(self._pending[open_id], record.group_id, record.topic, record.partition)
            return
        value.record_offset = offset
        if producer_id == NO_PRODUCER_ID:
            self._commit(record.group_id, record.topic, record.partition, value)
            return
        target = self._pending.setdefault(producer_id, {})
        self._open_transactions.setdefault(record.group_id, set()).add(producer_id)
        self._groups_of.setdefault(producer_id, {})[record.group_id] = None
        partitions = target.setdefault(record.group_id, {}).setdefault(record.topic, {})
        self._held.grow(size_of_offset(value) - size_of_offset(partitions.get(record.partition)))
        partitions[record.partition] = value

    def replay_commits(
        self,
        group_id: str,
        places: Sequence[tuple[str, Uuid, int, str]],
        offsets: Sequence[int],
        leader_epochs: Sequence[int],
        commit_timestamp: int,
        record_offset: int,
    ) -> None:
        """`replay` of a commit of these places, outside a transaction. `record_offset`: of the first one's record."""
        begin_simple_group(self.env, group_id, commit_timestamp)
        for (topic, topic_id, partition, metadata), offset, leader_epoch in zip(
            places, offsets, leader_epochs, strict=True
        ):
            value = OffsetAndMetadata(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                commit_timestamp=commit_timestamp,
                topic_id=topic_id,
            )
            value.record_offset = record_offset
            self._commit(group_id, topic, partition, value)
            record_offset += 1

    def _commit(self, group_id: str, topic: str, partition: int, value: OffsetAndMetadata) -> None:
        partitions = self._committed.setdefault(group_id, {}).setdefault(topic, {})
        former = partitions.get(partition)
        if former is None:
            self.count += 1
        if former is None or former.metadata is not value.metadata:
            self._held.grow(size_of_offset(value) - size_of_offset(former))
        partitions[partition] = value

    def replay_end_transaction(self, producer_id: int, committed: bool) -> Work[None]:
        """Between two pieces an offset that is not pending any more is committed, if the transaction is."""
        pace = Pace(MOVED_AT_ONCE)
        pending = self._pending.get(producer_id, {})
        for group_id, topics in list(pending.items()):
            for topic, partitions in list(topics.items()):
                for partition in list(partitions):
                    value = partitions.pop(partition)
                    self._held.grow(-size_of_offset(value))
                    if committed:
                        existing = self.get(group_id, topic, partition)
                        if existing is None or value.record_offset > existing.record_offset:
                            self._commit(group_id, topic, partition, value)
                    if pace.is_over():
                        yield MOVED_AT_ONCE * MOVE_COST
                del topics[topic]
            del pending[group_id]
        self._pending.pop(producer_id, None)
        groups = self._groups_of.get(producer_id, {})
        while groups:
            group_id, _ = groups.popitem()
            ids = self._open_transactions[group_id]
            ids.discard(producer_id)
            if not ids:
                del self._open_transactions[group_id]
            if pace.is_over():
                yield MOVED_AT_ONCE * MOVE_COST
        self._groups_of.pop(producer_id, None)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        return self._committed.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> dict[str, dict[int, OffsetAndMetadata]]:
        """Topic -> partition -> offset. The caller must not keep the result."""
        return self._committed.get(group_id, {})

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open_transactions

    def pending(self, group_id: str, topic: str, partition: int) -> Iterator[OffsetAndMetadata]:
        """The partition's pending offset in each open transaction that has one."""
        for producer_id in self._open_transactions.get(group_id, ()):
            if producer_id in self._pending:
                value = self._pending[producer_id].get(group_id, {}).get(topic, {}).get(partition)
                if value is not None:
                    yield value

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any(True for _ in self.pending(group_id, topic, partition))

    def pending_of_topics(self, group_id: str, topics: Iterable[str]) -> dict[str, set[int]]:
        """Topic -> partitions with offsets of the group in open transactions."""
        pending: dict[str, set[int]] = {}
        for producer_id in self._open_transactions.get(group_id, ()):
            of_producer = self._pending.get(producer_id, {}).get(group_id)
            if of_producer:
                for topic in topics:
                    if topic in of_producer:
                        pending.setdefault(topic, set()).update(of_producer[topic])
        return pending

    def places(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) of every committed offset. The state may change between two of them."""
        yield from _places(self._committed, group_id)

    def pending_places(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) of every pending offset, once per open transaction. The state may change between two of
        them."""
        for producer_id in sorted(self._open_transactions.get(group_id, ())):
            pending = self._pending.get(producer_id)
            if pending is not None:
                yield from _places(pending, group_id)

    def has_more_than(self, group_id: str, count: int) -> bool:
        """Whether a group has more than `count` committed offsets."""
        found = 0
        for partitions in self._committed.get(group_id, {}).values():
            found += len(partitions)
            if found > count:
                return True
        return False

    def is_tracked(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a tombstone would remove anything."""
        return self.get(group_id, topic, partition) is not None or self.is_pending(group_id, topic, partition)

    def group_ids(self) -> list[str]:
        """Groups with committed offsets or open transactions."""
        committed = self._committed
        return [*committed, *(group_id for group_id in self._open_transactions if group_id not in committed)]

    def take_apart(self) -> Iterator[int]:
        """Free everything in steps."""
        self._open_transactions, self._groups_of = {}, {}
        committed = self._committed
        for offsets in (self._committed, *self._pending.values()):
            while offsets:
                _, topics = offsets.popitem()
                while topics:
                    _, partitions = topics.popitem()
                    while partitions:
                        _, value = partitions.popitem()
                        self._held.grow(-size_of_offset(value))
                        self.count -= offsets is committed
                        yield 1

    def growth(self, records: Iterable[OffsetRecord], producer_id: int = NO_PRODUCER_ID) -> int:
        """How much more memory is held after these commits than before, as far as it is bounded: transactions of groups that are
        there have to go on. So of each offset a copy in one open transaction is not counted, and further copies are."""
        return sum(
            [
                size_of_offset(each.value)
                - size_of_offset(self._replaced(each.group_id, each.topic, each.partition, producer_id))
                for each in records
            ]
        )

    def _replaced(
        self, group_id: str, topic: str, partition: int, producer_id: int
    ) -> OffsetAndMetadata | None:
        """The offset that a commit takes the place of, for its memory."""
        if producer_id == NO_PRODUCER_ID:
            return self.get(group_id, topic, partition)
        own = self._pending.get(producer_id, {}).get(group_id, {}).get(topic, {}).get(partition)
        if own is not None:
            return own
        are_too_many = len(self._open_transactions.get(group_id, ())) > COMPARED_TRANSACTIONS
        if are_too_many or self.is_pending(group_id, topic, partition):
            return None
        return self.get(group_id, topic, partition)

    def _remove(self, offsets: Offsets, group_id: str, topic: str, partition: int) -> bool:
        """Remove an offset and its empty levels, so that a group without offsets uses no memory. Return whether it was
        there."""
        topics = offsets.get(group_id)
        if topics is None:
            return False
        partitions = topics.get(topic)
        if partitions is None or (removed := partitions.pop(partition, None)) is None:
            return False
        self._held.grow(-size_of_offset(removed))
        if not partitions:
            del topics[topic]
            if not topics:
                del offsets[group_id]
        return True


def begin_simple_group(env: Environment, group_id: str, commit_timestamp: int) -> None:
    """Commits alone create a simple group: empty, without a protocol."""
    if group_id not in env.groups:
        env.groups[group_id] = ClassicGroup(
            group_id, current_state_timestamp_ms=commit_timestamp, memory=env.memory
        )


def size_of_offset(value: OffsetAndMetadata | None) -> int:
    """The bytes of memory that an offset takes. None takes nothing."""
    return 0 if value is None else OFFSET_BYTES + getsizeof(value.metadata)


def _places(offsets: Offsets, group_id: str) -> Iterator[tuple[str, int]]:
    for topic in list(offsets.get(group_id, ())):
        for partition in list(offsets.get(group_id, {}).get(topic, ())):
            yield topic, partition


# --- OffsetCommit, OffsetFetch and OffsetDelete


_S = ClassicGroupState
_STABLE, _PREPARING_REBALANCE = _S.STABLE, _S.PREPARING_REBALANCE
END_OF_TIME_MS = 2**63 - 1
"""The latest expiry time that a record can have."""
ABSENT_GROUP_ON_COMMIT_SINCE = 9
"""The first version of OffsetCommit that knows GROUP_ID_NOT_FOUND."""
EPOCHS_IN_TRANSACTIONS_SINCE = 6
"""The first version of TxnOffsetCommit that tells members of stale epochs and absent groups (KIP-1319)."""
SPARE_BYTES = 32 << 20
"""If the node has this much memory left, a commit has room: no request is as large."""
TOLD_A_STEP = 500
TOLD_COST = 3
"""Cost in microseconds of one partition, or of a topic without partitions."""


def commit_offsets(
    manager: OffsetMetadataManager,
    request: OffsetCommitRequest,
    api_version: int,
    now_ms: int,
) -> CoordinatorResult[GroupRecord, OffsetCommitResponse]:
    """Raises OperationRefused for the whole request."""
    group_id = request.group_id
    may_commit = _admitted(manager, request, api_version)
    retention_ms = request.retention_time_ms
    expire_timestamp = -1 if retention_ms == -1 else min(now_ms + retention_ms, END_OF_TIME_MS)
    limit = manager.env.settings.offset_metadata_max_size
    records: list[OffsetRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            if len(metadata) * 2 > limit and java_length(metadata) > limit:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                error = ErrorCode.NONE
                if may_commit is not None:
                    may_commit(topic.name, topic.topic_id, each.partition_index)
                records.append(_record_of(group_id, topic, each, metadata, now_ms, expire_timestamp))
            answers.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            )
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    throw_if_no_room(manager, records)
    return CoordinatorResult(tuple(records), OffsetCommitResponse(topics=topics))


def _admitted(
    manager: OffsetMetadataManager, request: OffsetCommitRequest, api_version: int
) -> CommitPartitionValidator | None:
    """`validated`, and the member's session begins anew."""
    group_id = request.group_id
    may_commit = validated(
        manager,
        group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        api_version,
        is_transactional=False,
    )
    group = manager.env.groups.get(group_id)
    if isinstance(group, ClassicGroup) and (group.state is _STABLE or group.state is _PREPARING_REBALANCE):
        reschedule_heartbeat(manager.env, group, group.members[request.member_id])
    return may_commit


class CommitRecords:
    """The records of commits of the same partitions with the same metadata: all but the offsets, leader epochs and times."""

    __slots__ = ("_between", "_layout", "_size", "places")

    def __init__(self, request: OffsetCommitRequest) -> None:
        """Of the request's numbers nothing is kept."""
        named = [(topic, each) for topic in request.topics for each in topic.partitions]
        self.places = [
            (topic.name, topic.topic_id, each.partition_index, each.committed_metadata or "")
            for topic, each in named
        ]
        runs = []
        for number in (0, -1):
            pairs = []
            for name, topic_id, partition, metadata in self.places:
                value = OffsetAndMetadata(
                    offset=number,
                    leader_epoch=number,
                    metadata=metadata,
                    commit_timestamp=number,
                    topic_id=topic_id,
                )
                pairs.append(encode_record(OffsetRecord(request.group_id, name, partition, value)))
            runs.append(at_once(encoded_run(pairs)))
        zeros, ones = runs
        self._layout = struct.Struct(layout_of(zeros.body, ones.body, {12: "qi", 8: "q"}))
        self._between = self._layout.unpack(zeros.body)
        self._size = zeros.size

    def run(
        self,
        offsets: Sequence[int],
        leader_epochs: Sequence[int],
        now_ms: int,
        apply: Callable[[int], None],
    ) -> RecordRun:
        fields = list(self._between)
        fields[1::5] = offsets
        fields[2::5] = leader_epochs
        fields[4::5] = [now_ms] * len(offsets)
        return RecordRun(len(offsets), self._size, self._layout.pack(*fields), apply)


def commit_plainly(
    manager: OffsetMetadataManager,
    request: OffsetCommitRequest,
    api_version: int,
    now_ms: int,
    records: CommitRecords,
    offsets: Sequence[int],
    leader_epochs: Sequence[int],
) -> CoordinatorResult[GroupRecord, ErrorCode]:
    """`commit_offsets` of short metadata, which is in the records of the request, and of these numbers. Raises OperationRefused for
    the whole request."""
    may_commit = _admitted(manager, request, api_version)
    if may_commit is not None:
        for topic, topic_id, partition, _ in records.places:
            may_commit(topic, topic_id, partition)
    env, group_id, places = manager.env, request.group_id, records.places
    if not env.memory.has_room(SPARE_BYTES):
        growth = sum(
            [
                OFFSET_BYTES + getsizeof(metadata) - size_of_offset(manager.get(group_id, topic, partition))
                for topic, _, partition, metadata in places
            ]
        )
        env.throw_if_no_room(growth)

    def apply(record_offset: int) -> None:
        manager.replay_commits(group_id, places, offsets, leader_epochs, now_ms, record_offset)

    return CoordinatorResult((records.run(offsets, leader_epochs, now_ms, apply),), NONE)


def _record_of(
    group_id: str,
    topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    each: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    metadata: str,
    now_ms: int,
    expire_timestamp: int = -1,
) -> OffsetRecord:
    """The record of a commit of either kind."""
    value = OffsetAndMetadata(
        offset=each.committed_offset,
        leader_epoch=each.committed_leader_epoch,
        metadata=metadata,
        commit_timestamp=now_ms,
        expire_timestamp=expire_timestamp,
        topic_id=topic.topic_id,
    )
    return OffsetRecord(group_id, topic.name, each.partition_index, value)


def throw_if_no_room(
    manager: OffsetMetadataManager, records: Sequence[OffsetRecord], producer_id: int = NO_PRODUCER_ID
) -> None:
    """Raises OperationRefused if the node has no memory for new offsets, for longer metadata, or for more open transactions with
    the same offsets. Other offsets are committed as usual."""
    env = manager.env
    if not env.memory.has_room(SPARE_BYTES):
        env.throw_if_no_room(manager.growth(records, producer_id))


def java_length(text: str) -> int:
    """Length in UTF-16 units, which Kafka uses for commit metadata."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def validated(
    manager: OffsetMetadataManager,
    group_id: str,
    member_id: str,
    group_instance_id: str | None,
    member_epoch: int,
    api_version: int,
    is_transactional: bool,
) -> CommitPartitionValidator | None:
    """The check of each partition. Raises OperationRefused. A group that is absent is created by a commit without a member."""
    group = manager.env.groups.get(group_id)
    if group is not None:
        return group.validate_offset_commit(
            member_id, group_instance_id, member_epoch, is_transactional, api_version
        )
    if member_epoch >= 0:
        since = EPOCHS_IN_TRANSACTIONS_SINCE if is_transactional else ABSENT_GROUP_ON_COMMIT_SINCE
        if api_version >= since:
            raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        raise OperationRefused(ErrorCode.ILLEGAL_GENERATION)
    manager.env.throw_if_no_room(size_of_group(group_id))
    return None


class SeenOffsets(NamedTuple):
    """The group's offsets by topic at one moment, from which a fetch is answered."""

    offsets: Mapping[str, Mapping[int, OffsetAndMetadata]]
    pending: Mapping[str, Container[int]]
    """Partitions with offsets in open transactions, if the request needs them."""
    deleting: Mapping[str, Mapping[Uuid, int]]
    """The same as in the manager."""
    ids: Mapping[str, Uuid]
    """Of the topics that exist, if the request asks for all."""


def see_offsets(
    manager: OffsetMetadataManager, request: OffsetFetchRequestGroup, require_stable: bool
) -> SeenOffsets:
    """Copy the offsets, so that they can be sent later. Raises OperationRefused."""
    group_id = request.group_id
    group = manager.env.groups.get(group_id)
    if group is not None:
        if group.is_dead():
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.validate_offset_fetch(request.member_id, request.member_epoch)
    offsets = {} if group is None else manager.of_group(group_id)
    names = list(offsets) if request.topics is None else [asked.name for asked in request.topics]
    by_name = manager.env.topics.by_name if request.topics is None else {}
    return SeenOffsets(
        {name: dict(offsets[name]) for name in names if name in offsets} if offsets else {},
        manager.pending_of_topics(group_id, names) if require_stable else {},
        {name: dict(ids) for name, ids in manager.deleting.items()},
        {name: topic.id for name in names if (topic := by_name.get(name)) is not None},
    )


def tell_offsets(
    seen: SeenOffsets, request: OffsetFetchRequestGroup
) -> Generator[int, None, OffsetFetchResponseGroup]:
    """The answer, in steps that report their cost. A partition without an offset gets -1 and no error. `request.topics` None
    asks for all offsets: then such a partition is left out, and a topic that does not exist has no id."""
    topics: list[OffsetFetchResponseTopics] = []
    pace = Pace(TOLD_A_STEP)
    asked: Iterable[tuple[str, Uuid, Sequence[int]]]
    asks_for_all = request.topics is None
    if request.topics is None:
        asked = (
            (name, seen.ids.get(name, ZERO_UUID), list(partitions))
            for name, partitions in seen.offsets.items()
        )
    else:
        asked = ((topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics)
    for name, topic_id, indexes in asked:
        answers: list[OffsetFetchResponsePartitions] = []
        for start in range(0, len(indexes), TOLD_A_STEP):
            some = indexes[start : start + TOLD_A_STEP]
            found = [_fetched(seen, name, topic_id, each) for each in some]
            if asks_for_all:
                found = [each for each in found if each.committed_offset >= 0 or each.error_code]
            answers += found
            if pace.is_over(len(some)):
                yield TOLD_A_STEP * TOLD_COST
        if answers or not asks_for_all:
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers))
        if pace.is_over():
            yield TOLD_A_STEP * TOLD_COST
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def is_gone(stored: OffsetAndMetadata, deleted: Mapping[Uuid, int]) -> bool:
    """Whether the offset belongs to a deleted topic (id -> end of the offsets' log at its deletion) and not to a later
    one."""
    before = max(deleted.values()) if stored.topic_id == ZERO_UUID else deleted.get(stored.topic_id, -1)
    return stored.record_offset < before


def _fetched(seen: SeenOffsets, topic: str, topic_id: Uuid, partition: int) -> OffsetFetchResponsePartitions:
    if partition in seen.pending.get(topic, ()):
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    stored = seen.offsets.get(topic, {}).get(partition)
    if stored is not None and ZERO_UUID not in (stored.topic_id, topic_id) and stored.topic_id != topic_id:
        stored = None  # it belongs to an earlier topic of the same name
    if stored is None or (topic in seen.deleting and is_gone(stored, seen.deleting[topic])):
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, committed_leader_epoch=-1, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=stored.offset,
        committed_leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
    )


def delete_offsets(
    manager: OffsetMetadataManager, request: OffsetDeleteRequest
) -> CoordinatorResult[GroupRecord, OffsetDeleteResponse]:
    """Raises OperationRefused for the whole request. Groups of unsupported kinds keep their offsets."""
    group_id = request.group_id
    group = manager.env.groups.get(group_id)
    if group is None:
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    group.validate_offset_delete()
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        answers = []
        for each in topic.partitions:
            answers.append(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            )
            if not subscribed and manager.is_tracked(group_id, topic.name, each.partition_index):
                records.append(OffsetRecord(group_id, topic.name, each.partition_index, None))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return CoordinatorResult(tuple(records), OffsetDeleteResponse(topics=topics))


# --- TxnOffsetCommit


def commit_transactional_offsets(
    manager: OffsetMetadataManager, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
) -> CoordinatorResult[GroupRecord, TxnOffsetCommitResponse]:
    """Raises OperationRefused for the whole request."""
    group_id = request.group_id
    may_commit = _validated(manager, request, api_version)
    limit = manager.env.settings.offset_metadata_max_size
    records: list[OffsetRecord] = []
    topics = []
    for topic in request.topics:
        check = None if may_commit is None else _check_of(may_commit, topic, api_version)
        answers = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            error = ErrorCode.NONE
            if java_length(metadata) > limit:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                if check is not None:
                    check(each.partition_index)
                records.append(_record_of(group_id, topic, each, metadata, now_ms))
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            )
        topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    throw_if_no_room(manager, records, request.producer_id)
    return CoordinatorResult(tuple(records), TxnOffsetCommitResponse(topics=topics))


def _validated(
    manager: OffsetMetadataManager, request: TxnOffsetCommitRequest, api_version: int
) -> CommitPartitionValidator | None:
    with _stale_epochs_as_generations(api_version):
        return validated(
            manager,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            api_version,
            is_transactional=True,
        )


def _check_of(
    may_commit: CommitPartitionValidator, topic: TxnOffsetCommitRequestTopic, api_version: int
) -> Callable[[int], None]:
    """The check of a topic's partitions."""

    def check(partition: int) -> None:
        with _stale_epochs_as_generations(api_version):
            may_commit(topic.name, topic.topic_id, partition)

    return check


@contextmanager
def _stale_epochs_as_generations(api_version: int) -> Iterator[None]:
    """Earlier versions of the API have no STALE_MEMBER_EPOCH."""
    try:
        yield
    except OperationRefused as refusal:
        if refusal.code is ErrorCode.STALE_MEMBER_EPOCH and api_version < EPOCHS_IN_TRANSACTIONS_SINCE:
            raise OperationRefused(ErrorCode.ILLEGAL_GENERATION, refusal.message) from None
        raise
