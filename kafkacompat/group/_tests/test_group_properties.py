"""A classic group keeps its guarantees, whatever members, clocks and disks do.

The steps are random: joins with and without ids, static and dynamic, syncs, heartbeats, leaves, commits, passing time,
failing writes, a lagging high watermark, restarts. The invariants are checked after every step. At the end time
continues, and every call must have an answer.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkacompat.coordinator._tests.clients import beat, commit, fetch, join, leave, subscription, sync
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.coordinator._tests.test_memory import held_by_groups
from kafkacompat.coordinator.shard import ShardState
from kafkacompat.deferred import Deferred
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.classic.classic_group import ClassicGroupState as S
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.wire.errors import ErrorCode as E

PROTOCOLS = [
    (("range", subscription("t")),),
    (("range", subscription("u")),),
    (("sticky", subscription("t")), ("range", subscription("t"))),
]
LONGEST_WAIT_MS = 1_300_000
"""Several times every session, rebalance and join timeout that the steps use."""


class GroupPromises(RuleBasedStateMachine):
    @initialize(size=st.integers(1, 4), delay=st.sampled_from([0, 3_000]))
    def start(self, size: int, delay: int) -> None:
        self.world = LeadingCoordinator(GroupSettings(max_size=size, initial_rebalance_delay_ms=delay))
        self.ids: list[str] = ["stranger"]
        self.calls: list[Deferred[Any]] = []
        self.generations: dict[int, str] = {}
        self.last_generation = 0
        self.acknowledged = -1

    def group(self) -> ClassicGroup | None:
        (shard,) = self.world.coordinator._shards
        assert isinstance(shard.machine, GroupMetadataManager)
        return shard.machine.groups.get("g")

    def note(self, answer: Any) -> None:
        if isinstance(answer, Deferred):
            self.calls.append(answer)
            answer.on_done(lambda done: self.note(done.result()))
            return
        member_id = getattr(answer, "member_id", "")
        if member_id and member_id not in self.ids:
            self.ids.append(member_id)
        if (
            hasattr(answer, "leader")
            and answer.error_code == 0
            and answer.members
            and not answer.skip_assignment
        ):
            # Two different leaders must never be asked to assign the same generation.
            assert self.generations.setdefault(answer.generation_id, answer.leader) == answer.leader
            assert answer.leader in {each.member_id for each in answer.members}

    def pick(self, index: int) -> str:
        return self.ids[index % len(self.ids)]

    @rule(
        index=st.integers(0, 30),
        known=st.booleans(),
        instance=st.sampled_from([None, None, "one", "two"]),
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from([0, 3, 4, 8, 9]),
        session=st.sampled_from([6_000, 20_000]),
    )
    def join(
        self, index: int, known: bool, instance: str | None, protocols: Any, version: int, session: int
    ) -> None:
        member_id = self.pick(index) if known else ""
        if known and instance is None and member_id.startswith(("one-", "two-")):
            instance = member_id[:3]
        self.note(
            join(
                self.world,
                member_id,
                protocols,
                instance=instance,
                version=version,
                session=session,
                rebalance=15_000,
            )
        )

    @rule(index=st.integers(0, 30), stale=st.booleans())
    def sync(self, index: int, stale: bool) -> None:
        group = self.group()
        generation = 0 if group is None else group.generation_id - stale
        member_id = self.pick(index)
        plan = {each: each.encode() for each in self.ids}
        self.note(sync(self.world, member_id, generation, plan, kind=None, name=None, version=3))

    @rule()
    def leader_syncs(self) -> None:
        group = self.group()
        if group is not None and group.leader_id is not None:
            plan = {each: each.encode() for each in group.members}
            answer = sync(
                self.world, group.leader_id, group.generation_id, plan, kind=None, name=None, version=3
            )
            self.note(answer)

    @rule(index=st.integers(0, 30))
    def beat(self, index: int) -> None:
        group = self.group()
        if not self.world.partitions.held:
            beat(self.world, self.pick(index), 0 if group is None else group.generation_id)

    @rule(index=st.integers(0, 30))
    def leave(self, index: int) -> None:
        self.note(leave(self.world, (self.pick(index), None)))

    @rule(index=st.integers(0, 30), offset=st.integers(0, 1_000))
    def commit(self, index: int, offset: int) -> None:
        group = self.group()
        if self.world.partitions.held:
            return
        generation = -1 if group is None or not group.members else group.generation_id
        member_id = "" if generation < 0 else self.pick(index)
        if commit(self.world, offset, member_id=member_id, generation=generation) == E.NONE:
            self.acknowledged = offset

    @rule(ms=st.sampled_from([1, 2_999, 3_000, 6_000, 14_000, 21_000]))
    def pass_time(self, ms: int) -> None:
        self.world.time.advance(ms)

    @rule(refusal=st.sampled_from([None, None, E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR]))
    def disk(self, refusal: E | None) -> None:
        self.world.partitions.refusal = refusal

    @rule(error=st.sampled_from([E.NONE, E.NONE, E.REQUEST_TIMED_OUT]))
    def replicas_catch_up(self, error: E) -> None:
        self.world.partitions.release(error)

    @rule()
    def replicas_lag(self) -> None:
        self.world.partitions.held = True

    @rule()
    def restart(self) -> None:
        self.world.partitions.release()
        self.world.restart()
        assert fetch(self.world).committed_offset == self.acknowledged
        # A generation that was never written may be used again.
        group = self.group()
        self.last_generation = 0 if group is None else group.generation_id
        self.generations = {
            number: leader for number, leader in self.generations.items() if number <= self.last_generation
        }

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group()
        if group is None:
            self.last_generation = 0
            self.generations = {}
            return
        assert group.generation_id >= self.last_generation
        self.last_generation = group.generation_id
        assert self.world.coordinator._memory.used == held_by_groups(self.world)
        members = group.members
        assert (group.leader_id in members) if members else (group.leader_id is None)
        assert group.awaiting_join_count == sum(each.awaiting_join is not None for each in members.values())
        assert group.pending_sync <= set(members)
        assert not group.pending_join.keys() & set(members)
        assert group.static_members == {
            each.group_instance_id: each.member_id for each in members.values() if each.group_instance_id
        }
        if group.state is S.EMPTY:
            assert not members
        if group.state in (S.COMPLETING_REBALANCE, S.STABLE):
            assert group.protocol_name is not None
            for each in members.values():
                assert each.metadata(group.protocol_name) is not None
        for each in members.values():
            assert each.awaiting_sync is None or group.state is S.COMPLETING_REBALANCE
            waiting_to_be_written = group.state is S.STABLE and self.world.partitions.held
            assert each.awaiting_join is None or group.state is S.PREPARING_REBALANCE or waiting_to_be_written

    @invariant()
    def nobody_parked_is_forgotten(self) -> None:
        """A call without an answer is held by a member, or waits for the log."""
        group = self.group()
        self.calls = [call for call in self.calls if not call.done]
        if not self.world.partitions._waiting:
            members = [] if group is None else list(group.members.values())
            held = sum(
                (each.awaiting_join is not None) + (each.awaiting_sync is not None) for each in members
            )
            assert held == len(self.calls)

    def teardown(self) -> None:
        """When time continues and the disk works, every call is answered and the group becomes empty."""
        if not hasattr(self, "world"):
            return
        self.world.partitions.refusal = None
        self.world.partitions.release()
        self.world.time.advance(LONGEST_WAIT_MS)
        assert all(call.done for call in self.calls)
        group = self.group()
        assert group is None or (group.state is S.EMPTY and not group.pending_join)
        (shard,) = self.world.coordinator._shards
        assert shard.state is ShardState.ACTIVE
        assert len(shard.timers) == 0


GroupPromises.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestGroupPromises = GroupPromises.TestCase
