"""The group coordinator of this node: GroupService.

It finds the shard of a group, checks the request, runs the operation there, and puts errors in each response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.config.group import GroupConfigManager
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.coordinator.core import OperationRefused, or_refused
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.coordinator.shard import Shard, ShardSettings, ShardState, ShardTimers
from kafkacompat.coordinator.shards import Shards
from kafkacompat.deferred import Deferred, gather
from kafkacompat.group import classic_groups as classic_calls
from kafkacompat.group import consumer_groups
from kafkacompat.group.classic.rebalance import join_refusal
from kafkacompat.group.consumer_groups import ImageTopics, names_of_changed_topics
from kafkacompat.group.describe import describe_consumer_group, describe_group
from kafkacompat.group.environment import DEFAULT_GROUPS_BYTES, GroupSettings, group_memory
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.group.listing import describe_all, list_all
from kafkacompat.group.meters import GroupMeters
from kafkacompat.group.offset_metadata_manager import (
    SeenOffsets,
    commit_offsets,
    commit_refusal,
    see_offsets,
    tell_offsets,
)
from kafkacompat.group.share_groups import ShareGroupOffsets, ShareGroups
from kafkacompat.group.step_tasks import StepTasks
from kafkacompat.group.sweeps import GroupSweeps
from kafkacompat.group.sweeps import machine_of as _machine
from kafkacompat.group.transactional_offsets import TransactionalOffsets
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.tasks import Started, in_turns
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from kafkacompat.wire.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from kafkacompat.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.config.keys import Settings
    from kafkacompat.coordinator.services import TransactionVerifier
    from kafkacompat.group.consumer.regular_expressions import MayDescribe
    from kafkacompat.group.end_offsets import EndOffsetReader
    from kafkacompat.ports import Random
    from kafkacompat.share.service import SharePersister
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

ABSENT_GROUP_ON_DESCRIBE_SINCE = 6
BASE_SEQUENCE = 0
"""The first sequence number of every batch in the offsets topic, as in Kafka. Batches of the transaction topic have none."""
GROUPS_AT_ONCE = 200
"""The most groups, over all shards, for which offsets of deleted topics are searched in one step."""


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
    ends: EndOffsetReader
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
        self._memory = group_memory(settings.groups_max_bytes)
        self._active = False
        self._expiry: Started | None = None
        self._image = MetadataImage()
        self._topics = ImageTopics(self._image)

    # --- life

    def start(self) -> None:
        self._active = True
        self._expiry = self._tasks.start("the expiry of offsets", self._expire_offsets())

    def stop(self) -> None:
        """Answer all parked requests and stop serving."""
        self._active = False
        if self._expiry is not None:
            self._expiry.cancel()
        self._shards.close()

    def shard_states(self) -> list[str]:
        return self._shards.states()

    def group_states(self) -> Iterator[tuple[str, str]]:
        """Type and state of each group of the shards that are loaded, as the protocol names them."""
        for shard in self._shards:
            if shard.state is ShardState.ACTIVE:
                for group in list(_machine(shard).groups.values()):
                    yield group.kind.value, group.state_name

    def offset_count(self) -> int:
        """How many offsets the groups have committed, in the shards that are loaded."""
        active = [shard for shard in self._shards if shard.state is ShardState.ACTIVE]
        return sum(_machine(shard).offsets.count for shard in active)

    def is_active(self) -> bool:
        return self._active

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partition service has applied the same image, because that must know the logs it leads."""
        self._image = new
        if old.topics is not new.topics or old.brokers is not new.brokers:
            self._topics = ImageTopics(new)
        self._shards.on_image(old, new)
        moved = consumer_groups.brokers_with_other_racks(old, new)
        if old.topics is new.topics and not moved:
            return
        changed, has_new = names_of_changed_topics(old, new)
        for shard in self._shards:
            _machine(shard).on_topics(self._topics, changed, has_new)
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
        if not deleted:
            return
        groups = 0
        for shard in self._shards:
            if shard.state in (ShardState.ACTIVE, ShardState.LOADING):
                self._sweeps.drop_topics(shard, deleted, now=groups < GROUPS_AT_ONCE)
                groups += len(_machine(shard).groups)

    async def _look_at_topics_on(self, moved: frozenset[int]) -> None:
        await in_turns(
            consumer_groups.look_at_topics_on(moved, self._image, self._shards, lambda: self._topics)
        )

    def partition_for(self, group_id: str) -> int:
        """Raises OperationRefused COORDINATOR_NOT_AVAILABLE while the offsets topic does not exist."""
        return self._shards.partition_for(group_id)

    def _make_machine(self, partition: int, epoch: int, timers: ShardTimers) -> GroupMetadataManager:
        tasks = StepTasks(self._tasks, timers)
        machine = GroupMetadataManager(
            self._settings.group, self._configs, timers, tasks, self._random, self._memory, self.meters
        )
        machine.on_topics(self._topics, set(), has_new=False)
        return machine

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self._image.config(ConfigResourceType.GROUP, group_id)

    async def _expire_offsets(self) -> None:
        while True:
            await self._tasks.sleep(self._settings.retention_check_interval_ms)
            self._sweeps.expire(list(self._shards.started()))

    # --- membership

    def join_group(
        self, request: JoinGroupRequest, context: RequestContext, may_describe: MayDescribe | None = None
    ) -> Deferred[JoinGroupResponse]:
        if not self._active:
            return Deferred.of(join_refusal(request.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return classic_calls.join_group(self._shard, self._settings.group, request, context, may_describe)

    def sync_group(self, request: SyncGroupRequest, context: RequestContext) -> Deferred[SyncGroupResponse]:
        return classic_calls.sync_group(self._shard, request)

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> Deferred[HeartbeatResponse]:
        return classic_calls.heartbeat_of_member(self._shard, request)

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> Deferred[LeaveGroupResponse]:
        return classic_calls.leave_group(self._shard, request)

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        may_describe: MayDescribe | None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        assignors = self._settings.group.consumer.assignors
        return consumer_groups.heartbeat(
            self._shard, request, context, assignors, may_describe, self._active, self._tasks
        )

    # --- offsets

    def offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Deferred[OffsetCommitResponse]:
        try:
            shard = self._shard(request.group_id, may_be_empty=True)
            answer = shard.write(
                lambda now_ms: self.meters.committed(
                    commit_offsets(_machine(shard).offsets, request, context.api_version, now_ms)
                )
            )
        except OperationRefused as refusal:
            return Deferred.of(commit_refusal(request, refusal.code))
        return or_refused(answer, lambda refusal: commit_refusal(request, refusal.code))

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
            seen = shard.read(lambda: see_offsets(_machine(shard).offsets, group, require_stable))
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
