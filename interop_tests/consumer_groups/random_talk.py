"""Random talks of members of both protocols with two groups, made from a seed while Kafka's answers come.

The members of group "ranged" use the range assignor, whose assignments are the same on every broker. Group "single"
has one member, which uses the uniform assignor.
"""

from __future__ import annotations

from typing import Any

from interop_tests.consumer_groups.asking import ANY, REBALANCE_TIMEOUT_MS, Asking, Owned
from interop_tests.consumer_groups.conversions import plan
from interop_tests.consumer_groups.surroundings import CHANGING_TOPICS, FIXED_TOPICS, Surroundings
from interop_tests.consumer_groups.talk import CLOSED, WAITS
from interop_tests.consumer_groups.walkers import (
    JOINED,
    MADE,
    OUT,
    STABLE,
    WAITING,
    ClassicWalker,
    Walker,
)
from interop_tests.harness.groups import subscription
from interop_tests.harness.raw_kafka import ErrorCode

REFUSED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, 110)
BOTH, CLASSIC, MODERN = "both", "classic", "modern"
MOODS = (BOTH, BOTH, CLASSIC, CLASSIC, MODERN)
"""Members of which protocol come and stay. Otherwise a group would hardly ever lose all of one kind."""


class RandomTalk(Surroundings):
    """What the members do."""

    mood = BOTH

    def walk(self, steps: int) -> None:
        chance = self.chance
        kinds = [self.modern] * 12 + [self.classical] * 8 + [self.offsets] * 4 + [self.administration] * 3
        for number in range(steps):
            self.pair.place = f"seed {self.seed}, step {number}"
            if chance.random() < 0.04:
                self.mood = chance.choice(MOODS)
                self.evict_strangers()
            chance.choice([*kinds, self.change_topics])()
            self.settle()
        self.pair.place = f"seed {self.seed}, the end"
        for group in (self.ranged, self.single):
            group.describe(ANY)
            group.describe_classic(ANY)
            group.fetch(None, -1, None, ANY)
            group.list()
        for walker in self.classic:
            if self.pair.waits(self.waiting_name(walker)):
                self.pair.give_up(self.waiting_name(walker))
        for topic in CHANGING_TOPICS:
            if topic in self.partitions:
                self.pair.change(f"delete {topic}", lambda side, topic=topic: side.delete_topic(topic))  # type: ignore[misc]

    # members of KIP-848

    def some_topics(self) -> list[str]:
        chance = self.chance
        return sorted(
            chance.sample([*FIXED_TOPICS, *CHANGING_TOPICS, "nothing"], chance.choice([0, 1, 1, 2, 2, 3]))
        )

    def modern(self) -> None:
        chance = self.chance
        group, walker = chance.choice(self.walkers)
        if self.mood == CLASSIC and group is self.ranged:
            if walker.epoch:
                self.leave(group, walker)
            else:
                self.classical()
            return
        if not walker.is_in:
            if chance.random() < 0.85:
                self.join(group, walker)
            else:
                group.beat(walker.id, chance.choice([-1, 1, 5]), ANY, instance=walker.instance)
            return
        todo = [self.heartbeat] * 10 + [self.wrong_epoch] * 2 + [self.resubscribe] * 3 + [self.leave] * 2
        chance.choice([*todo, self.release, self.join_again, self.strange_instance])(group, walker)

    def join(self, group: Asking, walker: Walker) -> None:
        chance = self.chance
        if walker.epoch != -2:
            walker.begin_again()
            walker.instance = f"i{walker.slot}" if chance.random() < 0.4 else None
        elif chance.random() < 0.7:
            walker.begin_again()
        answer = group.join(
            walker.id,
            self.some_topics(),
            ANY,
            instance=walker.instance,
            assignor=walker.assignor,
            rack=chance.choice([None, None, "r1"]),
            version=chance.choice([0, 1, 1]),
            client_id=chance.choice(["client", "client", "other"]),
        )
        walker.learn(answer)

    def some_owned(self, walker: Walker) -> Owned | None:
        chance = self.chance
        roll = chance.random()
        if roll < 0.3:
            return None
        if roll < 0.75:
            return walker.owned
        if roll < 0.85:
            return walker.owned_before
        if roll < 0.9 or not walker.owned:
            return {}
        topic = chance.choice(sorted(walker.owned))
        if roll < 0.95:
            return walker.owned | {topic: walker.owned[topic][:-1]}
        return walker.owned | {chance.choice([topic, "t1", "nothing"]): [0, 6]}

    def heartbeat(self, group: Asking, walker: Walker) -> None:
        chance = self.chance
        more: dict[str, Any] = {}
        if chance.random() < 0.1:
            more = {"names": self.some_topics(), "timeout": REBALANCE_TIMEOUT_MS}
        self.beat(group, walker, walker.epoch, owned=self.some_owned(walker), **more)

    def wrong_epoch(self, group: Asking, walker: Walker) -> None:
        epoch = max(1, walker.epoch + self.chance.choice([-1, -1, -2, 1, 3]))
        answer = group.beat(walker.id, epoch, ANY, instance=walker.instance, owned=self.some_owned(walker))
        walker.learn(answer)

    def resubscribe(self, group: Asking, walker: Walker) -> None:
        owned = self.some_owned(walker)
        self.beat(group, walker, walker.epoch, owned=owned, names=self.some_topics())

    def beat(self, group: Asking, walker: Walker, epoch: int, **fields: Any) -> None:
        answer = group.beat(walker.id, epoch, ANY, instance=walker.instance, **fields)
        walker.learn(answer)
        if answer["ErrorCode"] in REFUSED:
            walker.epoch = 0

    def leave(self, group: Asking, walker: Walker) -> None:
        group.beat(walker.id, -1, ANY, instance=walker.instance)
        walker.epoch = 0

    def release(self, group: Asking, walker: Walker) -> None:
        answer = group.beat(walker.id, -2, ANY, instance=walker.instance)
        if answer["ErrorCode"] == 0:
            walker.epoch = -2

    def join_again(self, group: Asking, walker: Walker) -> None:
        """Epoch 0 of a member that is in the group."""
        answer = group.join(
            walker.id, self.some_topics(), ANY, instance=walker.instance, assignor=walker.assignor
        )
        walker.learn(answer)

    def strange_instance(self, group: Asking, walker: Walker) -> None:
        """Another member with the instance of this one."""
        if walker.instance is None:
            return
        if group is self.single or self.chance.random() < 0.5:
            group.beat("stranger", walker.epoch, ANY, instance=walker.instance)
        else:
            group.join("stranger", self.some_topics(), ANY, instance=walker.instance, assignor="range")

    # classic members

    def waiting_name(self, walker: ClassicWalker) -> str:
        return f"{walker.slot} of {self.seed}"

    def classical(self) -> None:
        chance = self.chance
        walker = chance.choice(self.classic)
        if self.mood == MODERN:
            if walker.id:
                self.classic_leave(walker)
            else:
                self.modern()
        elif walker.stage == OUT:
            self.classic_join(walker)
        elif walker.stage == WAITING:
            self.classic_beat(walker)
        elif walker.stage == MADE:
            chance.choice([self.classic_join] * 8 + [self.classic_leave])(walker)
        elif walker.stage == JOINED:
            chance.choice([self.classic_sync_all] * 8 + [self.classic_beat, self.classic_leave])(walker)
        else:
            todo = [self.classic_beat] * 8 + [self.classic_join] * 4 + [self.wrong_sync, self.classic_leave]
            chance.choice(todo)(walker)

    def classic_join(self, walker: ClassicWalker) -> None:
        chance = self.chance
        group = self.ranged
        made = None
        if walker.stage == OUT:
            walker.incarnation += 1
            walker.topics = self.some_topics()
            walker.instance = f"j{walker.slot}" if chance.random() < 0.25 else None
            own = not walker.is_refused and not walker.instance and self.takes_any_id(group)
            walker.id = f"{walker.client_id}-own" if own else ""
        elif self.takes_any_id(group) is None:
            walker.leave()
            return
        if walker.stage != OUT and chance.random() < 0.3:
            walker.topics = self.some_topics()
        if not walker.id:
            made = f"{walker.client_id}-made"
        walker.revision += 1
        metadata = subscription(*walker.topics, user_data=b"%d" % walker.revision)
        body = group.classic_body(
            walker.id,
            walker.topics,
            GroupInstanceId=walker.instance,
            Protocols=[{"Name": "range", "Metadata": metadata}],
        )
        walker.stage = WAITING
        self.pair.send(self.waiting_name(walker), "JoinGroup", 9, body, walker.client_id, made)

    def takes_any_id(self, group: Asking) -> bool | None:
        """Whether the group is one of KIP-848 with members, which takes any id in JoinGroup. None if it is empty.

        An empty one is forgotten by Kafka when it refuses an id, without a record that says that it is gone.
        """
        (found,) = group.describe(ANY)["Groups"]
        if found["ErrorCode"]:
            return False
        return True if found["Members"] else None

    def classic_sync_all(self, walker: ClassicWalker) -> None:
        """SyncGroup of all classic members, each with the plan, because any of them may be the leader."""
        joined = [each for each in self.classic if each.stage == JOINED]
        everyone = sorted(each.id for each in self.classic if each.id)
        planned: dict[str, Owned] = {member: {} for member in everyone}
        for topic in ("t3", "t7"):
            for number in range(FIXED_TOPICS[topic]):
                planned[everyone[number % len(everyone)]].setdefault(topic, []).append(number)
        assignments = [{"MemberId": member, "Assignment": plan(owned)} for member, owned in planned.items()]
        for each in joined:
            self.send_sync(each, each.generation, assignments)

    def send_sync(self, walker: ClassicWalker, generation: int, assignments: list[dict[str, Any]]) -> None:
        body = {
            "GroupId": self.ranged.group,
            "GenerationId": generation,
            "MemberId": walker.id,
            "GroupInstanceId": walker.instance,
            "ProtocolType": "consumer",
            "ProtocolName": "range",
            "Assignments": assignments,
        }
        walker.stage = WAITING
        self.pair.send(self.waiting_name(walker), "SyncGroup", 5, body, walker.client_id)

    def wrong_sync(self, walker: ClassicWalker) -> None:
        self.send_sync(walker, walker.generation + self.chance.choice([-1, 0, 1]), [])

    def classic_beat(self, walker: ClassicWalker) -> None:
        generation = walker.generation + self.chance.choice([0] * 8 + [-1, 1])
        self.ranged.classic_beat(walker.id, generation, ANY, walker.instance)

    def classic_leave(self, walker: ClassicWalker) -> None:
        member = "" if walker.instance and self.chance.random() < 0.3 else walker.id
        answer = self.ranged.classic_leave((member, walker.instance), expect=ANY)
        if answer["ErrorCode"] == 0:
            walker.leave()
        # The rebalance of a group without members ends by a timer of no time.
        self.pair.change("timers", lambda side: side.pass_through())

    def settle(self) -> None:
        for name, answer in self.pair.settle(loosened).items():
            (walker,) = [each for each in self.classic if self.waiting_name(each) == name]
            self.learn(walker, answer)

    def learn(self, walker: ClassicWalker, answer: Any) -> None:
        assert answer not in (WAITS, CLOSED), answer
        code = answer["ErrorCode"]
        if "GenerationId" not in answer:
            walker.stage = STABLE if code == 0 else MADE
            if code == ErrorCode.ILLEGAL_GENERATION:
                walker.stage = JOINED if walker.generation >= 0 else MADE
            if code in REFUSED:
                walker.leave()
        elif code == 0:
            walker.stage, walker.id, walker.generation = JOINED, answer["MemberId"], answer["GenerationId"]
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            made = answer["MemberId"]
            is_of_classic_group = self.pair.sides[0].made_id(made).startswith(walker.client_id)
            walker.leave()
            if is_of_classic_group:
                walker.stage, walker.id = MADE, made
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            walker.stage = MADE
        else:
            was_own = walker.id.endswith("-own")
            walker.leave()
            walker.is_refused = code == ErrorCode.UNKNOWN_MEMBER_ID and was_own

    # offsets

    def offsets(self) -> None:
        chance = self.chance
        version = chance.choice([8, 9, 10, 10])
        group, walker = chance.choice(self.walkers)
        member, epoch, instance = walker.id, walker.epoch, walker.instance
        classic = chance.choice(self.classic)
        if group is self.ranged and chance.random() < 0.3 and classic.id:
            member, epoch, instance = classic.id, classic.generation, classic.instance
        epoch += chance.choice([0] * 6 + [-1, -1, 1])
        if chance.random() < 0.1:
            member, epoch, instance = "", -1, None
        topics = sorted(chance.sample([*FIXED_TOPICS, *CHANGING_TOPICS], chance.choice([1, 1, 2])))
        if chance.random() < 0.6:
            offsets = {
                topic: {number: chance.randrange(100) for number in self.some_partitions(topic)}
                for topic in topics
            }
            group.commit(member, epoch, offsets, ANY, version, instance)
        else:
            asked = {topic: self.some_partitions(topic) for topic in topics}
            reader = chance.choice([member, None])
            group.fetch(
                reader,
                epoch if reader is not None else -1,
                chance.choice([asked, asked, None]),
                ANY,
                chance.choice([9, 10]),
                chance.random() < 0.4,
            )


def loosened(answer: Any) -> Any:
    """Which of several classic members leads is the order of a hash table."""
    if isinstance(answer, dict) and answer.get("Leader") and len(answer["Members"]) != 1:
        return answer | {"Leader": "a member", "Members": None, "SkipAssignment": None}
    return answer
