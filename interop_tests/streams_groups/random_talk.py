"""Random talks of members and administrators of streams groups, made from a seed while Kafka's answers come."""

from __future__ import annotations

import random
from typing import Any

from interop_tests.consumer_groups.asking import ANY
from interop_tests.consumer_groups.pair import Pair
from interop_tests.consumer_groups.talk import Body
from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.streams_groups.asking import (
    NOTHING,
    Owned,
    StreamsAsking,
    Worker,
    subtopology,
    topic,
    topology,
)

FIXED_TOPICS = {"t1": 1, "t3": 3, "u3": 3, "t7": 7}
CHANGING_TOPIC = "p"
EPISODE = 60
"""Requests, after which a new group has another topology."""


def topologies(name: str) -> list[Body]:
    """Good ones and bad ones."""
    compact = {"cleanup_policy": "compact", "message_timestamp_type": "CreateTime"}
    return [
        topology(subtopology("0", ["t3"])),
        topology(subtopology("0", ["t3", "t1"]), subtopology("1", ["t7"])),
        topology(subtopology("0", ["t3"], changelogs=[topic(f"{name}-s-changelog", **compact)])),
        topology(
            subtopology("0", ["t3"], sinks=[f"{name}-r-repartition"]),
            subtopology(
                "1",
                repartition=[topic(f"{name}-r-repartition", 0, 1, cleanup_policy="delete")],
                changelogs=[topic(f"{name}-c-changelog", 0, 1, **compact)],
            ),
        ),
        topology(
            subtopology(
                "a", ["t3", "u3"], copartitioned=[([0, 1], [])], changelogs=[topic(f"{name}-j-changelog")]
            ),
            subtopology("b", ["t1"], sinks=[f"{name}-q-repartition"]),
            subtopology(
                "c", ["u3"], repartition=[topic(f"{name}-q-repartition")], copartitioned=[([0], [0])]
            ),
        ),
        topology(subtopology("0", ["t3", CHANGING_TOPIC], changelogs=[topic(f"{name}-z-changelog")])),
        topology(subtopology("0", ["t3", "t1"], copartitioned=[([0, 1], [])])),
        topology(subtopology("0", ["nothing"])),
        topology(subtopology("0")),
        topology(subtopology("0", ["t3"], changelogs=[topic(f"{name}-x-changelog", 3)])),
        topology(subtopology("0", ["t3"], repartition=[topic(f"{name}-y-repartition")])),
        topology(subtopology("0", ["t3"], regex=["t.*"])),
        topology(subtopology("0", ["t3"], sinks=["not a name"])),
        topology(subtopology("0", ["__consumer_offsets"])),
        topology(subtopology("0", ["t3"], copartitioned=[([4], [])])),
        topology(subtopology("0", ["t3", "t1", "t3"], changelogs=[topic(f"{name}-d-changelog")])),
        topology(subtopology("0", ["t3"]), epoch=-1),
        topology(subtopology("0", ["t3"]), subtopology("0", ["t1"])),
        topology(
            subtopology("0", sinks=["b"], repartition=[topic("a")]),
            subtopology("1", sinks=["a"], repartition=[topic("b")]),
        ),
    ]


GOOD = 6
"""So many of them may run."""


class RandomTalk:
    """One group and one topology."""

    def __init__(self, pair: Pair, seed: int, episode: int) -> None:
        self.pair = pair
        self.chance = random.Random(f"{seed}/{episode}/streams groups")
        self.place = f"seed {seed}, episode {episode}"
        self.name = f"streams{seed}-{episode}"
        self.group = StreamsAsking(pair, self.name)
        choices = topologies(self.name)
        self.others = choices
        self.topology = choices[self.chance.randrange(GOOD if self.chance.random() < 0.8 else len(choices))]
        self.workers = [Worker(slot) for slot in "abcd"]
        self.has_topic = False
        self.classic_members = 0

    def walk(self, requests: int) -> None:
        until = self.pair.asked + requests
        step = 0
        kinds = (
            [self.member] * 16
            + [self.describe] * 2
            + [self.commit] * 2
            + [self.administer, self.change_topic, self.configure, self.classic]
        )
        while self.pair.asked < until and not self.group.is_lost:
            step += 1
            self.pair.place = f"{self.place}, step {step}"
            self.chance.choice(kinds)()
        self.pair.place = f"{self.place}, the end"
        if not self.group.is_lost:
            self.group.streams_describe(ANY)
        self.group.fetch(None, -1, None, ANY)
        self.group.list()
        if self.has_topic:
            self.pair.change("delete the topic", lambda side: side.delete_topic(CHANGING_TOPIC))

    # members

    def member(self) -> None:
        chance = self.chance
        worker = chance.choice(self.workers)
        if not worker.is_in:
            if chance.random() < 0.85:
                self.join(worker)
            else:
                self.beat(worker, chance.choice([-1, 1, 5]))
            return
        todo = [self.heartbeat] * 12 + [self.wrong_epoch] * 2 + [self.leave] * 2
        chance.choice([*todo, self.join_again, self.strange])(worker)

    def join(self, worker: Worker) -> None:
        chance = self.chance
        if worker.epoch != -2 or chance.random() < 0.7:
            instance = worker.instance if worker.epoch == -2 else None
            worker.begin_again()
            worker.instance = instance or (f"i{worker.slot}" if chance.random() < 0.3 else None)
        worker.process = chance.choice(["p", "q", "r"])
        told = self.topology
        if chance.random() < 0.05:
            told = chance.choice([self.topology | {"Epoch": 1}, chance.choice(self.others)])
        answer = self.group.streams_join(
            worker.id,
            told,
            ANY,
            version=chance.choice([0, 1, 1]),
            client_id=chance.choice(["client", "client", "other"]),
            **self.said(worker),
        )
        worker.learn(answer)

    def said(self, worker: Worker) -> dict[str, Any]:
        chance = self.chance
        tags = chance.choice([[], [{"Key": "zone", "Value": "z1"}, {"Key": "cluster", "Value": "c"}]])
        return {
            "InstanceId": worker.instance,
            "RackId": chance.choice([None, None, "r1"]),
            "ProcessId": worker.process,
            "UserEndpoint": chance.choice([None, {"Host": f"h{worker.slot}", "Port": 8080}]),
            "ClientTags": tags,
        }

    def some_owned(self, worker: Worker) -> Owned | None:
        chance = self.chance
        roll = chance.random()
        if roll < 0.3:
            return None
        if roll < 0.8:
            return worker.owned
        if roll < 0.88:
            return worker.owned_before
        if roll < 0.95:
            return NOTHING
        return ({chance.choice(["0", "1", "a", "9"]): [chance.randrange(9)]}, *worker.owned[1:])

    def beat(self, worker: Worker, epoch: int, **fields: Any) -> None:
        answer = self.group.streams_beat(
            worker.id,
            epoch,
            ANY,
            InstanceId=worker.instance,
            EndpointInformationEpoch=worker.endpoint_epoch,
            known=worker.owned,
            **fields,
        )
        worker.learn(answer)

    def heartbeat(self, worker: Worker) -> None:
        chance = self.chance
        more: dict[str, Any] = {}
        if chance.random() < 0.1:
            more = {"ProcessId": worker.process, "UserEndpoint": {"Host": "moved", "Port": 8081}}
        if chance.random() < 0.1:
            more |= {"TaskOffsets": [{"SubtopologyId": "0", "Partition": 1, "Offset": chance.randrange(99)}]}
        if chance.random() < 0.02:
            more["ShutdownApplication"] = True
        self.beat(
            worker, worker.epoch, owned=self.some_owned(worker), version=chance.choice([0, 1, 1]), **more
        )

    def wrong_epoch(self, worker: Worker) -> None:
        epoch = max(1, worker.epoch + self.chance.choice([-1, -1, -2, 1, 3]))
        self.beat(worker, epoch, owned=self.some_owned(worker))

    def leave(self, worker: Worker) -> None:
        self.beat(worker, -2 if worker.instance and self.chance.random() < 0.5 else -1)

    def join_again(self, worker: Worker) -> None:
        """With its old id."""
        answer = self.group.streams_join(worker.id, self.topology, ANY, **self.said(worker))
        worker.learn(answer)

    def strange(self, worker: Worker) -> None:
        """What no client says."""
        chance = self.chance
        twice = [{"SubtopologyId": "0", "Partition": 0, "Offset": offset} for offset in (1, 2)]
        wrong: list[dict[str, Any]] = [
            {"MemberId": ""},
            {"GroupId": ""},
            {"InstanceId": ""},
            {"RackId": ""},
            {"InstanceId": "unknown"},
            {"MemberEpoch": -3},
            {"MemberEpoch": -2, "InstanceId": None},
            {"MemberEpoch": 0, "Topology": None, "RebalanceTimeoutMs": 1000},
            {"MemberEpoch": 0, "Topology": self.topology},
            {"Topology": self.topology},
            {"ActiveTasks": []},
            {"TaskOffsets": twice},
        ]
        fields: dict[str, Any] = {"InstanceId": worker.instance} | chance.choice(wrong)
        self.group.streams_beat(worker.id, worker.epoch, ANY, **fields)

    def classic(self) -> None:
        """The application with the classic protocol, which takes over an empty group and leaves it."""
        self.classic_members += 1
        name = f"classic{self.classic_members}"
        answer = self.group.classic_join("", ["t3"], ANY, made=name)
        if answer["ErrorCode"] != ErrorCode.MEMBER_ID_REQUIRED:
            return
        answer = self.group.classic_join(name, ["t3"], ANY)
        self.group.describe_classic(ANY)
        self.member()
        if answer["ErrorCode"] == 0:
            self.group.classic_leave((name, None), expect=ANY)

    # offsets and administrators

    def commit(self) -> None:
        chance = self.chance
        worker = chance.choice(self.workers)
        epoch = worker.epoch + chance.choice([0, 0, -1, 1]) if worker.is_in else -1
        offsets = {chance.choice(["t3", "t1"]): {chance.randrange(3): chance.randrange(100)}}
        self.group.commit(
            worker.id if worker.is_in else "", epoch, offsets, ANY, version=chance.choice([8, 9, 9])
        )
        self.group.fetch(worker.id, worker.epoch, None, ANY)

    def describe(self) -> None:
        if self.chance.random() < 0.7:
            version, includes_description = self.chance.choice([(0, False), (1, False), (1, True)])
            self.group.streams_describe(ANY, version, includes_description=includes_description)
        else:
            self.group.list(types=self.chance.choice([[], ["streams"], ["classic"]]))

    def administer(self) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            self.group.delete_offsets("t3", [0], ANY)
        elif chance.random() < 0.5:
            self.group.delete(ANY)
        else:
            self.group.describe(ANY)

    def change_topic(self) -> None:
        """The topic from which one of the topologies reads comes or goes."""
        self.has_topic = not self.has_topic
        if self.has_topic:
            count = self.chance.choice([3, 5])
            self.pair.change("create a topic", lambda side: side.create_topic(CHANGING_TOPIC, count))
        else:
            self.pair.change("delete the topic", lambda side: side.delete_topic(CHANGING_TOPIC))

    def configure(self) -> None:
        name, values = self.chance.choice(
            [
                ("streams.num.standby.replicas", ["0", "1", "2", "3", None]),
                ("streams.rack.aware.assignment.tags", ["zone", "zone,rack", None]),
                ("streams.heartbeat.interval.ms", ["6000", "1", None]),
            ]
        )
        self.group.configure(name, self.chance.choice(values), ANY)
