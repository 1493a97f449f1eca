"""A member of a classic consumer group that reads one topic in one thread. The reader calls `tend` between two reads.

The group may have other members, from any client. Partitions are assigned by the range assignor, which every client
supports.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafkacompat.client.blocking import API_TIMEOUT_S, Backoff, Cluster
from kafkacompat.client.brokers import check
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
"""Other members wait at most this long for a member whose reader is busy."""
JOIN_TIMEOUT_S = REBALANCE_TIMEOUT_MS / 1000 + 30
HEARTBEAT_INTERVAL_S = 3.0
COMMIT_INTERVAL_S = 5.0
"""auto.commit.interval.ms of Kafka's consumers."""
NAMES_VERSION_MAX = 9
"""The newest version of OffsetCommit and OffsetFetch that has topic names instead of ids."""
REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
M = TypeVar("M", bound=Message)
A = TypeVar("A", HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse)
_VERSION = struct.Struct(">h")


class GroupMember:
    """Call `join` first, and again whenever `tend` or `commit` reports that the assignment has ended."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._member_id = ""
        self._generation = -1
        self._heartbeat_at = self._commit_at = 0.0

    def join(self) -> list[int]:
        """Join the group and return the partitions that are assigned to this member."""
        backoff = Backoff(API_TIMEOUT_S)
        while True:
            partitions = self._join_once()
            if partitions is not None:
                now = time.monotonic()
                self._heartbeat_at, self._commit_at = now + HEARTBEAT_INTERVAL_S, now + COMMIT_INTERVAL_S
                return partitions
            if backoff.is_over:
                raise CommandFailed(f"group {self._group} did not reach an assignment")
            backoff.wait()

    def _join_once(self) -> list[int] | None:
        """Like `join`, once. None if it must be tried again."""
        joined = self._ask_to_join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = self._ask_to_join()
        if joined.error_code in REJOIN:
            self._member_id = ""
            return None
        check(joined.error_code, f"group {self._group}")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        shares: dict[str, dict[str, list[int]]] = {}
        if joined.leader == self._member_id:
            shares = self._shares({each.member_id: bytes(each.metadata) for each in joined.members})
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=_assignment(share))
                for member, share in shares.items()
            ],
        )
        synced = self._call(request, SyncGroupResponse, JOIN_TIMEOUT_S)
        if synced.error_code in REJOIN:
            return None
        check(synced.error_code, f"group {self._group}")
        return [number for topic, number in assigned_partitions(synced.assignment) if topic == self._topic]

    def _ask_to_join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=[self._topic])
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=ASSIGNOR, metadata=_VERSION.pack(0) + encode(subscription, 0))
            ],
        )
        return self._call(request, JoinGroupResponse, JOIN_TIMEOUT_S)

    def _shares(self, subscriptions: Mapping[str, bytes]) -> dict[str, dict[str, list[int]]]:
        """Return the partitions by member and topic. This member is the group's leader."""
        topics = {member: subscribed_topics(metadata) for member, metadata in subscriptions.items()}
        named = sorted({topic for each in topics.values() for topic in each})
        counts = {
            each.name: len(each.partitions)
            for each in self._cluster.metadata(named).topics
            if each.error_code == ErrorCode.NONE
        }
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in topics}
        for topic in named:
            members = [member for member in topics if topic in topics[member]]
            for member, numbers in by_range(members, counts.get(topic, 0)).items():
                shares[member][topic] = numbers
        return shares

    def tend(self, positions: Mapping[int, int]) -> bool:
        """Send a heartbeat and a commit if they are due. False if the assignment has ended: join again."""
        now = time.monotonic()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_INTERVAL_S
            request = HeartbeatRequest(
                group_id=self._group, generation_id=self._generation, member_id=self._member_id
            )
            code = self._call(request, HeartbeatResponse).error_code
            if code in REJOIN:
                # The group is rebalancing. Commit what was read before other members take over the partitions.
                self.commit(positions)
                if code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                return False
            check(code, f"group {self._group}")
        if now >= self._commit_at:
            self._commit_at = now + COMMIT_INTERVAL_S
            return self.commit(positions)
        return True

    def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the group's committed offset of each partition. Partitions without one are left out."""
        topic = OffsetFetchRequestTopics(name=self._topic, partition_indexes=list(partitions))
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._group, topics=[topic])], require_stable=True
        )
        backoff = Backoff(API_TIMEOUT_S)
        while True:
            answer = self._cluster.coordinator_call(
                self._group,
                request,
                OffsetFetchResponse,
                lambda answer: answer.groups[0].error_code,
                max_version=NAMES_VERSION_MAX,
            )
            (found,) = answer.groups
            check(found.error_code, f"offsets of {self._group}")
            results = [each for topic in found.topics for each in topic.partitions]
            if (
                all(each.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT for each in results)
                or backoff.is_over
            ):
                break
            backoff.wait()
        for each in results:
            check(each.error_code, f"offset of {self._topic}-{each.partition_index}")
        return {each.partition_index: each.committed_offset for each in results if each.committed_offset >= 0}

    def commit(self, positions: Mapping[int, int]) -> bool:
        """Commit the positions. Return whether the assignment is still valid."""
        if not positions:
            return True
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number, offset in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
        )
        answer = self._cluster.coordinator_call(
            self._group,
            request,
            OffsetCommitResponse,
            lambda answer: answer.topics[0].partitions[0].error_code,
            max_version=NAMES_VERSION_MAX,
        )
        for result in answer.topics[0].partitions:
            if result.error_code in REJOIN:
                return False
            check(result.error_code, f"{self._topic}-{result.partition_index}")
        return True

    def leave(self) -> None:
        if self._member_id:
            request = LeaveGroupRequest(
                group_id=self._group,
                members=[MemberIdentity(member_id=self._member_id)],
            )
            self._call(request, LeaveGroupResponse)
            self._member_id = ""

    def _call(self, request: Message, response_type: type[A], timeout_s: float | None = None) -> A:
        return self._cluster.coordinator_call(
            self._group, request, response_type, lambda answer: answer.error_code, timeout_s=timeout_s
        )


def by_range(members: Iterable[str], count: int) -> dict[str, list[int]]:
    """Assign ranges of partitions to members. If they do not divide evenly, the first members get one more (RangeAssignor)."""
    ordered = sorted(members)
    each, more = divmod(count, len(ordered))
    shares, start = {}, 0
    for at, member in enumerate(ordered):
        end = start + each + (at < more)
        shares[member] = list(range(start, end))
        start = end
    return shares


def subscribed_topics(metadata: bytes) -> list[str]:
    """Return the topics to which a member of the protocol 'consumer' subscribes. Empty for malformed bytes."""
    found = _decoded(ConsumerProtocolSubscription, metadata)
    return [] if found is None else found.topics


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """Return the partitions assigned to a member of the protocol 'consumer'. Empty for malformed bytes."""
    found = _decoded(ConsumerProtocolAssignment, assignment)
    if found is None:
        return []
    return [(topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions]


def _assignment(share: Mapping[str, list[int]]) -> bytes:
    assigned = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in share.items()]
    return _VERSION.pack(0) + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)


def _decoded(message: type[M], data: bytes) -> M | None:
    if len(data) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data)
    try:
        return decode(message, min(max(version, 0), message.MAX_VERSION), data, _VERSION.size)
    except WireError:
        return None
