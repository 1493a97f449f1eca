"""Short helpers for members and commits in scenarios."""

from __future__ import annotations

from typing import Any

from kafkacompat.api.heartbeat import HANDLER as HEARTBEAT
from kafkacompat.api.join_group import HANDLER as JOIN
from kafkacompat.api.leave_group import HANDLER as LEAVE
from kafkacompat.api.offset_commit import HANDLER as COMMIT
from kafkacompat.api.offset_fetch import HANDLER as FETCH
from kafkacompat.api.sync_group import HANDLER as SYNC
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "g"
TYPE = "consumer"


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription version 0."""
    body = b"\0\0" + len(topics).to_bytes(4, "big")
    for topic in topics:
        body += len(topic).to_bytes(2, "big") + topic.encode()
    return body + b"\xff\xff\xff\xff"


RANGE = (("range", subscription("t")),)


def join(
    world: LeadingCoordinator,
    member_id: str = "",
    protocols: tuple[tuple[str, bytes], ...] = RANGE,
    *,
    group: str = GROUP,
    instance: str | None = None,
    session: int = 10_000,
    rebalance: int = 30_000,
    kind: str = TYPE,
    version: int = 9,
    client_id: str | None = "client",
) -> Any:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session,
        rebalance_timeout_ms=rebalance,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )
    return world.call(JOIN, request, version, client_id)


def sync(
    world: LeadingCoordinator,
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    group: str = GROUP,
    instance: str | None = None,
    kind: str | None = TYPE,
    name: str | None = "range",
    version: int = 5,
) -> Any:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=name,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (assignments or {}).items()
        ],
    )
    return world.call(SYNC, request, version)


def beat(
    world: LeadingCoordinator,
    member_id: str,
    generation: int,
    *,
    group: str = GROUP,
    instance: str | None = None,
) -> int:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )
    return int(world.call(HEARTBEAT, request, 4).error_code)


def leave(
    world: LeadingCoordinator, *members: tuple[str, str | None], group: str = GROUP, version: int = 5
) -> Any:
    request = LeaveGroupRequest(group_id=group)
    if version < 3:
        request.member_id = members[0][0]
    else:
        request.members = [
            MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members
        ]
    return world.call(LEAVE, request, version)


def commit(
    world: LeadingCoordinator,
    offset: int,
    *,
    topic: str = "t",
    partition: int = 0,
    group: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    retention: int = -1,
    version: int = 9,
) -> Any:
    """The error of the only partition, or the Deferred."""
    name, topic_id = topic, bytes(16)
    if version >= 10:
        known = world.image.topics.get(topic)
        name, topic_id = "", known.id if known is not None else b"?" * 16
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0,
                        committed_metadata=metadata,
                    )
                ],
            )
        ],
    )
    answer = world.call(COMMIT, request, version)
    return answer.topics[0].partitions[0].error_code if hasattr(answer, "topics") else answer


def fetch(
    world: LeadingCoordinator,
    *,
    topic: str = "t",
    partition: int = 0,
    group: str = GROUP,
    stable: bool = False,
) -> Any:
    """The answer for the only partition."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
            )
        ],
        require_stable=stable,
    )
    answer = world.call(FETCH, request, 9)
    return answer.groups[0].topics[0].partitions[0] if hasattr(answer, "groups") else answer


def member_id_of(world: LeadingCoordinator, **options: Any) -> str:
    """Request a member id (KIP-394)."""
    answer = join(world, **options)
    assert answer.error_code == 79
    return str(answer.member_id)


def form_group(world: LeadingCoordinator, size: int = 1, **options: Any) -> list[str]:
    """A stable group of this many dynamic members. The first is the leader. Assignments are b'a0', b'a1' ..."""
    ids = [member_id_of(world, **options) for _ in range(size)]
    waiting = [join(world, each, **options) for each in ids]
    for _ in range(600):
        if all(each.done for each in waiting):
            break
        world.time.advance(100)
    answers = [each.result() for each in waiting]
    generation = answers[0].generation_id
    plan = {each: b"a%d" % index for index, each in enumerate(ids)}
    group = options.get("group", GROUP)
    name = answers[0].protocol_name
    kind = options.get("kind", TYPE)
    parked = [sync(world, each, generation, group=group, name=name, kind=kind) for each in ids[1:]]
    first = sync(world, ids[0], generation, plan, group=group, name=name, kind=kind)
    assert first.error_code == 0
    assert all(each.result().error_code == 0 for each in parked)
    return ids
