"""OffsetCommit, OffsetFetch and OffsetDelete of one group.

It checks who may commit, and turns requests into records and stored offsets into answers. Follows KIP-211, KIP-447 and
KIP-848, as far as they concern classic groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic.rebalance import reschedule_heartbeat
from kafkacompat.group.records import GroupRecord, OffsetAndMetadata, OffsetRecord
from kafkacompat.group.sizes import size_of_group
from kafkacompat.ids import ZERO_UUID
from kafkacompat.tasks import Pace
from kafkacompat.wire.errors import ErrorCode
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

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Mapping, Sequence

    from kafkacompat.group.group import CommitPartitionValidator
    from kafkacompat.group.group_metadata_manager import GroupMetadataManager
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
    from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest
    from kafkacompat.wire.messages.offset_fetch_request import (
        OffsetFetchRequestGroup,
    )

_S = ClassicGroupState
END_OF_TIME_MS = 2**63 - 1
"""The latest expiry time that a record can have."""
ABSENT_GROUP_ON_COMMIT_SINCE = 9
"""The first version of OffsetCommit that knows GROUP_ID_NOT_FOUND."""
SPARE_BYTES = 32 << 20
"""If the node has this much memory left, a commit has room: no request is as large."""
TOLD_A_STEP = 500
TOLD_COST = 3
"""Cost in microseconds of one partition, or of a topic without partitions."""


def commit_offsets(
    machine: GroupMetadataManager,
    request: OffsetCommitRequest,
    api_version: int,
    now_ms: int,
) -> CoordinatorResult[GroupRecord, OffsetCommitResponse]:
    """Raises Refused for the whole request."""
    group_id = request.group_id
    may_commit = validated(
        machine,
        group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        api_version,
        is_transactional=False,
    )
    group = machine.groups.get(group_id)
    if isinstance(group, ClassicGroup) and group.state in (_S.STABLE, _S.PREPARING_REBALANCE):
        reschedule_heartbeat(machine.env, group, group.members[request.member_id])
    retention_ms = request.retention_time_ms
    expire_timestamp_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, END_OF_TIME_MS)
    limit = machine.env.settings.offset_metadata_max_size
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
                value = OffsetAndMetadata(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expire_timestamp_ms,
                    topic.topic_id,
                )
                records.append(OffsetRecord(group_id, topic.name, each.partition_index, value))
            answers.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            )
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    throw_if_no_room(machine, records)
    return CoordinatorResult(tuple(records), OffsetCommitResponse(topics=topics))


def throw_if_no_room(machine: GroupMetadataManager, records: Sequence[OffsetRecord]) -> None:
    """Raises Refused if the node has no memory for new offsets, or for longer metadata. Others are committed as usual."""
    env = machine.env
    if not env.memory.has_room(SPARE_BYTES):
        env.throw_if_no_room(machine.offsets.growth(records))


def java_length(text: str) -> int:
    """Length in UTF-16 units, which Kafka uses for commit metadata."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def validated(
    machine: GroupMetadataManager,
    group_id: str,
    member_id: str,
    group_instance_id: str | None,
    member_epoch: int,
    api_version: int,
    is_transactional: bool,
) -> CommitPartitionValidator | None:
    """The check of each partition. Raises Refused. A group that is absent is created by a commit without a member."""
    group = machine.groups.get(group_id)
    if group is not None:
        return group.validate_offset_commit(
            member_id, group_instance_id, member_epoch, is_transactional, api_version
        )
    if member_epoch >= 0:
        if api_version >= ABSENT_GROUP_ON_COMMIT_SINCE and not is_transactional:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    machine.env.throw_if_no_room(size_of_group(group_id))
    return None


class SeenOffsets(NamedTuple):
    """The group's offsets by topic at one moment, from which a fetch is answered."""

    offsets: Mapping[str, Mapping[int, OffsetAndMetadata]]
    pending: Mapping[str, Container[int]]
    """Partitions with offsets in open transactions, if the request needs them."""
    deleting: Mapping[str, Mapping[Uuid, int]]
    """The same as in the machine."""


def see_offsets(
    machine: GroupMetadataManager, request: OffsetFetchRequestGroup, require_stable: bool
) -> SeenOffsets:
    """Copy the offsets, so that they can be sent later. Raises Refused."""
    group_id = request.group_id
    group = machine.groups.get(group_id)
    if group is not None:
        if group.is_dead():
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.validate_offset_fetch(request.member_id, request.member_epoch)
    offsets = {} if group is None else machine.offsets.of_group(group_id)
    names: Iterable[str] = offsets
    if request.topics is not None:
        names = (asked.name for asked in request.topics) if offsets else ()
    return SeenOffsets(
        {name: dict(offsets[name]) for name in names if name in offsets},
        machine.offsets.pending_of_group(group_id) if require_stable else {},
        {name: dict(ids) for name, ids in machine.deleting.items()},
    )


def tell_offsets(
    seen: SeenOffsets, request: OffsetFetchRequestGroup
) -> Generator[int, None, OffsetFetchResponseGroup]:
    """The answer, in steps that report their cost. `request.topics` None asks for all. A partition without an offset
    gets -1 and no error."""
    topics: list[OffsetFetchResponseTopics] = []
    pace = Pace(TOLD_A_STEP)
    asked: Iterable[tuple[str, Uuid, Sequence[int]]]
    if request.topics is None:
        asked = ((name, ZERO_UUID, list(partitions)) for name, partitions in seen.offsets.items())
    else:
        asked = ((topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics)
    for name, topic_id, indexes in asked:
        answers: list[OffsetFetchResponsePartitions] = []
        for start in range(0, len(indexes), TOLD_A_STEP):
            some = indexes[start : start + TOLD_A_STEP]
            answers += [_fetched(seen, name, topic_id, each) for each in some]
            if pace.is_over(len(some)):
                yield TOLD_A_STEP * TOLD_COST
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
    machine: GroupMetadataManager, request: OffsetDeleteRequest
) -> CoordinatorResult[GroupRecord, OffsetDeleteResponse]:
    """Raises Refused for the whole request. Groups of unsupported kinds keep their offsets."""
    group_id = request.group_id
    group = machine.groups.get(group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
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
            if not subscribed and machine.offsets.is_tracked(group_id, topic.name, each.partition_index):
                records.append(OffsetRecord(group_id, topic.name, each.partition_index, None))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return CoordinatorResult(tuple(records), OffsetDeleteResponse(topics=topics))
