"""The requests about streams groups (KIP-1071), which the client library does not know, and their answers. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkacompat.console.core.share_groups import LIST_VERSION
from kafkacompat.console.core.snapshot import (
    MAX_MEMBERS_SHOWN,
    GroupEpochs,
    MemberEpoch,
    MemberSeen,
    StreamsGroupSeen,
)
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_describe_response import (
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
)
from kafkacompat.wire.tables import ApiKey


def has_streams_groups(serves: Callable[[int, int], bool]) -> bool:
    """Whether a broker can be asked about them. `serves(key, version)` tells what it supports."""
    return serves(ApiKey.LIST_GROUPS, LIST_VERSION) and serves(
        ApiKey.STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest.MIN_VERSION
    )


def describe_request(groups: Sequence[str]) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=list(groups))


def groups_in(described: StreamsGroupDescribeResponse, coordinator: int) -> list[StreamsGroupSeen]:
    """Return the groups of an answer. Groups with an error are left out."""
    found = []
    for group in described.groups:
        if group.error_code:
            continue
        shown = sorted(group.members, key=lambda each: each.member_id)[:MAX_MEMBERS_SHOWN]
        epochs = {member.member_id: MemberEpoch(member.member_epoch) for member in shown}
        found.append(
            StreamsGroupSeen(
                group.group_id,
                group.group_state.lower(),
                len(group.members),
                coordinator,
                GroupEpochs(group.group_epoch, group.assignment_epoch, epochs),
                _sources(group),
                tuple(_member(member) for member in shown),
            )
        )
    return found


def _sources(group: DescribedGroup) -> tuple[str, ...]:
    subtopologies = None if group.topology is None else group.topology.subtopologies
    return tuple(sorted({topic for each in subtopologies or () for topic in each.source_topics}))


def _member(member: Member) -> MemberSeen:
    active = [] if member.assignment is None else member.assignment.active_tasks
    tasks = sorted((each.subtopology_id, number) for each in active for number in each.partitions)
    return MemberSeen(
        member.member_id, member.client_id, member.client_host, member.instance_id, tuple(tasks)
    )
