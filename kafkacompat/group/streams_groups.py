"""Streams groups (KIP-1071) in the coordinator: heartbeats and descriptions. Follows Kafka's GroupCoordinatorService."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import OperationRefused, or_refused
from kafkacompat.deferred import Deferred, gather
from kafkacompat.group.describe import describe_streams_group
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.image_topics import with_topics_hashed
from kafkacompat.group.listing import describe_all
from kafkacompat.group.streams.heartbeat import (
    HeartbeatCaller,
    PreparedTopology,
    StreamsBeat,
    prepare_topology,
    streams_group_heartbeat,
    validate_heartbeat,
)
from kafkacompat.tasks import Tasks, in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.streams_group_describe_response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from kafkacompat.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from kafkacompat.wire.messages.streams_group_topology_description_update_response import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.coordinator.shard import Shard
    from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
    from kafkacompat.wire.messages.streams_group_heartbeat_request import (
        StreamsGroupHeartbeatRequest,
        Topology,
    )

NOT_STORED = 1
"""Kafka's status of a topology's description, if it is asked for where no plug-in keeps descriptions."""


PREPARED_AT_ONCE = 300
"""Topics of a topology up to which it is read in the step in which it is written."""


class StreamsGroups:
    def __init__(self, shard_of: Callable[[str], Shard], is_active: Callable[[], bool], tasks: Tasks) -> None:
        """`shard_of` raises OperationRefused."""
        self._shard_of = shard_of
        self._is_active = is_active
        self._tasks = tasks

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[StreamsBeat]:
        if (
            not self._is_active()
        ):  # a member must not be told that its request is bad while nobody can serve it
            return Deferred.of(_refused(OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        try:
            validate_heartbeat(request)
            shard = self._shard_of(request.group_id)
            names = _topics_of(request.topology)
            act = self._beat if len(names) <= PREPARED_AT_ONCE else self._prepare_and_beat
            beat = partial(act, shard, request, context)
            answer = with_topics_hashed(shard, self._tasks, request.group_id, names, beat)
        except OperationRefused as refusal:
            return Deferred.of(_refused(refusal))
        return or_refused(answer, _refused)

    def _beat(
        self,
        shard: Shard,
        request: StreamsGroupHeartbeatRequest,
        context: RequestContext,
        prepared: PreparedTopology | None = None,
    ) -> Deferred[StreamsBeat]:
        caller = HeartbeatCaller(context.client_id or "", f"/{context.client_host}", context.api_version)
        return shard.write(
            lambda now_ms: streams_group_heartbeat(machine_of(shard).env, request, caller, now_ms, prepared)
        )

    def _prepare_and_beat(
        self, shard: Shard, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[StreamsBeat]:
        return self._tasks.run("a heartbeat with a large topology", self._prepared(shard, request, context))

    async def _prepared(
        self, shard: Shard, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> StreamsBeat:
        """The topology is read in steps of their own: to write it takes long as well."""
        assert request.topology is not None
        await pause()
        prepared = await in_turns(prepare_topology(machine_of(shard).env, request.topology))
        await pause()
        return await self._beat(shard, request, context, prepared)

    def describe(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> Deferred[StreamsGroupDescribeResponse]:
        described = self._describe(request.group_ids, request.include_topology_description)
        return self._tasks.run("describing streams groups", described)

    async def _describe(
        self, group_ids: Sequence[str], includes_topology_description: bool
    ) -> StreamsGroupDescribeResponse:
        described = await in_turns(
            describe_all(group_ids, self._shard_of, describe_streams_group, _refused_description)
        )
        groups = await gather(described)
        if includes_topology_description:
            for group in groups:
                if not group.error_code:
                    group.topology_description_status = NOT_STORED
        return StreamsGroupDescribeResponse(groups=groups)

    def update_topology_description(self) -> StreamsGroupTopologyDescriptionUpdateResponse:
        """The answer of a broker without a plug-in that keeps descriptions (KIP-1331), whatever the request has."""
        if not self._is_active():
            return StreamsGroupTopologyDescriptionUpdateResponse(
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        return StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="The broker has no streams group topology description plugin configured.",
        )


def _topics_of(topology: Topology | None) -> list[str]:
    """All topics that are hashed."""
    subtopologies = () if topology is None else topology.subtopologies
    return [
        name
        for each in subtopologies
        for name in (
            *each.source_topics,
            *[topic.name for topic in each.repartition_source_topics],
            *[topic.name for topic in each.state_changelog_topics],
        )
    ]


def _refused(refusal: OperationRefused) -> StreamsBeat:
    response = StreamsGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
    return StreamsBeat(response, {})


def _refused_description(group_id: str, refusal: OperationRefused) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=refusal.code)
