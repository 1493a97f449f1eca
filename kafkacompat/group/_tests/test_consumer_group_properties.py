"""Random lives of consumer groups: members of both protocols come and go, topics change, coordinators restart.

No partition is ever with two members at once, a restart changes nothing, and a group that is left alone shares
everything out.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkacompat.coordinator._tests.kit import AT_ONCE, LeadingCoordinator, topic_image
from kafkacompat.group._tests.members import ClassicMember, Member, described
from kafkacompat.group._tests.test_consumer_groups import state
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.environment import GroupSettings
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.consumer_group_mutants import RARE_CONSUMER_GROUP_MUTANTS
from kafkacompat.wire.errors import ErrorCode as E

STEPS = 120
SEEDS = 12
ROUNDS_TO_SETTLE = 60
HEARTBEAT_MS = 1_000
SLOW = 0.3
"""The part of heartbeats after which a member still has what it was told to give up."""


class Life:
    def __init__(self, seed: int, classic: bool) -> None:
        self.random = random.Random(seed)
        self.world = LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0), node=AT_ONCE)
        self.has_classic = classic
        self.sizes = {"t": 3, "u": 1, "v": 5}
        self.publish()
        self.members: list[Member | ClassicMember] = []
        self.made = 0

    def publish(self) -> None:
        topics = [topic_image(name, size) for name, size in self.sizes.items()]
        self.world.publish([topic_image(OFFSETS_TOPIC, 1), *topics])

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.12 and len(self.members) < 6:
            self.join()
        elif chance < 0.2 and self.members:
            self.members.pop(self.random.randrange(len(self.members))).leave()
        elif chance < 0.24 and self.members:
            self.members.pop(self.random.randrange(len(self.members)))  # it dies
            for _ in range(50):
                self.beat_all()
        elif chance < 0.28:
            self.sizes[self.random.choice("tuv")] += 1
            self.publish()
        elif chance < 0.32:
            self.restart()
        elif self.members:
            self.beat(self.random.choice(self.members))
        self.world.time.advance(self.random.choice((0, 0, 300)))
        self.check()

    def join(self) -> None:
        self.made += 1
        topics = self.random.sample("tuv", self.random.randint(1, 3))
        if self.has_classic and self.random.random() < 0.5:
            classic = ClassicMember(self.world, *topics)
            self.members.append(classic)
            classic.step()
            return
        regex = self.random.choice((None, None, "[tu]"))
        name = f"m{self.made}"
        assignor = self.random.choice((None, "range", "uniform"))
        member = Member(self.world, name, *topics, regex=regex, assignor=assignor)
        if member.join().error_code == E.NONE:
            self.members.append(member)

    def beat_all(self) -> None:
        for member in list(self.members):
            self.beat(member)
            self.check()
        self.world.time.advance(HEARTBEAT_MS)

    def beat(self, member: Member | ClassicMember) -> None:
        if isinstance(member, ClassicMember):
            member.step()
            return
        member.keeps = self.random.random() < SLOW
        if not member.keeps:
            member.catch_up()
        answer = member.beat() if member.epoch else member.join()
        if (
            answer.error_code in (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH)
            or answer.error_code == E.GROUP_ID_NOT_FOUND
        ):
            member.lose_all()
        else:
            assert answer.error_code == E.NONE, answer.error_message

    def restart(self) -> None:
        before = state(self.world)
        self.world.restart()
        assert state(self.world) == before

    def check(self) -> None:
        owners: dict[tuple[str, int], Member | ClassicMember] = {}
        for member in self.members:
            for partition in member.partitions if self.is_current(member) else ():
                assert partition not in owners, f"{partition} has two owners"
                owners[partition] = member

    def is_current(self, member: Member | ClassicMember) -> bool:
        """Whether the coordinator would take the member's commits. A group that is converted twice while a classic member
        does nothing takes that member's partitions for what they should be, as in Kafka. Its commits are refused then."""
        if isinstance(member, Member):
            return True
        machine = self.world.coordinator._shards.shard_for("g").machine
        group = machine.groups.get("g")  # type: ignore[attr-defined]  # a group machine
        if isinstance(group, ConsumerGroup):
            found = group.members.get(member.member_id)
            return found is not None and found.member_epoch == member.generation
        return isinstance(group, ClassicGroup) and group.generation_id == member.generation

    def settle(self) -> None:
        for member in self.members:
            if isinstance(member, ClassicMember):
                member.join_again()  # clients of a classic group look for new partitions themselves
        for _ in range(ROUNDS_TO_SETTLE):
            self.beat_all()
        for member in self.members:
            if isinstance(member, Member):
                member.catch_up()


@pytest.mark.parametrize("classic", [False, True], ids=["new", "mixed"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_partition_has_one_owner_and_none_is_forgotten(seed: int, classic: bool) -> None:
    live(seed, classic)


@pytest.mark.parametrize("plant", RARE_CONSUMER_GROUP_MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, faults: Any) -> None:
    """These are rare in the simulation. Here a coordinator often ends while members give something up."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(SEEDS):
            try:
                live(seed, classic=False)
            except AssertionError:
                faults.take()
                return
    pytest.fail(f"{plant.__name__} survives {SEEDS} seeds")


def live(seed: int, classic: bool) -> None:
    life = Life(seed, classic)
    for _ in range(STEPS):
        life.step()
    life.settle()
    if not life.members:
        return
    (group,) = described(life.world)
    if group.error_code == E.NONE:
        assert group.group_state == "Stable"
    shared = set().union(*(member.partitions for member in life.members))
    subscribed: set[str] = set()
    for member in life.members:
        if isinstance(member, ClassicMember):
            subscribed |= set(member.topics)
        else:
            subscribed |= set(member._told["subscribed_topic_names"] or ())
            subscribed |= set("tu") if member._told["subscribed_topic_regex"] else set()
    assert shared == {(name, index) for name in subscribed for index in range(life.sizes[name])}
