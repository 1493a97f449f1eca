"""Random lives of share groups: members come and go, topics change, states cannot be made, coordinators restart.

Nobody has a partition without a state, a restart changes nothing, and a group that is left alone has everything assigned.
"""

from __future__ import annotations

import random

import pytest

from kafkacompat.api.delete_groups import HANDLER as DELETE_GROUPS
from kafkacompat.coordinator._tests.kit import topic_image
from kafkacompat.group._tests.sharers import GROUP, Sharer, SharingCoordinator, described
from kafkacompat.group._tests.test_share_group_offsets import alter, delete
from kafkacompat.group._tests.test_share_groups import group_of, state, states
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.share.service import TopicIdPartition
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest

STEPS = 150
SEEDS = 12
ROUNDS_TO_SETTLE = 12


class Life:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = SharingCoordinator(assignment_interval_ms=self.random.choice((0, 1_000)))
        self.sizes = {"t": 3, "u": 1, "v": 5}
        self.ids = dict.fromkeys(self.sizes, 1)
        self.publish()
        self.members: list[Sharer] = []
        self.made = 0

    def publish(self) -> None:
        topics = [
            topic_image(name, size, name.encode() * 15 + bytes([self.ids[name]]))
            for name, size in self.sizes.items()
        ]
        self.world.publish([topic_image(OFFSETS_TOPIC, 1), *topics])
        self.world.time.advance(0)

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.12 and len(self.members) < 8:
            self.join()
        elif chance < 0.2 and self.members:
            self.members.pop(self.random.randrange(len(self.members))).leave()
        elif chance < 0.23 and self.members:
            self.members.pop(self.random.randrange(len(self.members)))  # it dies
            for _ in range(10):
                self.beat_all()
        elif chance < 0.27:
            self.sizes[self.random.choice("tuv")] += 1
            self.publish()
        elif chance < 0.3:
            self.make_anew(self.random.choice("tuv"))
        elif chance < 0.34:
            self.restart()
        elif chance < 0.42:
            self.share_coordinator()
        elif chance < 0.46 and not self.members:
            self.administer()
        elif chance < 0.5 and self.members:
            topics = self.random.sample("tuv", self.random.randint(1, 3))
            self.beat(self.random.choice(self.members), topics)
        elif self.members:
            self.beat(self.random.choice(self.members))
        self.world.time.advance(self.random.choice((0, 0, 400, 5_000)))
        self.check()

    def join(self) -> None:
        self.made += 1
        topics = self.random.sample("tuv", self.random.randint(1, 3))
        member = Sharer(self.world, f"m{self.made}", *topics)
        assert member.join().error_code == E.NONE
        self.members.append(member)

    def beat_all(self) -> None:
        for member in self.members:
            self.beat(member)
        self.world.time.advance(5_000)

    def beat(self, member: Sharer, topics: list[str] | None = None) -> None:
        if not member.epoch:
            answer = member.join()
        elif topics is None:
            answer = member.beat()
        else:
            member.topics = topics
            answer = member.beat(subscribed_topic_names=topics)
        if answer.error_code in (E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND):
            member.epoch = 0
        else:
            assert answer.error_code == E.NONE, answer.error_message

    def make_anew(self, name: str) -> None:
        self.ids[name] += 1
        self.publish()

    def restart(self) -> None:
        machine = machine_of(self.world.coordinator._shards.shard_for(GROUP))
        exists = GROUP in machine.groups
        before = state(self.world) if exists else None
        self.world.restart()
        if exists:
            assert state(self.world) == before

    def share_coordinator(self) -> None:
        persister = self.world.persister
        if self.random.random() < 0.5:
            persister.refusal = self.random.choice((E.NONE, E.NONE, E.COORDINATOR_NOT_AVAILABLE))
        elif persister.held:
            persister.release()
        else:
            persister.held = True

    def administer(self) -> None:
        name = self.random.choice("tuv")
        match self.random.randrange(3):
            case 0:
                alter(self.world, (name, {0: self.random.randrange(100)}))
            case 1:
                delete(self.world, name)
            case _:
                request = DeleteGroupsRequest(groups_names=[GROUP])
                self.world.call(DELETE_GROUPS, request, 2)

    def check(self) -> None:
        for member in self.members:
            if not member.epoch:
                continue
            for topic_id, partitions in member.has.items():
                topic = self.world.image.topics_by_id.get(topic_id)
                for partition in partitions if topic is not None else ():
                    key = TopicIdPartition(topic_id, partition)
                    assert (GROUP, key) in self.world.persister.states, f"{key} is assigned without a state"

    def settle(self) -> None:
        self.world.persister.refusal = E.NONE
        self.world.persister.release()
        for _ in range(ROUNDS_TO_SETTLE):
            self.beat_all()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_with_a_state_is_assigned_in_the_end(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.settle()
    if not life.members:
        return
    (group,) = described(life.world)
    assert (group.group_state, group.group_epoch) == ("Stable", group.assignment_epoch)
    subscribed = {name for member in life.members for name in member.topics}
    shared = set().union(*(member.partitions for member in life.members))
    assert shared == {(name, index) for name in subscribed for index in range(life.sizes[name])}
    assert not states(life.world)[0].keys() & subscribed
    for member in life.members:
        assert {name for name, _ in member.partitions} <= set(member.topics)
    assert group_of(life.world)._assigned == counted(life)
    life.restart()


def counted(life: Life) -> dict[bytes, dict[int, int]]:
    counts: dict[bytes, dict[int, int]] = {}
    for target in group_of(life.world).targets.values():
        for topic_id, partitions in target.items():
            for index in partitions:
                of_topic = counts.setdefault(topic_id, {})
                of_topic[index] = of_topic.get(index, 0) + 1
    return counts
