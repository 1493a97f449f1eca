"""The groups, members and topics of a random talk, and what administrators do with them."""

from __future__ import annotations

import random
from typing import Any

from interop_tests.consumer_groups.asking import ANY, Asking
from interop_tests.consumer_groups.pair import Pair
from interop_tests.consumer_groups.walkers import ClassicWalker, Walker

FIXED_TOPICS = {"t1": 1, "t3": 3, "t7": 7}
CHANGING_TOPICS = ("p", "q")
PARTITIONS_MAX = 7
STATES = ("Empty", "Assigning", "Reconciling", "Stable", "stable", "PreparingRebalance", "Dead", "nonsense")
TYPES = ("consumer", "classic", "Consumer", "share", "nonsense")


class Surroundings:
    """One seed."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.chance = random.Random(f"{seed}/consumer groups")
        self.seed = seed
        self.ranged = Asking(pair, f"ranged{seed}")
        self.single = Asking(pair, f"single{seed}")
        self.walkers = [(self.ranged, Walker(slot, "range")) for slot in "abc"]
        self.walkers.append((self.single, Walker("u", "uniform")))
        self.classic = [ClassicWalker(slot) for slot in "kl"]
        self.partitions = dict(FIXED_TOPICS)

    def some_partitions(self, topic: str) -> list[int]:
        count = self.partitions.get(topic, 1)
        return sorted(self.chance.sample(range(count + 1), min(count, self.chance.choice([1, 1, 2]))))

    def administration(self) -> None:
        chance = self.chance
        group = chance.choice([self.ranged, self.ranged, self.single])
        roll = chance.randrange(10)
        if roll < 3:
            group.describe(ANY, chance.choice([0, 1]))
        elif roll == 3:
            group.describe_classic(ANY, chance.choice([5, 6]))
        elif roll < 6:
            states = chance.sample(STATES, chance.choice([0, 1, 2]))
            group.list(states, chance.sample(TYPES, chance.choice([0, 1, 2])), chance.choice([4, 5, 5]))
        elif roll == 6:
            group.delete(ANY)
        elif roll == 7:
            topic = chance.choice([*FIXED_TOPICS, *CHANGING_TOPICS])
            group.delete_offsets(topic, self.some_partitions(topic), ANY)
        elif roll == 8:
            value = chance.choice(["6000", "7000", "15001", "x", None])
            group.configure("consumer.heartbeat.interval.ms", value, ANY)
        else:
            self.evict(group)

    def evict(self, group: Asking) -> None:
        """Somebody who is in the group leaves it."""
        (found,) = group.describe(ANY)["Groups"]
        if found["Members"]:
            self.evict_member(group, self.chance.choice(found["Members"]))

    def evict_strangers(self) -> None:
        """Members that nobody here remembers leave: a group is small."""
        known = {walker.id for _, walker in self.walkers} | {walker.id for walker in self.classic}
        for group in (self.ranged, self.single):
            (found,) = group.describe(ANY)["Groups"]
            for member in found["Members"]:
                if member["MemberId"] not in known:
                    self.evict_member(group, member)

    def evict_member(self, group: Asking, member: Any) -> None:
        if self.chance.random() < 0.5:
            group.classic_leave((member["MemberId"], member["InstanceId"]), expect=ANY)
        else:
            group.beat(member["MemberId"], -1, ANY, instance=member["InstanceId"])

    def change_topics(self) -> None:
        chance = self.chance
        topic = chance.choice(CHANGING_TOPICS)
        count = self.partitions.get(topic)
        if count is None:
            count = self.partitions[topic] = chance.randint(1, PARTITIONS_MAX)
            self.pair.change(f"create {topic}", lambda side: side.create_topic(topic, count))
        elif count < PARTITIONS_MAX and chance.random() < 0.6:
            grown = self.partitions[topic] = chance.randint(count + 1, PARTITIONS_MAX)
            self.pair.change(f"grow {topic}", lambda side: side.grow_topic(topic, grown))
        else:
            del self.partitions[topic]
            self.pair.change(f"delete {topic}", lambda side: side.delete_topic(topic))
