"""Share groups (KIP-932) in the coordinator: heartbeats, descriptions, and the states of their share-partitions.

The share coordinator is asked for a state after the group's record of it is committed, and beside the member's answer.
What became of it is written to the group. Follows Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.core import Refused
from kafkacompat.coordinator.refusals import or_refused
from kafkacompat.deferred import Deferred, gather
from kafkacompat.faults import report
from kafkacompat.group.listing import describe_all
from kafkacompat.group.metadata_hash import hash_topics
from kafkacompat.group.share.describe import describe_share_group
from kafkacompat.group.share.heartbeat import Beat, share_group_heartbeat
from kafkacompat.group.share.initialization import Initialization, end_initialization
from kafkacompat.group.share.offsets import begin_deletion_of_states
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.validation import validate_heartbeat
from kafkacompat.group.sweeps import machine_of
from kafkacompat.share.service import TopicIdPartition
from kafkacompat.tasks import Tasks, in_turns, pause
from kafkacompat.wire.error_texts import error_text
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_describe_response import (
    DescribedGroup,
    ShareGroupDescribeResponse,
)
from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.coordinator.shard import Shard
    from kafkacompat.group.share.member import Partitions
    from kafkacompat.ids import Uuid
    from kafkacompat.share.service import ShareError, SharePersister
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
HASHED_AT_ONCE = 500
"""Topics of a member that are hashed within its heartbeat, at 6 microseconds each."""
INITIALIZING = "initializing states of a share group"


class ShareGroups:
    """`persister` is None until the broker's parts are connected. Then share groups are not served."""

    def __init__(
        self,
        shard_of: Callable[[str], Shard],
        is_active: Callable[[], bool],
        tasks: Tasks,
    ) -> None:
        """`shard_of` raises Refused."""
        self._shard_of = shard_of
        self.is_active = is_active
        self._tasks = tasks
        self.persister: SharePersister | None = None

    # --- members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[ShareGroupHeartbeatResponse]:
        if (
            not self.is_active()
        ):  # a member must not be told that its request is bad while nobody can serve it
            return Deferred.of(_refused(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        try:
            validate_heartbeat(request)
            shard = self._shard_of(request.group_id)
            names = request.subscribed_topic_names
            if names is None or len(names) <= HASHED_AT_ONCE:
                answer = self._beat(shard, request, context)
            else:
                shard.require_active()
                what = "a heartbeat with many topics"
                answer = self._tasks.run(what, self._beat_with(names, shard, request, context))
        except Refused as refusal:
            return Deferred.of(_refused(refusal))
        return or_refused(answer.then(self._respond), _refused)

    async def _beat_with(
        self,
        names: Sequence[str],
        shard: Shard,
        request: ShareGroupHeartbeatRequest,
        context: RequestContext,
    ) -> Beat:
        await in_turns(hash_topics(machine_of(shard).env, names))
        return await self._beat(shard, request, context)

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
        except Refused as refusal:
            # The group says still that they are being initialized, so whoever coordinates it asks again after a while.
            logger.warning("the states of share group %s could not be noted: %s", group_id[:64], refusal)

    async def ask_to_initialize(self, begun: Initialization) -> Outcomes:
        ask = partial(self._ask_to_initialize, begun)
        return await _ask_in_steps(begun.start_offsets, ask)

    def _ask_to_initialize(
        self, begun: Initialization, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Outcomes]:
        persister, offsets = self.persister, begun.start_offsets
        assert persister is not None
        some = {each: offsets[each.topic_id][each.partition] for each in partitions}
        return persister.initialize(begun.group_id, begun.state_epoch, some)

    def end_initialization(self, group_id: str, partitions: Partitions, succeeded: bool) -> Deferred[None]:
        """Note what became of these in the group. Raises Refused, or the Deferred fails with it."""
        shard = self._shard_of(group_id)
        return shard.write(
            lambda _: end_initialization(machine_of(shard).env, group_id, partitions, succeeded)
        )

    async def delete_states(self, group_id: str, partitions: Partitions) -> Outcomes:
        persister = self.persister
        assert persister is not None
        ask = partial(persister.delete, group_id)
        return await _ask_in_steps(partitions, ask)

    async def release(self, shard: Shard, group_id: str) -> None:
        """Delete the states of a group that is about to be deleted. Raises Refused: then the group stays. For a group of
        another kind nothing is done and nothing awaited."""
        shard.require_active()
        if not isinstance(machine_of(shard).groups.get(group_id), ShareGroup):
            return
        partitions = await shard.write(lambda _: begin_deletion_of_states(machine_of(shard).env, group_id))
        if partitions:
            for outcome in (await self.delete_states(group_id, partitions)).values():
                if outcome.code is not ErrorCode.NONE:
                    raise Refused(outcome.code, outcome.message)


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


def _refused_description(group_id: str, refusal: Refused) -> DescribedGroup:
    message = error_text(refusal.code) if group_id else None
    return DescribedGroup(group_id=group_id, error_code=refusal.code, error_message=message)


def _refused(refusal: Refused) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
