"""The group coordinator of this node: GroupService of api/context.

It finds the shard of a group, checks the request, runs the operation there, and puts errors in each response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import Refused
from kafkacompat.coordinator.group_listing import describe_all, list_all
from kafkacompat.coordinator.group_sweeps import GroupSweeps
from kafkacompat.coordinator.group_sweeps import machine_of as _machine
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.coordinator.partition_writer import ServicePartitionWriter
from kafkacompat.coordinator.refusals import commit_refusal, or_refused
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.coordinator.shards import Shards
from kafkacompat.coordinator.timers import ShardTimers
from kafkacompat.coordinator.transactional_offsets import TransactionalOffsets
from kafkacompat.deferred import Deferred, gather
from kafkacompat.group.commit import commit_offsets, see_offsets, tell_offsets
from kafkacompat.group.environment import GroupResult, GroupSettings
from kafkacompat.group.heartbeat import heartbeat
from kafkacompat.group.join import JoinCaller, join
from kafkacompat.group.leave import leave
from kafkacompat.group.machine import GroupMachine
from kafkacompat.group.rebalance import join_refusal
from kafkacompat.group.sync import sync
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.meters import RecentTimes
from kafkacompat.stepping.works import Steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkacompat.wire.messages.describe_groups_response import DescribeGroupsResponse
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkacompat.api.partition_services import PartitionService
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Clock, Random, TimerHandle, Timers, Workers
    from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
    from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
    from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest
    from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
    from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest
    from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

KNOWN_MEMBER_ID_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
ABSENT_GROUP_ON_COMMIT_SINCE = 9
ABSENT_GROUP_ON_DESCRIBE_SINCE = 6
PROTOCOLS_MAX = 100
"""Protocols of one member. Each rebalance examines those of all members. Clients name one to five."""
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


class GroupCoordinator:
    def __init__(
        self,
        node_id: int,
        partitions: PartitionService,
        clock: Clock,
        timers: Timers,
        random: Random,
        workers: Workers | None,
        settings: CoordinatorSettings,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """Serves nothing before `start`. `keep`: see Steps."""
        self._clock = clock
        self._timers = timers
        self._random = random
        self._workers = workers
        self._settings = settings
        self._writer = ServicePartitionWriter(partitions, OFFSETS_TOPIC, settings.commit_timeout_ms)
        self._steps = Steps(timers, keep)
        self._sweeps = GroupSweeps(self._steps, clock)
        self.load_times = RecentTimes()
        """Of partitions of the offsets topic."""
        self._shards = Shards(node_id, OFFSETS_TOPIC, self._make_shard)
        self.transactional_offsets = TransactionalOffsets(partitions, clock, self._shard, self._shard_at)
        self._active = False
        self._sweep: TimerHandle | None = None

    # --- life

    def start(self) -> None:
        self._active = True
        self._sweep = self._timers.call_after(self._settings.retention_check_interval_ms, self._expire)

    def stop(self) -> None:
        """Answer all parked requests and stop serving."""
        self._active = False
        if self._sweep is not None:
            self._sweep.cancel()
        self._shards.close()
        self._steps.finish()

    def shard_states(self) -> list[str]:
        """The state of each shard on this node."""
        return [shard.state.value for shard in self._shards]

    def group_states(self) -> Iterator[str]:
        """The state of each group of the shards that are loaded, as the protocol names it."""
        for shard in self._shards:
            if shard.state is ShardState.ACTIVE:
                for group in list(_machine(shard).groups.values()):
                    yield group.state.value

    def is_active(self) -> bool:
        return self._active

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partition service has applied the same image, because that must know the logs it leads."""
        self._shards.on_image(old, new)
        if old.topics is new.topics:
            return
        deleted = {
            topic.name: topic_id
            for topic_id, topic in old.topics_by_id.items()
            if topic_id not in new.topics_by_id and topic.name != OFFSETS_TOPIC
        }
        if not deleted:
            return
        groups = 0
        for shard in self._shards:
            if shard.state in (ShardState.ACTIVE, ShardState.LOADING):
                self._sweeps.drop_topics(shard, deleted, now=groups < GROUPS_AT_ONCE)
                groups += len(_machine(shard).groups)

    def partition_for(self, group_id: str) -> int:
        """Raises Refused COORDINATOR_NOT_AVAILABLE while the offsets topic does not exist."""
        return self._shards.partition_for(group_id)

    def _make_shard(self, partition: int, epoch: int) -> Shard:
        return Shard(
            partition,
            epoch,
            self._writer,
            self._clock,
            self._timers,
            self._workers,
            self._steps,
            self._make_machine,
            compression=self._settings.compression,
            base_sequence=BASE_SEQUENCE,
            load_step_bytes=self._settings.load_step_bytes,
            on_active=self._sweeps.drop_topics,
            load_times=self.load_times,
        )

    def _make_machine(self, timers: ShardTimers) -> GroupMachine:
        return GroupMachine(self._settings.group, timers, self._random)

    def _expire(self) -> None:
        self._sweep = self._timers.call_after(self._settings.retention_check_interval_ms, self._expire)
        self._sweeps.expire(list(self._shards.started()))

    # --- membership

    def join_group(self, request: JoinGroupRequest, context: RequestContext) -> Deferred[Any]:
        refused = self._join_refused(request)
        if refused is not None:
            return Deferred.of(join_refusal(request.member_id, refused))
        try:
            shard = self._shard(request.group_id)
            shard.require_active()
        except Refused as refusal:
            # Kafka names the member only in refusals from before the lookup of the coordinator.
            return Deferred.of(join_refusal("", refusal.code))
        machine = _machine(shard)
        if request.group_id in machine.carried:
            return Deferred.of(join_refusal("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        caller = JoinCaller(
            waiter=Deferred(),
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            requires_known_member_id=context.api_version >= KNOWN_MEMBER_ID_SINCE,
            can_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
        )
        shard.write(lambda now_ms: join(machine.env, request, caller, now_ms))
        return caller.waiter

    def _join_refused(self, request: JoinGroupRequest) -> ErrorCode | None:
        """Checks of the request itself."""
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        settings = self._settings.group
        shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if len(request.protocols) > PROTOCOLS_MAX:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def sync_group(self, request: SyncGroupRequest, context: RequestContext) -> Deferred[Any]:
        waiter: Deferred[Any] = Deferred()

        def operation(now_ms: int) -> GroupResult:
            return sync(_machine(shard).env, request, waiter)

        try:
            shard = self._shard(request.group_id)
            shard.write(operation)
        except Refused as refusal:
            return Deferred.of(SyncGroupResponse(error_code=refusal.code))
        return waiter

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> Deferred[Any]:
        try:
            shard = self._shard(request.group_id)
            answer = shard.read(lambda: heartbeat(_machine(shard).env, request))
        except Refused as refusal:
            if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # Members of a loading group keep their assignments and continue.
                return Deferred.of(HeartbeatResponse())
            return Deferred.of(HeartbeatResponse(error_code=refusal.code))
        return or_refused(
            answer.then(lambda code: HeartbeatResponse(error_code=code)),
            lambda refusal: HeartbeatResponse(error_code=refusal.code),
        )

    def leave_group(self, request: LeaveGroupRequest, context: RequestContext) -> Deferred[Any]:
        """`request.members` has the batched form in every client version."""

        def refused(refusal: Refused) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=refusal.code)

        try:
            shard = self._shard(request.group_id)
            answer = shard.write(
                lambda now_ms: leave(_machine(shard).env, request.group_id, request.members, now_ms)
            )
        except Refused as refusal:
            return Deferred.of(refused(refusal))
        return or_refused(answer, refused)

    # --- offsets

    def offset_commit(self, request: OffsetCommitRequest, context: RequestContext) -> Deferred[Any]:
        names_absent = context.api_version >= ABSENT_GROUP_ON_COMMIT_SINCE
        try:
            shard = self._shard(request.group_id, may_be_empty=True)
            answer = shard.write(
                lambda now_ms: commit_offsets(_machine(shard), request, names_absent, now_ms)
            )
        except Refused as refusal:
            return Deferred.of(commit_refusal(request, refusal.code))
        return or_refused(answer, lambda refusal: commit_refusal(request, refusal.code))

    def transactional_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Deferred[Any]:
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

    def offset_fetch(self, request: OffsetFetchRequest, context: RequestContext) -> Deferred[Any]:
        answers = [self._fetch_group(group, request.require_stable) for group in request.groups]
        return gather(answers).then(lambda groups: OffsetFetchResponse(groups=groups))

    def _fetch_group(
        self, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> Deferred[OffsetFetchResponseGroup]:
        def refused(refusal: Refused) -> OffsetFetchResponseGroup:
            # To a reader, a write that could not be committed means that this node may no longer be the leader.
            unavailable = refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE and self._active
            code = ErrorCode.NOT_COORDINATOR if unavailable else refusal.code
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)

        try:
            shard = self._shard(group.group_id, may_be_empty=True)
            answer = shard.read(lambda: see_offsets(_machine(shard), group, require_stable)).and_then(
                lambda seen: self._steps.value("telling the offsets of a group", tell_offsets(seen, group))
            )
        except Refused as refusal:
            return Deferred.of(refused(refusal))
        return or_refused(answer, refused)

    def offset_delete(self, request: OffsetDeleteRequest, context: RequestContext) -> Deferred[Any]:
        def refused(refusal: Refused) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=refusal.code)

        try:
            shard = self._shard(request.group_id)
            answer = self._sweeps.delete_offsets(shard, request)
        except Refused as refusal:
            return Deferred.of(refused(refusal))
        return or_refused(answer, refused)

    # --- groups as a whole

    def describe_groups(self, request: DescribeGroupsRequest, context: RequestContext) -> Deferred[Any]:
        absent_is_error = context.api_version >= ABSENT_GROUP_ON_DESCRIBE_SINCE
        shard_of = partial(self._shard, may_be_empty=True)
        described = self._steps.value(
            "describing groups", describe_all(request.groups, shard_of, absent_is_error)
        )
        return described.and_then(gather).then(lambda groups: DescribeGroupsResponse(groups=groups))

    def list_groups(self, request: ListGroupsRequest, context: RequestContext) -> Deferred[Any]:
        if not self._active:
            return Deferred.of(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return or_refused(
            self._steps.value("listing groups", list_all(request, self._shards.started))
            .and_then(gather)
            .then(lambda lists: ListGroupsResponse(groups=[group for groups in lists for group in groups])),
            lambda refusal: ListGroupsResponse(error_code=refusal.code),
        )

    def delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> Deferred[Any]:
        def one(group_id: str) -> Deferred[DeletableGroupResult]:
            def refused(refusal: Refused) -> DeletableGroupResult:
                return DeletableGroupResult(group_id=group_id, error_code=refusal.code)

            try:
                shard = self._shard(group_id, may_be_empty=True)
                answer = self._sweeps.delete_group(shard, group_id)
            except Refused as refusal:
                return Deferred.of(refused(refusal))
            return or_refused(answer.then(lambda _: DeletableGroupResult(group_id=group_id)), refused)

        return gather([one(group_id) for group_id in request.groups_names]).then(
            lambda results: DeleteGroupsResponse(results=results)
        )

    def _shard(self, group_id: str | None, may_be_empty: bool = False) -> Shard:
        """The shard of a group, not necessarily active. Raises Refused."""
        if not self._active:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group_id is None or (group_id == "" and not may_be_empty):
            raise Refused(ErrorCode.INVALID_GROUP_ID)
        return self._shards.shard_for(group_id)

    def _shard_at(self, partition: int) -> Shard:
        """The shard of a partition, started. Raises Refused."""
        shard = self._shards.get(partition) if self._active else None
        if shard is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        if shard.state is ShardState.INITIAL:
            shard.start()
        return shard
