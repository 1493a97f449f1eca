"""ConsumerGroupHeartbeat (KIP-848) in the coordinator, and the topics that the groups' shards see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.controller.image import changed_topics
from kafkacompat.coordinator.core import OperationRefused, or_refused
from kafkacompat.deferred import Deferred
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.heartbeat import (
    HeartbeatCaller,
    Part,
    SteadyHeartbeat,
    consumer_group_heartbeat,
    steady_heartbeat,
    validate_heartbeat,
)
from kafkacompat.group.modern_group import hash_topics
from kafkacompat.group.sweeps import machine_of
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage, TopicImage
    from kafkacompat.coordinator.shard import Shard
    from kafkacompat.group.consumer.regular_expressions import MayDescribe
    from kafkacompat.group.topics import Topic
    from kafkacompat.ids import Uuid
    from kafkacompat.tasks import Tasks, Work
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

HASHED_AT_ONCE = 500
"""Topics of a member that are hashed within its heartbeat, at 6 microseconds each."""
TOPICS_TOGETHER = 200
"""Topics with other racks that the shards are told of together."""
TOPICS_TOGETHER_COST = 20
"""Cost of telling one shard."""
PARTITIONS_A_MICROSECOND = 3
"""Partitions whose replicas are looked at in a microsecond."""
JOINS_AT_ONCE = 2_000
"""Topics of a lone member that joins within one step, at up to 10 microseconds each."""


def heartbeat(
    shard_of: Callable[[str], Shard],
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    assignors: Sequence[str],
    may_describe: MayDescribe | None,
    is_active: bool,
    tasks: Tasks,
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    """`shard_of` raises OperationRefused. Kafka gives no message with an error of the coordinator itself."""
    if not is_active:  # a member must not be told that its request is bad while nobody can serve it
        return Deferred.of(_refused(OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    caller = HeartbeatCaller(context.client_id or "", f"/{context.client_host}", may_describe)
    try:
        validate_heartbeat(request, context.api_version, assignors)
        shard = shard_of(request.group_id)
        answer = _written(shard, request, caller, tasks)
    except OperationRefused as refusal:
        return Deferred.of(_refused(refusal))
    answer = or_refused(answer, _refused)
    if answer.done and may_describe is None:
        steady = steady_heartbeat(machine_of(shard).env, request, caller, answer.result())
        if steady is not None:
            context.again = partial(_again, shard_of, steady)
    return answer


def _written(
    shard: Shard, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, tasks: Tasks
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    """The answer to a heartbeat, in steps if it names many topics."""
    names = request.subscribed_topic_names
    if names is None or len(names) <= HASHED_AT_ONCE:
        return shard.write(
            lambda now_ms: consumer_group_heartbeat(machine_of(shard).env, request, caller, now_ms)
        )
    shard.require_active()
    return tasks.run("a heartbeat with many topics", _written_in_parts(shard, request, caller, names))


async def _written_in_parts(
    shard: Shard, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, names: Sequence[str]
) -> ConsumerGroupHeartbeatResponse:
    """A member that is alone gets the partitions of all its topics at once, so its joining is written in parts. Others are assigned
    beside the requests anyway. Raises OperationRefused."""
    env = machine_of(shard).env
    await in_turns(hash_topics(env, names))
    group = env.groups.get(request.group_id)
    is_alone = group is None or (isinstance(group, ConsumerGroup) and not group.members)
    # Each part repeats the request. A static member that joined would be refused, as its own twin.
    may_repeat = request.member_epoch == 0 and request.member_id and request.instance_id is None
    if len(names) > JOINS_AT_ONCE and is_alone and may_repeat:
        for part in (Part.MEMBER, Part.TARGET):
            if part is Part.TARGET:
                _require_member(shard, request)
            partly = replace(caller, part=part)
            written = shard.write(
                lambda now_ms, partly=partly: consumer_group_heartbeat(env, request, partly, now_ms)  # type: ignore[misc]
            )
            if written.done:
                written.result()
            await pause()
        _require_member(shard, request)
    return await shard.write(
        lambda now_ms: consumer_group_heartbeat(machine_of(shard).env, request, caller, now_ms)
    )


def _require_member(shard: Shard, request: ConsumerGroupHeartbeatRequest) -> None:
    """Between two parts it may have left, the group may have been deleted, or another node leads the shard. Raises
    OperationRefused."""
    shard.require_active()
    group = machine_of(shard).groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    group.member(request.member_id)


def _again(shard_of: Callable[[str], Shard], steady: SteadyHeartbeat) -> bool:
    try:
        shard = shard_of(steady.group_id)
    except OperationRefused:
        return False
    return shard.at_once(lambda now_ms: steady.again(machine_of(shard).env, now_ms))


def _refused(refusal: OperationRefused) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


# --- topics


class ImageTopics:
    """Topics of a metadata image."""

    __slots__ = ("_brokers", "_has_racks", "by_id", "by_name", "version")

    def __init__(self, image: MetadataImage) -> None:
        self.version = image.offset
        self.by_name: Mapping[str, Topic] = image.topics
        self.by_id: Mapping[Uuid, Topic] = image.topics_by_id
        self._brokers = image.brokers
        self._has_racks = any(broker.rack is not None for broker in image.brokers.values())

    def racks(self, topic: Topic) -> list[list[str]]:
        brokers = self._brokers
        if not self._has_racks:
            return [[]] * len(topic.partitions)
        return [
            [
                broker.rack
                for replica in topic.partitions[index].replicas
                if (broker := brokers.get(replica)) is not None and broker.rack is not None
            ]
            for index in range(len(topic.partitions))
        ]


def names_of_changed_topics(old: MetadataImage, new: MetadataImage) -> tuple[set[str], bool]:
    """The names of topics that were created, deleted, or have other partitions or replicas, and whether any is new."""
    changed = set()
    has_new = False
    for former, topic in changed_topics(old, new):
        if topic is None:
            assert former is not None
            changed.add(former.name)
        elif former is None:
            changed.add(topic.name)
            has_new = True
        elif _differs(former, topic):
            changed.add(topic.name)
    return changed, has_new


def _differs(old: TopicImage, new: TopicImage) -> bool:
    return len(old.partitions) != len(new.partitions) or any(
        old.partitions[index].replicas != partition.replicas for index, partition in new.partitions.items()
    )


def brokers_with_other_racks(old: MetadataImage, new: MetadataImage) -> frozenset[int]:
    """Brokers whose rack has changed. Racks are part of a group's metadata hash."""
    if old.brokers is new.brokers or not old.topics:
        return frozenset()
    before = {(broker.id, broker.rack) for broker in old.brokers.values() if broker.rack is not None}
    now = {(broker.id, broker.rack) for broker in new.brokers.values() if broker.rack is not None}
    return frozenset([broker_id for broker_id, _ in before ^ now])


def look_at_topics_on(
    brokers: frozenset[int],
    image: MetadataImage,
    shards: Iterable[Shard],
    topics: Callable[[], ImageTopics],
) -> Work[None]:
    """Have the groups look again at the topics of the image that have replicas on these brokers. `topics` gives the present
    ones."""
    found: set[str] = set()
    for topic in list(image.topics.values()):
        if any(not brokers.isdisjoint(each.replicas) for each in topic.partitions.values()):
            found.add(topic.name)
        yield 1 + len(topic.partitions) // PARTITIONS_A_MICROSECOND
        if len(found) == TOPICS_TOGETHER:
            yield _look_at(found, shards, topics())
            found = set()
    if found:
        yield _look_at(found, shards, topics())


def _look_at(names: set[str], shards: Iterable[Shard], topics: ImageTopics) -> int:
    """Returns the cost."""
    cost = 0
    for shard in shards:
        machine_of(shard).on_topics(topics, names, has_new=False)
        cost += TOPICS_TOGETHER_COST
    return cost
