"""The group coordinator of this node: GroupService.

It finds the shard of a group, checks the request, runs the operation there, and puts errors in each response. Requests of
the classic protocol are for classic groups, and for consumer groups with classic members. Long work of the groups of a
shard is carried out beside its requests, and its result comes back as an operation (StepTasks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.config.group import GroupConfigManager
from kafkacompat.controller.image import MetadataImage
from kafkacompat.coordinator.core import Caller, CoordinatorResult, OperationRefused, or_refused
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.coordinator.shard import Shard, ShardSettings, ShardState, ShardTimers
from kafkacompat.coordinator.shards import Shards
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred, gather
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.classic.members import JoinCaller, heartbeat, join, leave, sync
from kafkacompat.group.classic.rebalance import join_refusal
from kafkacompat.group.consumer.classic_members import (
    heartbeat_of_classic_member,
    join_consumer_group,
    leave_consumer_group,
    sync_consumer_group,
)
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.heartbeat import (
    HeartbeatCaller,
    Part,
    consumer_group_heartbeat,
    steady_heartbeat,
    validate_heartbeat,
)
from kafkacompat.group.describe import describe_consumer_group, describe_group
from kafkacompat.group.environment import (
    DEFAULT_GROUPS_BYTES,
    MEMBER_BYTES_MAX,
    GroupSettings,
    group_memory,
    may_begin_member_id,
)
from kafkacompat.group.group_metadata_manager import GroupMetadataManager, machine_of
from kafkacompat.group.image_topics import (
    HASHED_AT_ONCE,
    ImageTopics,
    brokers_with_other_racks,
    look_at_topics,
    look_at_topics_on,
    names_of_changed_topics,
)
from kafkacompat.group.listing import describe_all, list_all
from kafkacompat.group.meters import GroupMeters
from kafkacompat.group.modern_group import hash_topics, names_to_hash
from kafkacompat.group.offset_metadata_manager import (
    CommitRecords,
    SeenOffsets,
    commit_offsets,
    commit_plainly,
    see_offsets,
    tell_offsets,
)
from kafkacompat.group.service import commit_refusal
from kafkacompat.group.share_groups import ShareGroupOffsets, ShareGroups
from kafkacompat.group.streams.streams_group import StreamsGroup
from kafkacompat.group.streams_groups import StreamsGroups
from kafkacompat.group.sweeps import GroupSweeps
from kafkacompat.group.transactional_offsets import TransactionalOffsets
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from kafkacompat.wire.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkacompat.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.config.keys import Settings
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.services import TransactionVerifier
    from kafkacompat.coordinator.shard import Shard, ShardTimers, TimerKey
    from kafkacompat.group.consumer.regular_expressions import MayDescribe
    from kafkacompat.group.environment import Environment, GroupResult, GroupSettings
    from kafkacompat.group.network_partition_metadata_client import NetworkPartitionMetadataClient
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.group.service import CommitShape, PlainCommit
    from kafkacompat.ids import Uuid
    from kafkacompat.ports import Random
    from kafkacompat.share.service import SharePersister
    from kafkacompat.tasks import Tasks, Work
    from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
    from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
    from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
    from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
    from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
    from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest
    from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse
    from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
    from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse
    from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest
    from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest
    from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
    from kafkacompat.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

T = TypeVar("T")

ABSENT_GROUP_ON_DESCRIBE_SINCE = 6
KNOWN_MEMBER_ID_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOLS_MAX = 100
"""Protocols of one member. Each rebalance examines those of all members. Clients name one to five."""
JOINS_AT_ONCE = 2_000
"""Topics of a lone member that joins, or gets a new target, within one step, at up to 10 microseconds each."""
BASE_SEQUENCE = 0
"""The first sequence number of every batch in the offsets topic, as in Kafka. Batches of the transaction topic have none."""
GROUPS_AT_ONCE = 200
"""The most groups, over all shards, for which offsets of deleted topics are searched in one step."""
DELETED_A_MICROSECOND = 2
"""Deleted topics that one shard keeps."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """`group` is for the groups, the rest for the runtime. Times in ms, sizes in bytes."""

    group: GroupSettings = field(default_factory=GroupSettings)
    commit_timeout_ms: int = 5_000
    retention_check_interval_ms: int = 600_000
    compression: int = 0
    """offsets.topic.compression.codec, as in a batch's attributes."""
    load_step_bytes: int = LOAD_STEP_BYTES
    groups_max_bytes: int = DEFAULT_GROUPS_BYTES

    @classmethod
    def from_config(cls, config: Settings) -> CoordinatorSettings:
        """The settings in force at the start. As in Kafka, none of them is dynamic."""
        return cls(
            group=GroupSettings.from_config(config),
            commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
            compression=config.get_int("offsets.topic.compression.codec"),
            load_step_bytes=min(config.get_int("offsets.load.buffer.size"), LOAD_STEP_BYTES),
            groups_max_bytes=config.get_int("group.coordinator.max.bytes"),
        )


@dataclass(frozen=True, slots=True)
class GroupServices:
    """What the group coordinator has of its node besides what every coordinator has."""

    random: Random
    effective: Callable[[], Settings]
    """The node's settings as they are now, for groups without settings of their own."""
    persister: SharePersister
    ends: NetworkPartitionMetadataClient
    verifier: Callable[[], TransactionVerifier | None]
    """It asks the transaction coordinator, whose markers this coordinator writes: so each of them is asked for when it is needed.
    None: nothing is verified."""


class GroupCoordinator:
    def __init__(
        self, services: CoordinatorServices, of_groups: GroupServices, settings: CoordinatorSettings
    ) -> None:
        """Serves nothing before `start`."""
        self._configs = GroupConfigManager(of_groups.effective, self._overrides)
        self._tasks = tasks = services.tasks
        self._random = of_groups.random
        self._settings = settings
        self.meters = GroupMeters(services.clock)
        self.commit_metadata_max = settings.group.offset_metadata_max_size
        self.commit_shapes: dict[bytes, CommitShape | int] = {}
        self._sweeps = GroupSweeps(services.clock, self.meters, tasks)
        self._shards = Shards(
            services,
            ShardSettings(
                OFFSETS_TOPIC,
                settings.commit_timeout_ms,
                settings.compression,
                BASE_SEQUENCE,
                settings.load_step_bytes,
            ),
            self._make_machine,
            self._sweeps.drop_topics,
        )
        self.load_times = self._shards.load_times
        self.transactional_offsets = TransactionalOffsets(
            services.partitions,
            services.clock,
            self._shard,
            self._shard_at,
            self.meters,
            tasks,
            of_groups.verifier,
        )
        self.share = ShareGroups(self._shard, self.is_active, tasks, of_groups.persister)
        self.share_offsets = ShareGroupOffsets(
            self.share, self._shard, lambda: self._topics, tasks, of_groups.ends
        )
        self.streams = StreamsGroups(self._shard, self.is_active, tasks)
        self._memory = group_memory(settings.groups_max_bytes)
        self._active = False
        self._image = MetadataImage()
        self._topics = ImageTopics(self._image)

    # --- life

    def start(self) -> None:
        self._active = True
        self._sweeps.start(self._shards, self._settings.retention_check_interval_ms)

    def stop(self) -> None:
        """Answer all parked requests and stop serving."""
        self._active = False
        self._sweeps.stop()
        self._shards.close()

    def shard_states(self) -> list[str]:
        return self._shards.states()

    def group_states(self) -> Iterator[tuple[str, str]]:
        """Type and state of each group of the shards that are loaded, as the protocol names them."""
        for shard in self._shards:
            if shard.state is ShardState.ACTIVE:
                for group in list(machine_of(shard).groups.values()):
                    yield group.kind.value, group.state_name

    def offset_count(self) -> int:
        """How many offsets the groups have committed, in the shards that are loaded."""
        active = [shard for shard in self._shards if shard.state is ShardState.ACTIVE]
        return sum(machine_of(shard).offsets.count for shard in active)

    def is_active(self) -> bool:
        return self._active

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partition service has applied the same image, because that must know the logs it leads."""
        self._image = new
        if old.topics is not new.topics or old.brokers is not new.brokers:
            self._topics = ImageTopics(new)
        self._shards.on_image(old, new)
        moved = brokers_with_other_racks(old, new)
        if old.topics is new.topics and not moved:
            return
        changed, has_new = names_of_changed_topics(old, new)
        for shard in self._shards:
            machine_of(shard).on_topics(self._topics, set(), has_new)
        self._tasks.start("looking at changed topics", self._look_at_topics(changed))
        if moved:
            look = self._look_at_topics_on(moved)
            self._tasks.start("looking at topics with other racks", look)
        deleted = {
            name: topic.id
            for name in changed
            if (topic := old.topics.get(name)) is not None
            and topic.id not in new.topics_by_id
            and name != OFFSETS_TOPIC
        }
        if deleted:
            ends = {shard.partition: shard.end_offset for shard in self._shards.with_state()}
            what = "telling the groups' partitions of deleted topics"
            self._tasks.start(what, self._drop_topics(deleted, ends))

    async def _look_at_topics(self, names: Sequence[str]) -> None:
        await in_turns(look_at_topics(names, self._shards, lambda: self._topics))

    async def _drop_topics(self, deleted: dict[str, Uuid], ends: Mapping[int, int]) -> None:
        """`ends`: where each partition ended when the topics were deleted. There may be very many topics."""
        groups = 0
        for partition, end_offset in ends.items():
            shard = self._shards.get(partition)
            if shard is not None:
                self._sweeps.drop_topics(shard, deleted, end_offset, now=groups < GROUPS_AT_ONCE)
                groups += len(machine_of(shard).groups)
                await pause(len(deleted) // DELETED_A_MICROSECOND)

    async def _look_at_topics_on(self, moved: frozenset[int]) -> None:
        await in_turns(look_at_topics_on(moved, self._image, self._shards, lambda: self._topics))

    def partition_for(self, group_id: str) -> int:
        """Raises OperationRefused COORDINATOR_NOT_AVAILABLE while the offsets topic does not exist."""
        return self._shards.partition_for(group_id)

    def _make_machine(self, partition: int, epoch: int, timers: ShardTimers) -> GroupMetadataManager:
        tasks = StepTasks(self._tasks, timers)
        machine = GroupMetadataManager(
            self._settings.group, self._configs, timers, tasks, self._random, self._memory, self.meters
        )
        machine.on_topics(self._topics, set(), has_new=False)
        former = self._shards.get(partition)
        if former is not None:  # there was no memory, so the partition is loaded anew
            deleting = machine_of(former).offsets.deleting
            machine.offsets.deleting.update({name: dict(ids) for name, ids in deleting.items()})
        return machine

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self._image.config(ConfigResourceType.GROUP, group_id)

    # --- membership

    def join_group(
        self, request: JoinGroupRequest, context: RequestContext, may_describe: MayDescribe | None = None
    ) -> Deferred[JoinGroupResponse]:
        if not self._active:
            return Deferred.of(join_refusal(request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        error = _join_refused(self._settings.group, request, context.client_id or "")
        if error is not None:
            return Deferred.of(join_refusal(request.member_id, error))

        def operation(told: Caller, now_ms: int) -> GroupResult:
            caller = JoinCaller(
                caller=told,
                protocols=tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
                client_id=context.client_id or "",
                client_host=f"/{context.client_host}",
                requires_known_member_id=context.api_version >= KNOWN_MEMBER_ID_SINCE,
                can_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
                connection_id=context.connection_id,
                may_describe=may_describe,
            )
            env = machine_of(shard).env
            group = env.groups.get(request.group_id)
            if group is None or isinstance(group, ClassicGroup):
                return join(env, request, caller, now_ms)
            if group.is_dead():
                raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if group.is_empty() and isinstance(group, (ConsumerGroup, StreamsGroup)):
                return join(env, request, caller, now_ms)
            if not isinstance(group, ConsumerGroup):
                raise OperationRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return join_consumer_group(env, group, request, caller, now_ms)

        def refused(refusal: OperationRefused) -> JoinGroupResponse:
            # Kafka names the member only in refusals from before the lookup of the coordinator.
            return join_refusal("", refusal.code)

        try:
            shard = self._shard(request.group_id)
            return or_refused(shard.ask(operation), refused)
        except OperationRefused as refusal:
            return Deferred.of(refused(refusal))

    def sync_group(self, request: SyncGroupRequest, context: RequestContext) -> Deferred[SyncGroupResponse]:
        def operation(caller: Caller, now_ms: int) -> GroupResult:
            env = machine_of(shard).env
            group = env.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup) and not group.is_empty():
                return sync_consumer_group(env, group, request, caller)
            return sync(env, request, caller)

        def refused(refusal: OperationRefused) -> SyncGroupResponse:
            return SyncGroupResponse(error_code=refusal.code)

        try:
            shard = self._shard(request.group_id)
            return or_refused(shard.ask(operation), refused)
        except OperationRefused as refusal:
            return Deferred.of(refused(refusal))

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> Deferred[HeartbeatResponse]:
        def operation() -> HeartbeatResponse:
            env = machine_of(shard).env
            group = env.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                return HeartbeatResponse(error_code=heartbeat_of_classic_member(env, group, request))
            return HeartbeatResponse(error_code=heartbeat(env, request))

        try:
            shard = self._shard(request.group_id)
            answer = shard.read(operation)
        except OperationRefused as refusal:
            if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Members of a loading group keep their assignments and continue.
                return Deferred.of(HeartbeatResponse())
            return Deferred.of(HeartbeatResponse(error_code=refusal.code))
        if (
            answer.done
            and not answer.has_failed
            and answer.result().error_code is NONE
            and machine_of(shard).env.classic_group(request.group_id) is not None
        ):
            # If that is refused, it has no effect but one that the usual way, which is next, has as well.
            context.again = partial(
                _again, self._shard, request.group_id, lambda env, now_ms: heartbeat(env, request) is NONE
            )
        return or_refused(answer, lambda refusal: HeartbeatResponse(error_code=refusal.code))

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> Deferred[LeaveGroupResponse]:
        """`request.members` has the batched form in every client version."""

        def operation(now_ms: int) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
            env = machine_of(shard).env
            group = env.groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                return leave_consumer_group(env, group, request.members, now_ms)
            return leave(env, request.group_id, request.members, now_ms)

        def refused(refusal: OperationRefused) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=refusal.code)

        try:
            shard = self._shard(request.group_id)
            answer = shard.write(operation)
        except OperationRefused as refusal:
            return Deferred.of(refused(refusal))
        return or_refused(answer, refused)

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        may_describe: MayDescribe | None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """Kafka gives no message with an error of the coordinator itself."""
        if not self._active:  # a member must not be told that its request is bad while nobody can serve it
            return Deferred.of(_refused_heartbeat(OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        caller = HeartbeatCaller(context.client_id or "", f"/{context.client_host}", may_describe)
        try:
            validate_heartbeat(request, context.api_version, self._settings.group.consumer.assignors)
            shard = self._shard(request.group_id)
            answer = _heartbeat_written(shard, request, caller, self._tasks)
        except OperationRefused as refusal:
            return Deferred.of(_refused_heartbeat(refusal))
        answer = or_refused(answer, _refused_heartbeat)
        if answer.done and may_describe is None:
            steady = steady_heartbeat(machine_of(shard).env, request, caller, answer.result())
            if steady is not None:
                context.again = partial(_again, self._shard, request.group_id, steady.again)
        return answer

    # --- offsets

    def offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Deferred[OffsetCommitResponse]:
        try:
            shard = self._shard(request.group_id, may_be_empty=True)
            answer = shard.write(
                lambda now_ms: self.meters.committed(
                    commit_offsets(machine_of(shard).offsets, request, context.api_version, now_ms)
                )
            )
        except OperationRefused as refusal:
            return Deferred.of(commit_refusal(request, refusal.code))
        return or_refused(answer, lambda refusal: commit_refusal(request, refusal.code))

    def plain_commit(self, commit: PlainCommit) -> Deferred[ErrorCode]:
        shape = commit.shape
        request, records = shape.request, shape.records
        if records is None:
            records = shape.records = CommitRecords(request)

        def operation(now_ms: int) -> CoordinatorResult[GroupRecord, ErrorCode]:
            offsets = machine_of(shard).offsets
            numbers = commit.offsets, commit.leader_epochs
            result = commit_plainly(offsets, request, shape.version, now_ms, records, *numbers)
            return self.meters.committed(result, len(commit.offsets))

        try:
            shard = self._shard(request.group_id, may_be_empty=True)
            answer = shard.write(operation)
        except OperationRefused as refusal:
            return Deferred.of(refusal.code)
        return or_refused(answer, lambda refusal: refusal.code)

    def transactional_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Deferred[TxnOffsetCommitResponse]:
        return self.transactional_offsets.commit(request, context.api_version)

    def end_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Deferred[ErrorCode]:
        return self.transactional_offsets.end(
            partition, producer_id, producer_epoch, committed, coordinator_epoch, transaction_version
        )

    def offset_fetch(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> Deferred[OffsetFetchResponse]:
        return self._tasks.run("fetching offsets", self._fetch_groups(request))

    async def _fetch_groups(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        answers = [self._fetch_group(group, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=await gather(answers))

    def _fetch_group(
        self, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> Deferred[OffsetFetchResponseGroup]:
        try:
            shard = self._shard(group.group_id, may_be_empty=True)
            seen = shard.read(lambda: see_offsets(machine_of(shard).offsets, group, require_stable))
            if seen.done:
                return self._tell_offsets(seen.result(), group)
        except OperationRefused as refusal:
            return Deferred.of(self._refused_fetch(group, refusal))
        return self._tasks.run("waiting for offsets to be committed", self._tell_later(seen, group))

    async def _tell_later(
        self, seen: Deferred[SeenOffsets], group: OffsetFetchRequestGroup
    ) -> OffsetFetchResponseGroup:
        try:
            offsets = await seen
        except OperationRefused as refusal:
            return self._refused_fetch(group, refusal)
        return await self._tell_offsets(offsets, group)

    def _tell_offsets(
        self, seen: SeenOffsets, group: OffsetFetchRequestGroup
    ) -> Deferred[OffsetFetchResponseGroup]:
        return self._tasks.run("telling the offsets of a group", _told(seen, group))

    def _refused_fetch(
        self, group: OffsetFetchRequestGroup, refusal: OperationRefused
    ) -> OffsetFetchResponseGroup:
        # To a reader, a write that could not be committed means that this node may no longer be the leader.
        unavailable = refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE and self._active
        code = ErrorCode.NOT_COORDINATOR if unavailable else refusal.code
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)

    def offset_delete(
        self, request: OffsetDeleteRequest, context: RequestContext
    ) -> Deferred[OffsetDeleteResponse]:
        def refused(refusal: OperationRefused) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=refusal.code)

        try:
            shard = self._shard(request.group_id)
            answer = self._sweeps.delete_offsets(shard, request)
        except OperationRefused as refusal:
            return Deferred.of(refused(refusal))
        return or_refused(answer, refused)

    # --- groups as a whole

    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> Deferred[DescribeGroupsResponse]:
        absent_is_error = context.api_version >= ABSENT_GROUP_ON_DESCRIBE_SINCE
        return self._tasks.run("describing groups", self._describe_groups(request.groups, absent_is_error))

    async def _describe_groups(self, names: Sequence[str], absent_is_error: bool) -> DescribeGroupsResponse:
        def refused(group_id: str, refusal: OperationRefused) -> DescribedGroup:
            return DescribedGroup(group_id=group_id, error_code=refusal.code)

        shard_of = partial(self._shard, may_be_empty=True)
        describe = partial(describe_group, absent_is_error=absent_is_error)
        described = await in_turns(describe_all(names, shard_of, describe, refused))
        return DescribeGroupsResponse(groups=await gather(described))

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> Deferred[ConsumerGroupDescribeResponse]:
        return self._tasks.run(
            "describing consumer groups", self._describe_consumer_groups(request.group_ids)
        )

    async def _describe_consumer_groups(self, names: Sequence[str]) -> ConsumerGroupDescribeResponse:
        def refused(group_id: str, refusal: OperationRefused) -> DescribedConsumerGroup:
            return DescribedConsumerGroup(group_id=group_id, error_code=refusal.code)

        described = await in_turns(describe_all(names, self._shard, describe_consumer_group, refused))
        return ConsumerGroupDescribeResponse(groups=await gather(described))

    def list_groups(
        self, request: ListGroupsRequest, context: RequestContext
    ) -> Deferred[ListGroupsResponse]:
        if not self._active:
            return Deferred.of(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return self._tasks.run("listing groups", self._list_groups(request))

    async def _list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        try:
            listed = await in_turns(list_all(request, self._shards.started))
            lists = await gather(listed)
        except OperationRefused as refusal:
            return ListGroupsResponse(error_code=refusal.code)
        return ListGroupsResponse(groups=[group for groups in lists for group in groups])

    def delete_groups(
        self, request: DeleteGroupsRequest, context: RequestContext
    ) -> Deferred[DeleteGroupsResponse]:
        return self._tasks.run("deleting groups", self._delete_groups(request.groups_names))

    async def _delete_groups(self, names: Sequence[str]) -> DeleteGroupsResponse:
        results = [self._tasks.run("deleting a group", self._delete_group(name)) for name in names]
        return DeleteGroupsResponse(results=await gather(results))

    async def _delete_group(self, group_id: str) -> DeletableGroupResult:
        try:
            shard = self._shard(group_id, may_be_empty=True)
            # Kafka also asks first whether it is a share group: its states are deleted before it is.
            await self.share.release(shard, group_id)
            await self._sweeps.delete_group(shard, group_id)
        except OperationRefused as refusal:
            return DeletableGroupResult(group_id=group_id, error_code=refusal.code)
        return DeletableGroupResult(group_id=group_id)

    def _shard(self, group_id: str | None, may_be_empty: bool = False) -> Shard:
        """The shard of a group, not necessarily active. Raises OperationRefused."""
        if not self._active:
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group_id is None or (group_id == "" and not may_be_empty):
            raise OperationRefused(ErrorCode.INVALID_GROUP_ID)
        return self._shards.shard_for(group_id)

    def _shard_at(self, partition: int) -> Shard:
        """The shard of a partition, started. Raises OperationRefused."""
        shard = self._shards.get(partition) if self._active else None
        if shard is None:
            raise OperationRefused(ErrorCode.NOT_COORDINATOR)
        if shard.state is ShardState.INITIAL:
            shard.start()
        return shard


async def _told(seen: SeenOffsets, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return await in_turns(tell_offsets(seen, group))


def _join_refused(settings: GroupSettings, request: JoinGroupRequest, client_id: str) -> ErrorCode | None:
    """Checks of the request itself."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not request.member_id and not may_begin_member_id(request.group_instance_id or client_id):
        return ErrorCode.INVALID_REQUEST
    shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sum([len(protocol.metadata) for protocol in request.protocols]) > MEMBER_BYTES_MAX:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def _heartbeat_written(
    shard: Shard, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, tasks: Tasks
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    """The answer to a heartbeat, in steps if many topics are to be hashed or assigned."""
    group = machine_of(shard).groups.get(request.group_id)
    names = names_to_hash(group, request.subscribed_topic_names)
    if len(names) <= HASHED_AT_ONCE and not _is_to_get_many_topics(group, request):
        return shard.write(
            lambda now_ms: consumer_group_heartbeat(machine_of(shard).env, request, caller, now_ms)
        )
    shard.require_active()
    return tasks.run("a heartbeat with many topics", _heartbeat_in_parts(shard, request, caller, names))


def _is_to_get_many_topics(group: object, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member is alone, and it may get a new target of many topics, by an expression for example. Of a subscription
    that this request changes the later parts would not know."""
    return (
        isinstance(group, ConsumerGroup)
        and len(group.topic_names) > JOINS_AT_ONCE
        and (group.assignment_epoch < group.group_epoch or not group.refresh_deadline_ms)
        and group.members.keys() == {request.member_id}
        and request.member_epoch > 0
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
    )


async def _heartbeat_in_parts(
    shard: Shard, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, names: Sequence[str]
) -> ConsumerGroupHeartbeatResponse:
    """A member that is alone gets the partitions of all its topics at once, so that is written in parts. Others are assigned
    beside the requests anyway. Each part waits for its turn, since it looks for what the one before has written. Raises
    OperationRefused."""
    env = machine_of(shard).env
    await in_turns(hash_topics(env, names))
    await shard.when_free()
    group = env.groups.get(request.group_id)
    is_alone = group is None or (isinstance(group, ConsumerGroup) and not group.members)
    # Each part repeats the request. A static member that joined would be refused, as its own twin.
    may_repeat = request.member_epoch == 0 and request.member_id and request.instance_id is None
    joins_with_many = len(names) > JOINS_AT_ONCE and is_alone and may_repeat
    if joins_with_many or _is_to_get_many_topics(group, request):
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
            await shard.when_free()
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


def _again(
    shard_of: Callable[[str], Shard], group_id: str, again: Callable[[Environment, int], bool]
) -> bool:
    try:
        shard = shard_of(group_id)
    except OperationRefused:
        return False
    return shard.at_once(lambda now_ms: again(machine_of(shard).env, now_ms))


def _refused_heartbeat(refusal: OperationRefused) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


# --- long work


class StepTasks:
    """GroupTasks over the node's tasks. An unload drops what is not done, with the shard's timers."""

    __slots__ = ("_scheduled", "_tasks", "_timers")

    def __init__(self, tasks: Tasks, timers: ShardTimers) -> None:
        self._tasks = tasks
        self._timers = timers
        self._scheduled: set[TimerKey] = set()

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._scheduled

    def schedule(self, name: str, key: TimerKey, work: Work[T], then: Callable[[T, int], Any]) -> None:
        self._scheduled.add(key)
        self._tasks.start(name, self._carry_out(key, work, then))

    async def _carry_out(self, key: TimerKey, work: Work[T], then: Callable[[T, int], Any]) -> None:
        def done(now_ms: int) -> Any:
            self._scheduled.discard(key)
            return then(value, now_ms)

        try:
            await pause()
            value = await in_turns(work)
            self._timers.schedule(("task", *key), 0, done)
        except BaseException:
            self._scheduled.discard(key)
            raise
