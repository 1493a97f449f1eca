"""Share groups (KIP-932) in the coordinator: heartbeats, descriptions, the states of their share-partitions, and their
offsets.

The share coordinator is asked for a state after the group's record of it is committed, and beside the member's
answer. What became of it is written to the group. The offsets are those of the share coordinator. The lag needs the
end of each partition as well, which its leader has. Follows Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.core import OperationRefused, or_refused
from kafkacompat.deferred import Deferred, gather
from kafkacompat.faults import report
from kafkacompat.group.describe import describe_share_group
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.image_topics import with_topics_hashed
from kafkacompat.group.listing import describe_all
from kafkacompat.group.share.heartbeat import Beat, share_group_heartbeat, validate_heartbeat
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.state_partitions import NO_STATES
from kafkacompat.group.share.states import (
    Initialization,
    StartOffsets,
    alter_offsets,
    begin_deletion_of_offsets,
    begin_deletion_of_states,
    end_deletion_of_offsets,
    end_initialization,
    sort_out,
)
from kafkacompat.ids import NO_OFFSET, ZERO_UUID, TopicPartition, Uuid
from kafkacompat.share.service import (
    UNKNOWN_DELIVERY_COMPLETE_COUNT,
    ShareError,
    StateSummary,
    TopicIdPartition,
)
from kafkacompat.tasks import Tasks, in_turns, pause
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from kafkacompat.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.coordinator.shard import Shard
    from kafkacompat.group.network_partition_metadata_client import (
        EndOffset,
        EndOffsets,
        NetworkPartitionMetadataClient,
    )
    from kafkacompat.group.share.share_group_member import Partitions
    from kafkacompat.group.topics import Topics
    from kafkacompat.share.service import SharePersister
    from kafkacompat.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
    from kafkacompat.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
    from kafkacompat.wire.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequestTopic,
    )
    from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest


logger = logging.getLogger(__name__)

T = TypeVar("T")
Outcomes = Mapping[TopicIdPartition, "ShareError"]
Ask = Callable[[Sequence[TopicIdPartition]], Deferred[Outcomes]]

ASKED_AT_ONCE = 500
"""Share-partitions of which the share coordinator is asked in one step."""
ASKED_COST = 10
"""Cost of one of them, in microseconds."""
TAKEN_A_MICROSECOND = 3
"""Outcomes that are put together in a microsecond."""
INITIALIZING = "initializing states of a share group"


class ShareGroups:
    def __init__(
        self,
        shard_of: Callable[[str], Shard],
        is_active: Callable[[], bool],
        tasks: Tasks,
        persister: SharePersister,
    ) -> None:
        """`shard_of` raises OperationRefused."""
        self._shard_of = shard_of
        self.is_active = is_active
        self._tasks = tasks
        self.persister = persister

    # --- members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[ShareGroupHeartbeatResponse]:
        if (
            not self.is_active()
        ):  # a member must not be told that its request is bad while nobody can serve it
            return Deferred.of(_refused(OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        try:
            validate_heartbeat(request)
            shard = self._shard_of(request.group_id)
            beat = partial(self._beat, shard, request, context)
            answer = with_topics_hashed(
                shard, self._tasks, request.group_id, request.subscribed_topic_names, beat
            )
        except OperationRefused as refusal:
            return Deferred.of(_refused(refusal))
        return or_refused(answer.then(self._respond), _refused)

    def _beat(
        self, shard: Shard, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[Beat]:
        client_id, client_host = context.client_id or "", f"/{context.client_host}"
        return shard.write(
            lambda now_ms: share_group_heartbeat(
                machine_of(shard).env, request, client_id, client_host, now_ms
            )
        )

    def _respond(self, beat: Beat) -> ShareGroupHeartbeatResponse:
        begun = beat.initialization
        if begun is not None:
            self._tasks.start(INITIALIZING, self._initialize(begun))
        return beat.response

    def describe(
        self, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> Deferred[ShareGroupDescribeResponse]:
        return self._tasks.run("describing share groups", self._describe(request.group_ids))

    async def _describe(self, group_ids: Sequence[str]) -> ShareGroupDescribeResponse:
        described = await in_turns(
            describe_all(group_ids, self._shard_of, describe_share_group, _refused_description)
        )
        return ShareGroupDescribeResponse(groups=await gather(described))

    # --- states

    async def _initialize(self, begun: Initialization) -> None:
        """If one failed, all are initialized again by a later heartbeat: an initialization may be repeated."""
        await pause()  # the member is answered first
        if not self.is_active():
            return

        def ask(partitions: Sequence[TopicIdPartition]) -> Deferred[bool]:
            return self._ask_to_initialize(begun, partitions).then(_have_succeeded)

        group_id = begun.group_id
        try:
            asked = await in_turns(_asked(begun.start_offsets, ask))
            outcomes = await gather(asked)
            succeeded = all(outcomes)
        except Exception as error:
            report(f"initializing the state of share group {group_id[:64]}", error)
            succeeded = False
        await pause()  # the group may have tens of thousands of partitions
        if not self.is_active():
            return
        if not succeeded:
            logger.warning("the states of share group %s could not be initialized", group_id[:64])
        try:
            await self.end_initialization(group_id, begun.partitions, succeeded)
        except OperationRefused as refusal:
            # The group says still that they are being initialized, so whoever coordinates it asks again after a while.
            logger.warning("the states of share group %s could not be noted: %s", group_id[:64], refusal)

    async def ask_to_initialize(self, begun: Initialization) -> Outcomes:
        ask = partial(self._ask_to_initialize, begun)
        return await _ask_in_steps(begun.start_offsets, ask)

    def _ask_to_initialize(
        self, begun: Initialization, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Outcomes]:
        offsets = begun.start_offsets
        some = {each: offsets[each.topic_id][each.partition] for each in partitions}
        return self.persister.initialize(begun.group_id, begun.state_epoch, some)

    def end_initialization(self, group_id: str, partitions: Partitions, succeeded: bool) -> Deferred[None]:
        """Note what became of these in the group. Raises OperationRefused, or the Deferred fails with it."""
        shard = self._shard_of(group_id)
        return shard.write(
            lambda _: end_initialization(machine_of(shard).env, group_id, partitions, succeeded)
        )

    async def delete_states(self, group_id: str, partitions: Partitions) -> Outcomes:
        ask = partial(self.persister.delete, group_id)
        return await _ask_in_steps(partitions, ask)

    async def release(self, shard: Shard, group_id: str) -> None:
        """Delete the states of a group that is about to be deleted. Raises OperationRefused: then the group stays. For a group of
        another kind nothing is done and nothing awaited."""
        shard.require_active()
        if not isinstance(machine_of(shard).groups.get(group_id), ShareGroup):
            return
        partitions = await shard.write(lambda _: begin_deletion_of_states(machine_of(shard).env, group_id))
        if partitions:
            for outcome in (await self.delete_states(group_id, partitions)).values():
                if outcome.code is not ErrorCode.NONE:
                    raise OperationRefused(outcome.code, outcome.message)


async def _ask_in_steps(partitions: Mapping[Uuid, Collection[int]], ask: Ask) -> Outcomes:
    asked = await in_turns(_asked(partitions, ask))
    return await in_turns(_together(await gather(asked)))


def _asked(
    partitions: Mapping[Uuid, Collection[int]], ask: Callable[[Sequence[TopicIdPartition]], Deferred[T]]
) -> Generator[int, None, list[Deferred[T]]]:
    """Ask for some after the other."""
    answers = []
    some: list[TopicIdPartition] = []
    for topic_id, of_topic in partitions.items():
        for partition in sorted(of_topic):
            some.append(TopicIdPartition(topic_id, partition))
            if len(some) == ASKED_AT_ONCE:
                answers.append(ask(some))
                some = []
                yield ASKED_AT_ONCE * ASKED_COST
    if some:
        answers.append(ask(some))
    return answers


def _have_succeeded(outcomes: Outcomes) -> bool:
    return all(each.code is ErrorCode.NONE for each in outcomes.values())


def _together(pieces: list[Outcomes]) -> Generator[int, None, Outcomes]:
    found: dict[TopicIdPartition, ShareError] = {}
    for piece in pieces:
        found.update(piece)
        yield len(piece) // TAKEN_A_MICROSECOND
    return found


def _refused_description(group_id: str, refusal: OperationRefused) -> DescribedGroup:
    message = error_text(refusal.code) if group_id else None
    return DescribedGroup(group_id=group_id, error_code=refusal.code, error_message=message)


def _refused(refusal: OperationRefused) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


# --- offsets


TOLD_AT_ONCE = 500
"""Partitions of which the states are read together."""
TOLD_COST = 8
"""Cost of one of them, in microseconds."""

NO_STATE = StateSummary(leader_epoch=0)
"""Of a share-partition that is not initialized, as the share coordinator tells it."""
DELETED = ShareError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_text(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
DESCRIBING = "describing the offsets of share groups"
ALTERING = "altering the start offsets of a share group"
DELETING = "deleting the offsets of a share group"
Described = DescribeShareGroupOffsetsResponseGroup
Asked = Sequence[tuple[Uuid, str, Sequence[int]]]
"""(topic id, name, partitions)."""
Piece = tuple[Uuid, list[DescribeShareGroupOffsetsResponsePartition]]
"""Partitions of a topic."""


class ShareGroupOffsets:
    def __init__(
        self,
        groups: ShareGroups,
        shard_of: Callable[[str], Shard],
        topics: Callable[[], Topics],
        tasks: Tasks,
        ends: NetworkPartitionMetadataClient,
    ) -> None:
        """`shard_of` raises OperationRefused."""
        self._groups = groups
        self._shard_of = shard_of
        self._topics = topics
        self._tasks = tasks
        self._ends = ends

    # --- description

    def describe(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> Deferred[DescribeShareGroupOffsetsResponse]:
        return self._tasks.run(DESCRIBING, self._describe_all(request))

    async def _describe_all(
        self, request: DescribeShareGroupOffsetsRequest
    ) -> DescribeShareGroupOffsetsResponse:
        described = [self._tasks.run(DESCRIBING, self._describe(group)) for group in request.groups]
        return DescribeShareGroupOffsetsResponse(groups=await gather(described))

    async def _describe(self, group: DescribeShareGroupOffsetsRequestGroup) -> Described:
        try:
            return await self._describe_group(group)
        except OperationRefused as refusal:
            message = error_text(refusal.code)
            return Described(group_id=group.group_id, error_code=refusal.code, error_message=message)

    async def _describe_group(self, group: DescribeShareGroupOffsetsRequestGroup) -> Described:
        """Raises OperationRefused. Topics None: all that have a state. That is known to the group's coordinator only."""
        group_id = group.group_id
        if not self._groups.is_active():
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        topics = self._topics()
        if group.topics is None:
            if not group_id:
                # Kafka looks for it among the groups, and finds no partitions.
                return Described(group_id=group_id)
            shard = self._shard_of(group_id)
            asked = await shard.read(lambda: _with_states(shard, group_id, topics))
            return await self._read(group_id, asked, ())
        absent: list[DescribeShareGroupOffsetsResponseTopic] = []
        present: dict[Uuid, tuple[str, dict[int, None]]] = {}
        is_sound = bool(group_id)
        for topic in group.topics:
            known = topics.by_name.get(topic.topic_name)
            if known is None:
                absent.append(_absent(topic))
                continue
            is_sound = is_sound and bool(topic.partitions) and min(topic.partitions) >= 0
            # As in Kafka a partition that is named twice is told once.
            present.setdefault(known.id, (known.name, {}))[1].update(dict.fromkeys(topic.partitions))
        if present and not is_sound:
            # Kafka's persister refuses to read share-partitions that cannot be.
            raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        asked_for = [(topic_id, name, list(indexes)) for topic_id, (name, indexes) in present.items()]
        return await self._read(group_id, asked_for, absent)

    async def _read(
        self, group_id: str, asked: Asked, absent: Sequence[DescribeShareGroupOffsetsResponseTopic]
    ) -> Described:
        topics = {
            topic_id: DescribeShareGroupOffsetsResponseTopic(topic_id=topic_id, topic_name=name)
            for topic_id, name, _ in asked
        }
        pieces = await in_turns(self._in_pieces(group_id, asked))
        for topic_id, partitions in await gather(pieces):
            topics[topic_id].partitions += partitions
        return Described(group_id=group_id, topics=[*topics.values(), *absent])

    def _in_pieces(self, group_id: str, asked: Asked) -> Generator[int, None, list[Deferred[Piece]]]:
        pieces: list[Deferred[Piece]] = []
        for topic_id, name, partitions in asked:
            for start in range(0, max(len(partitions), 1), TOLD_AT_ONCE):
                some = partitions[start : start + TOLD_AT_ONCE]
                pieces.append(self._tasks.run(DESCRIBING, self._tell(group_id, topic_id, name, some)))
                yield 20 + len(some) * TOLD_COST
        return pieces

    async def _tell(self, group_id: str, topic_id: Uuid, name: str, partitions: Sequence[int]) -> Piece:
        """A partition that the topic does not have is told like one without a state. Kafka tells so as well, but asks the
        share coordinator for it during half a minute."""
        topic = self._topics().by_id.get(topic_id)
        count = 0 if topic is None else len(topic.partitions)
        keys = [TopicIdPartition(topic_id, index) for index in partitions if index < count]
        summaries = await self._groups.persister.read_summary(group_id, keys)
        by_index = {key.partition: summary for key, summary in summaries.items()}
        wanted = [TopicPartition(name, index) for index, each in by_index.items() if _has_lag(each)]
        ended: EndOffsets = await self._ends.latest(wanted) if wanted else {}
        if topic_id not in self._topics().by_id:
            # It was deleted meanwhile. The ends may be those of another topic with its name.
            by_index, ended = {}, {}
        return topic_id, [
            _told(index, by_index.get(index, NO_STATE), ended.get(TopicPartition(name, index)))
            for index in partitions
        ]

    # --- new start offsets

    def alter(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> Deferred[AlterShareGroupOffsetsResponse]:
        return self._tasks.run(ALTERING, self._alter(request))

    async def _alter(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        group_id = request.group_id
        try:
            asked = await in_turns(sort_out(self._topics(), request))
            shard = self._shard_of(group_id)
            begun = await shard.write(lambda _: alter_offsets(machine_of(shard).env, group_id, asked))
            return await self._initialize(shard, asked, begun)
        except OperationRefused as refusal:
            message = refusal.message or error_text(refusal.code)
            return AlterShareGroupOffsetsResponse(error_code=refusal.code, error_message=message)

    async def _initialize(
        self, shard: Shard, asked: StartOffsets, begun: Initialization
    ) -> AlterShareGroupOffsetsResponse:
        """A start offset that is told as altered stays. So the group notes it first, also if others are refused: states
        that the group only began to make are made anew by its next member, without a start offset."""
        group = machine_of(shard).groups.get(begun.group_id)
        share_group = group if isinstance(group, ShareGroup) else None
        if share_group is not None:
            share_group.alterations += 1
        try:
            outcomes = await self._groups.ask_to_initialize(begun)
        finally:
            if share_group is not None:
                share_group.alterations -= 1
        made = _made(outcomes)
        if made:
            await self._groups.end_initialization(begun.group_id, made, succeeded=True)
        response = AlterShareGroupOffsetsResponse(responses=asked.answers)
        return await in_turns(_note_errors(response, outcomes))

    # --- deletion

    def delete(
        self, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> Deferred[DeleteShareGroupOffsetsResponse]:
        return self._tasks.run(DELETING, self._delete(request))

    async def _delete(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        names = [topic.topic_name for topic in request.topics]
        try:
            return DeleteShareGroupOffsetsResponse(
                responses=await self._delete_topics(request.group_id, names)
            )
        except OperationRefused as refusal:
            message = refusal.message or error_text(refusal.code)
            return DeleteShareGroupOffsetsResponse(error_code=refusal.code, error_message=message)

    async def _delete_topics(
        self, group_id: str, names: Sequence[str]
    ) -> list[DeleteShareGroupOffsetsResponseTopic]:
        """Raises OperationRefused."""
        shard = self._shard_of(group_id)
        begun = await shard.write(lambda _: begin_deletion_of_offsets(machine_of(shard).env, group_id, names))
        answers = list(begun.refused)
        if not begun.partitions:
            return answers
        outcomes = await self._groups.delete_states(group_id, begun.partitions)
        by_id = self._topics().by_id
        failures = {
            key.topic_id: each.code for key, each in outcomes.items() if each.code is not ErrorCode.NONE
        }
        answers += [
            DeleteShareGroupOffsetsResponseTopic(
                topic_id=topic_id,
                topic_name="" if (topic := by_id.get(topic_id)) is None else topic.name,
                error_code=code,
                error_message=error_text(code),
            )
            for topic_id, code in failures.items()
        ]
        deleted = [topic_id for topic_id in begun.partitions if topic_id not in failures]
        if not deleted:
            return answers
        shard = self._shard_of(group_id)
        done = await shard.write(lambda _: end_deletion_of_offsets(machine_of(shard).env, group_id, deleted))
        return [*done, *answers]


# --- description


def _with_states(shard: Shard, group_id: str, topics: Topics) -> Asked:
    group = machine_of(shard).groups.get(group_id)
    states = group.states if isinstance(group, ShareGroup) else None
    return [
        (topic_id, topic.name, sorted(each.partitions))
        for topic_id, each in (states or NO_STATES).initialized.items()
        if (topic := topics.by_id.get(topic_id)) is not None
    ]


def _absent(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=NO_OFFSET)
            for index in topic.partitions
        ],
    )


def _has_lag(summary: StateSummary) -> bool:
    return (
        summary.error.code is ErrorCode.NONE
        and summary.start_offset != NO_OFFSET
        and summary.delivery_complete_count != UNKNOWN_DELIVERY_COMPLETE_COUNT
    )


def _told(
    index: int, summary: StateSummary, end: EndOffset | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """`end` is None if there is no lag to tell. A state that cannot be read is told like one that does not exist."""
    told = DescribeShareGroupOffsetsResponsePartition(partition_index=index)
    if end is not None and end.code != ErrorCode.NONE:
        told.error_code, told.error_message = end.code, error_text(end.code)
    elif summary.error.code is not ErrorCode.NONE:
        told.start_offset = NO_OFFSET
    else:
        told.start_offset, told.leader_epoch = summary.start_offset, summary.leader_epoch
        if end is not None:
            told.lag = _as_long(end.offset - summary.start_offset - summary.delivery_complete_count)
    return told


def _as_long(number: int) -> int:
    """As Java's arithmetic has it. A start offset may be any number, and one group must not spoil the answer for others."""
    return (number + 2**63) % 2**64 - 2**63


def _made(outcomes: Outcomes) -> Partitions:
    """The partitions that have a state now."""
    made: dict[Uuid, set[int]] = {}
    for key, outcome in outcomes.items():
        if outcome.code is ErrorCode.NONE:
            made.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(each) for topic_id, each in made.items()}


def _note_errors(
    response: AlterShareGroupOffsetsResponse, outcomes: Outcomes
) -> Generator[int, None, AlterShareGroupOffsetsResponse]:
    """The response with what became of each partition. Those of a topic that was deleted meanwhile have no outcome."""
    for topic in response.responses:
        for start in range(0, len(topic.partitions), TOLD_AT_ONCE):
            some = topic.partitions[start : start + TOLD_AT_ONCE]
            for each in some:
                if each.error_code == ErrorCode.NONE:
                    outcome = outcomes.get(TopicIdPartition(topic.topic_id, each.partition_index), DELETED)
                    each.error_code, each.error_message = outcome.code, outcome.message
            yield len(some)
    return response
