"""StreamsGroupHeartbeat (key 88): members of Kafka Streams applications join, report and leave (KIP-1071).

The internal topics that the application needs are created here, in the name of the sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import ASKED_A_STEP, RightToTopics, access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.subscribed_names import are_too_many, when_visible
from kafkacompat.api.topics import is_legal_topic_name
from kafkacompat.ids import INTERNAL_TOPICS
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kafkacompat.wire.messages.streams_group_heartbeat_response import Status, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator

    from kafkacompat.api.access import Access
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.group.service import StreamsBeat
    from kafkacompat.wire.messages.streams_group_heartbeat_request import (
        StreamsGroupHeartbeatRequest,
        Subtopology,
        Topology,
    )

STREAMS_VERSION = "streams.version"
FIRST_LEVEL_WITH_STREAMS_GROUPS = 1
MISSING_INTERNAL_TOPICS = 3
TOLD_ERRORS = 3
TOPOLOGY_PARTS_MAX = 4_000
"""Subtopologies, their topics, settings of these, and groups of copartitioned topics with their members. One takes the loop
for several microseconds in one step."""
NAMES_MAX = 200_000
"""Characters of all ids of subtopologies and names of topics. Their order is that of their hashes, and one takes 50
nanoseconds."""
LISTED_MAX = 20_000
"""Tasks that one heartbeat names, or offsets of tasks that it has."""
CLIENT_TAGS_MAX = 1_000
TEXTS_MAX = 1 << 20
"""Characters of all client tags and settings of topics. More do not fit into a record."""


def serves_streams_groups(node: Node) -> bool:
    """Whether the cluster has finalized them and group.coordinator.rebalance.protocols has them."""
    level = node.image.features.get(STREAMS_VERSION, 0)
    protocols = node.config.get_list("group.coordinator.rebalance.protocols")
    return level >= FIRST_LEVEL_WITH_STREAMS_GROUPS and "streams" in protocols


def streams_group_heartbeat(
    node: Node, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | Awaitable[StreamsGroupHeartbeatResponse]:
    too_much = _too_much_of(request)
    if too_much is not None:
        return too_much
    names = _topics_of(request.topology)
    if are_too_many(names):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        return _invalid(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        )
    invalid = [name for name in names if not is_legal_topic_name(name)]
    if invalid:
        return _invalid(f"Topic names {','.join(invalid)} are not valid topic names.")
    access = access_of(node, context)

    def beat() -> Awaitable[StreamsGroupHeartbeatResponse]:
        answer = node.groups.streams.heartbeat(request, context)
        return _with_topics_created(node, context, access, answer)

    if access is None or not names:
        return beat()
    refusal = StreamsGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return when_visible(RightToTopics(access, AclOperation.DESCRIBE), names, beat, refusal)


def _too_much_of(request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
    """The refusal of a request whose lists are too long for one step."""
    if _has_more_parts(request.topology, TOPOLOGY_PARTS_MAX):
        return _invalid(f"A topology may have at most {TOPOLOGY_PARTS_MAX} parts.")
    if sum(map(len, _names_in(request.topology))) > NAMES_MAX:
        return _invalid(f"The names in a topology may have at most {NAMES_MAX} characters.")
    owned = [*(request.active_tasks or ()), *(request.standby_tasks or ()), *(request.warmup_tasks or ())]
    if len(owned) > LISTED_MAX or sum([len(each.partitions) for each in owned]) > LISTED_MAX:
        message = f"A heartbeat may name at most {LISTED_MAX} tasks."
    elif len(request.task_offsets or ()) + len(request.task_end_offsets or ()) > LISTED_MAX:
        message = f"A heartbeat may have at most {LISTED_MAX} offsets of tasks."
    elif len(request.client_tags or ()) > CLIENT_TAGS_MAX:
        message = f"A member may have at most {CLIENT_TAGS_MAX} client tags."
    elif sum(_text_lengths(request)) > TEXTS_MAX:
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        return None
    return StreamsGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)


def _text_lengths(request: StreamsGroupHeartbeatRequest) -> Iterator[int]:
    """Of client tags, and of settings of topics."""
    for each in () if request.topology is None else request.topology.subtopologies:
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield from (len(config.key) + len(config.value) for config in topic.topic_configs)
    yield from (len(tag.key) + len(tag.value) for tag in request.client_tags or ())


def _has_more_parts(topology: Topology | None, most: int) -> bool:
    """It looks at no more than `most` parts of a list."""
    subtopologies = () if topology is None else topology.subtopologies
    parts = len(subtopologies)
    for each in subtopologies:
        topics = (each.repartition_source_topics, each.state_changelog_topics)
        groups = each.copartition_groups
        parts += len(each.source_topics) + len(each.source_topic_regex) + len(each.repartition_sink_topics)
        parts += sum(map(len, topics)) + len(groups)
        if parts > most:
            return True
        parts += sum([len(topic.topic_configs) for some in topics for topic in some])
        parts += sum(
            [
                len(group.source_topics)
                + len(group.source_topic_regex)
                + len(group.repartition_source_topics)
                for group in groups
            ]
        )
    return parts > most


def _names_in(topology: Topology | None) -> Iterator[str]:
    """Ids of subtopologies, and topics as often as they are named."""
    for each in () if topology is None else topology.subtopologies:
        yield each.subtopology_id
        yield from _topics_in(each)


def _topics_in(subtopology: Subtopology) -> Iterator[str]:
    yield from subtopology.source_topics
    yield from subtopology.repartition_sink_topics
    for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
        yield topic.name


def _topics_of(topology: Topology | None) -> list[str]:
    """Each name once."""
    subtopologies = () if topology is None else topology.subtopologies
    return list(dict.fromkeys(name for each in subtopologies for name in _topics_in(each)))


def _invalid(message: str) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, error_message=message)


# --- internal topics


async def _with_topics_created(
    node: Node,
    context: RequestContext,
    access: Access | None,
    answer: Deferred[StreamsBeat],
) -> StreamsGroupHeartbeatResponse:
    """Start the creation of the missing topics. The response says why topics cannot be created."""
    response, missing, endpoints = await answer
    if endpoints is not None:
        response.partitions_by_user_endpoint = await in_turns(endpoints)
    if not missing:
        return response
    if len(missing) > ASKED_A_STEP:
        await pause()  # the heartbeat may have been long already
    denied = await in_turns(_denied(access, missing))
    if denied:
        _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
        return response
    topics = [
        CreatableTopic(
            name=topic.name,
            num_partitions=topic.number_of_partitions,
            replication_factor=topic.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
        )
        for topic in missing.values()
    ]
    node.auto_create.create_streams_internal_topics(topics, context, 2 * response.heartbeat_interval_ms)
    errors = node.auto_create.streams_creation_errors(missing)
    if errors and any(status.status_code == MISSING_INTERNAL_TOPICS for status in response.status or ()):
        told = ", ".join([f"{name} ({error})" for name, error in list(errors.items())[:TOLD_ERRORS]])
        more = len(errors) - TOLD_ERRORS
        _add_detail(response, f"Creation failed: {told}{f' and {more} more' if more > 0 else ''}.")
    return response


def _denied(access: Access | None, names: Iterable[str]) -> Work[list[str]]:
    """The topics that the sender may not create."""
    if access is None or access.allows(
        AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, logs_denied=False
    ):
        return []
    creatable = RightToTopics(access, AclOperation.CREATE)
    denied = []
    pace = Pace(ASKED_A_STEP)
    for name in names:
        if not creatable.holds(name):
            denied.append(name)
        if pace.is_over():
            yield TURN_COST
    return denied


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    statuses = response.status = [] if response.status is None else response.status
    for status in statuses:
        if status.status_code == MISSING_INTERNAL_TOPICS:
            status.status_detail = f"{status.status_detail}; {detail}"
            return
    statuses.append(Status(status_code=MISSING_INTERNAL_TOPICS, status_detail=detail))


HANDLER = Handler(
    is_served=serves_streams_groups,
    function=streams_group_heartbeat,
    error_response=top_level_error(StreamsGroupHeartbeatResponse),
    asks_coordinators=True,
)
