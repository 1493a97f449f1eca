"""Members that use the uniform assignor: which of them gets a partition is the order of hash tables, so the numbers of
partitions are compared when nothing moves any more."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from interop_tests.consumer_groups.asking import REBALANCE_TIMEOUT_MS
from interop_tests.consumer_groups.surroundings import FIXED_TOPICS
from interop_tests.consumer_groups.talk import GROUP_SIZE_MAX, Side

ROUNDS_MAX = 20
Partitions = dict[str, list[int]]


class Shared:
    """The members of one group on one side. Each gives up at once what it is told to."""

    def __init__(self, side: Side, group: str) -> None:
        self._side = side
        self._group = group
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, Partitions] = {}

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        body = {"GroupId": self._group, "MemberId": member, "MemberEpoch": epoch} | fields
        answer = self._side.ask("ConsumerGroupHeartbeat", 1, body, "client", None)
        assert answer["ErrorCode"] == 0, answer
        if answer["Assignment"] is not None:
            listed = answer["Assignment"]["TopicPartitions"]
            self._owned[member] = {each["TopicId"]: each["Partitions"] for each in listed}
        self._epochs[member] = answer["MemberEpoch"]
        return answer

    def join(self, member: str, topics: list[str], assignor: str | None) -> None:
        first = {"RebalanceTimeoutMs": REBALANCE_TIMEOUT_MS, "TopicPartitions": []}
        self.beat(member, 0, SubscribedTopicNames=topics, ServerAssignor=assignor, **first)

    def subscribe(self, member: str, topics: list[str]) -> None:
        self.beat(member, self._epochs[member], SubscribedTopicNames=topics)

    def leave(self, member: str) -> None:
        self.beat(member, -1)
        del self._epochs[member], self._owned[member]

    def settle(self) -> None:
        """Heartbeats of everybody until all have what the coordinator means them to have."""
        for _ in range(ROUNDS_MAX):
            if self.described()["GroupState"] in ("Stable", "Empty"):
                return
            for member in sorted(self._epochs):
                owned = [
                    {"TopicId": topic, "Partitions": numbers}
                    for topic, numbers in self._owned[member].items()
                ]
                self.beat(member, self._epochs[member], TopicPartitions=owned)
        raise AssertionError(f"the group does not come to rest: {self.described()}")

    def described(self) -> Any:
        body = {"GroupIds": [self._group]}
        return self._side.ask("ConsumerGroupDescribe", 1, body, "client", None)["Groups"][0]

    def shares(self) -> Any:
        """How many partitions of each topic are assigned, and how many partitions the members have, without saying
        who has them. If members subscribe to different topics, only the first is certain."""
        group = self.described()
        per_topic: Counter[str] = Counter()
        per_member, subscriptions = [], set()
        for member in group["Members"]:
            assigned = member["Assignment"]["TopicPartitions"]
            assert member["Assignment"] == member["TargetAssignment"], group
            for topic in assigned:
                per_topic[topic["TopicName"]] += len(topic["Partitions"])
            per_member.append(sum(len(topic["Partitions"]) for topic in assigned))
            subscriptions.add(tuple(member["SubscribedTopicNames"]))
        same = len(subscriptions) <= 1
        assert not same or max(per_member, default=0) - min(per_member, default=0) <= 1, group
        return {
            "state": group["GroupState"],
            "epochs": (group["GroupEpoch"], group["AssignmentEpoch"]),
            "assignor": group["AssignorName"],
            "per topic": dict(per_topic),
            "per member": sorted(per_member) if same else None,
        }


def shares_of(sides: list[Side], seed: int, steps: int) -> list[tuple[str, list[Any]]]:
    """The shares on each side after each of the random steps, with the steps before them."""
    chance = random.Random(f"{seed}/shares")
    groups = [Shared(side, f"shared{seed}") for side in sides]
    topics: dict[str, list[str]] = {}
    found = []
    same = sorted(FIXED_TOPICS)
    joined = 0
    for _ in range(steps):
        names = same if chance.random() < 0.6 else sorted(chance.sample(same, chance.choice([1, 2])))
        if len(topics) < GROUP_SIZE_MAX and (not topics or chance.random() < 0.5):
            joined += 1
            member = f"m{joined}"
            topics[member] = names
            what = f"{member} joins for {names}"
            assignor = chance.choice(["uniform", None])
            for group in groups:
                group.join(member, names, assignor)
        elif chance.random() < 0.5:
            member = chance.choice(sorted(topics))
            what = f"{member} subscribes to {names}"
            topics[member] = names
            for group in groups:
                group.subscribe(member, names)
        else:
            member = chance.choice(sorted(topics))
            del topics[member]
            what = f"{member} leaves"
            for group in groups:
                group.leave(member)
        for group in groups:
            group.settle()
        found.append((what, [group.shares() for group in groups]))
    return found
