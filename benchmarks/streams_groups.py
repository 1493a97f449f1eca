"""Members of one streams group (KIP-1071): what heartbeats cost the broker, and how soon the tasks of a member that dies or
leaves are active elsewhere.

    python -m benchmarks --only "streams groups" --rounds 5

measures both brokers in turn, at full size: 100 and 1,000 members with 2,000 tasks. Each member is a process of its own of
one raw-protocol generator, with a heartbeat in each round, at equal intervals for both brokers. Half of the tasks read a
repartition topic that the broker creates.

A smaller trial, of one broker:

    python -c "from benchmarks.streams_groups import *; print(membership(20, 40, 2000)('kafkacompat'))"
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.consumer_groups import (
    GROUP,
    INTERVAL_S,
    TOPIC,
    Figures,
    Fleet,
    find_coordinator,
    steady,
    wait_until_idle,
)
from benchmarks.measure import cpu_seconds, create_topic, memory_mb, running
from kafkacompat.wire.codec import encode
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kafkacompat.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

HEARTBEAT = 88
LEAVES = -1
SESSION_MS = 15_000
"""A round of a JVM that is cold takes seconds."""
SETTINGS = {
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": str(int(INTERVAL_S * 1000)),
}
REPARTITION = f"{GROUP}-words-repartition"
TOPOLOGY = Topology(
    subtopologies=[
        Subtopology(subtopology_id="0", source_topics=[TOPIC], repartition_sink_topics=[REPARTITION]),
        Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name=REPARTITION)]),
    ]
)


class StreamsMember:
    __slots__ = ("epoch", "member_id", "tasks", "told")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.tasks: list[TaskIds] = []
        self.told = False
        """Whether the broker knows what it has."""

    @property
    def load(self) -> int:
        return sum(len(each.partitions) for each in self.tasks)

    def request(self) -> bytes:
        joins = self.epoch == 0
        message = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            topology=TOPOLOGY if joins else None,
            process_id=self.member_id if joins else None,
            client_tags=[] if joins else None,
            active_tasks=[] if joins else None if self.told else self.tasks,
            standby_tasks=None if self.told and not joins else [],
            warmup_tasks=None if self.told and not joins else [],
        )
        self.told = True
        return encode(message, 1)

    def answered(self, answer: StreamsGroupHeartbeatResponse) -> None:
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.tasks = [
                TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
                for each in answer.active_tasks
            ]
            self.told = False


def membership(count: int, tasks: int, heartbeats: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, tasks // 2)
            find_coordinator(broker.bootstrap)
            wait_until_idle(broker)
            fleet = Fleet(broker.bootstrap, tasks, StreamsMember, HEARTBEAT, StreamsGroupHeartbeatResponse)
            fleet.add(count)
            before = cpu_seconds(broker)
            figures = {"all join, s": fleet.settle()}
            fleet.rest()
            fleet.add(1)
            figures["one joins, s"] = fleet.settle()
            fleet.rest()
            leaving = fleet.members.pop()
            leaving.epoch = LEAVES
            fleet.ask([leaving])
            figures["one leaves, s"] = fleet.settle()
            fleet.add(1)
            fleet.settle()
            fleet.rest()
            last_heartbeat = time.perf_counter() - INTERVAL_S
            fleet.members.pop()
            fleet.settle()
            lost = time.perf_counter() - last_heartbeat
            figures["one is lost: its tasks are active, s after its session"] = lost - SESSION_MS / 1000
            figures["broker CPU s of these"] = cpu_seconds(broker) - before
            figures |= steady(broker, fleet, heartbeats)
            figures["memory MB"] = memory_mb(broker)
        return figures

    return run
