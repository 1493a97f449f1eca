"""A cluster with share groups, in which the leader of the records, the share coordinator and the group coordinator are
known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from interop_tests.cluster import moving, views
from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.broker import APACHE
from interop_tests.harness.raw_kafka import produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.schema import DecodeError
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import Leader
from interop_tests.share_groups.sides import SHARE_KEY_TYPE, STATE_TOPIC

OFFSETS_TOPIC = "__consumer_offsets"
HELD, LOAD = "held", "load"
"""The topic of the groups that are held in their states, and that of the groups at work."""
RECORDS = 12
"""Records in `HELD`, in batches of one."""
STUCK_S = 10.0
"""How long nothing comes until a member of a leader that `may_be_stuck` opens a new session."""
LOCK_S = 5.0
"""Of the groups at work. Those that are held have long locks."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Snapshots and updates are both loaded by the next coordinator.
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.record.lock.duration.ms": "3600000",
    # No lock of a group that is held ends while a test runs.
    "group.share.record.lock.duration.ms": "1800000",
}
BROKEN = (*views.BROKEN, DecodeError)
PASSING = (3, 5, 6, 14, 15, 16, 74, 100)
"""Errors of a leader or coordinator that has just moved, or whose metadata is behind."""
GROUP_ID_NOT_FOUND = 69
AVAILABLE = 0


class State(NamedTuple):
    """What the share coordinator keeps of a share-partition."""

    state_epoch: int
    start: int
    """-1 before the first write."""
    records: dict[int, tuple[int, int]]
    """State and delivery count of each record that it tells of."""

    def is_ended(self, offset: int) -> bool:
        return offset < self.start or self.records.get(offset, (0, 0))[0] != AVAILABLE

    def count(self, offset: int) -> int:
        return self.records.get(offset, (0, 0))[1]

    @property
    def lag(self) -> int:
        """What DescribeShareGroupOffsets says of `HELD`."""
        return -1 if self.start < 0 else RECORDS - sum(map(self.is_ended, range(RECORDS)))

    def left(self) -> dict[int, int]:
        """Each record that a new leader has to deliver, with its next delivery count."""
        return {each: self.count(each) + 1 for each in range(RECORDS) if not self.is_ended(each)}


class Scene:
    """Each of the four topics has one partition: `HELD` and `LOAD`, which one node leads, and those of both
    coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for topic in (HELD, LOAD):
            cluster.create_topic(topic, 1, replication_factor=len(cluster.brokers))
        with Connection(cluster.brokers[0].bootstrap) as connection:
            # The topics of both coordinators are created when one is looked for.
            connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["group"]})
            key = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"
            connection.call("FindCoordinator", 6, {"KeyType": SHARE_KEY_TYPE, "CoordinatorKeys": [key]})
            self.ids = {topic: topic_id(connection, topic) for topic in (HELD, LOAD)}
        for topic in (OFFSETS_TOPIC, STATE_TOPIC):
            cluster.leader(topic)
        cluster.wait_until_replicated()
        self.fill(HELD, RECORDS)

    # who does what

    def leader(self, topic: str) -> Leader | None:
        """In the newest of the nodes' views. None while no node serves."""
        found = moving.serving_leader(self.cluster, topic)
        return None if found is None else Leader(self.cluster.nodes[found[0]].bootstrap, found[1])

    def find(self, topic: str) -> Callable[[], Leader | None]:
        return partial(self.leader, topic)

    def address(self, topic: str) -> Callable[[], str | None]:
        """host:port of the leader."""
        return lambda: (found := self.leader(topic)) and found.address

    def home(self, topic: str) -> int:
        """The id of the leader. Waits until there is one."""
        return self.cluster.wait(
            lambda: moving.serving_leader(self.cluster, topic), f"{topic} has a leader that serves"
        )[0]

    def place(self, leader: int, states: int, groups: int) -> None:
        """Which node leads the records, which one is the share coordinator, and which one the group coordinator."""
        wanted = {HELD: leader, LOAD: leader, STATE_TOPIC: states, OFFSETS_TOPIC: groups}
        for topic, node_id in wanted.items():
            moving.elect(self.cluster, topic, node_id)
        for topic, node_id in wanted.items():
            self.cluster.wait(
                lambda topic=topic, node_id=node_id: self.home(topic) == node_id, f"{node_id} leads {topic}"
            )

    def may_be_stuck(self, topic: str) -> bool:
        """Whether Apache Kafka leads. It may give nothing of a share-partition any more if a share fetch expires just when
        the state has been read: the fetch then keeps the lock for ever (DelayedShareFetch.tryComplete). It reads the
        state again when no member has a session any more."""
        found = moving.serving_leader(self.cluster, topic)
        return found is not None and self.cluster.nodes[found[0]].kind == APACHE

    # requests

    def call(self, topic: str, api: str, version: int, body: Any, timeout_s: float = 10.0) -> Any:
        """The answer of the node that leads this topic. None while there is none."""
        found = self.leader(topic)
        if found is None:
            return None
        try:
            with Connection(found.address, timeout_s=timeout_s) as connection:
                return connection.call(api, version, body)
        except BROKEN:
            return None

    def fill(self, topic: str, count: int, first: int = 0) -> int:
        """Produce so many batches of one record, each until it is acknowledged. Returns the next number."""
        for number in range(first, first + count):

            def is_written(number: int = number) -> bool:
                found = self.leader(topic)
                if found is None:
                    return False
                try:
                    with Connection(found.address, timeout_s=10) as connection:
                        result = produce(connection, topic, BatchPlan.of_now(b"%d" % number), timeout_ms=5000)
                except BROKEN:
                    return False
                return bool(result["ErrorCode"] == 0)

            self.cluster.wait(is_written, f"record {number} of {topic} is written")
        return first + count

    def persisted(self, group: str, leader: Leader) -> State:
        """The state for a leader of this epoch. The share coordinator fences older ones from now on."""
        found = self._told("ReadShareGroupState", group, leader.epoch)
        records = {
            offset: (each["DeliveryState"], each["DeliveryCount"])
            for each in found["StateBatches"]
            for offset in range(each["FirstOffset"], each["LastOffset"] + 1)
        }
        return State(found["StateEpoch"], found["StartOffset"], records)

    def has_state(self, group: str) -> bool:
        return bool(self._told("ReadShareGroupStateSummary", group, -1)["StateEpoch"] != 0)

    def _told(self, api: str, group: str, leader_epoch: int) -> Any:
        """What the share coordinator answers for the group's partition of `HELD`."""
        partitions = [{"Partition": 0, "LeaderEpoch": leader_epoch}]
        body = {"GroupId": group, "Topics": [{"TopicId": self.ids[HELD], "Partitions": partitions}]}

        def probe() -> Any:
            answer = self.call(STATE_TOPIC, api, 0, body)
            if answer is None:
                return None
            (found,) = answer["Results"][0]["Partitions"]
            if found["ErrorCode"] in PASSING:
                return None
            assert found["ErrorCode"] == 0, (group, found)
            return found

        return self.cluster.wait(probe, f"the share coordinator answers {api} for {group}")

    def described(self, group: str) -> dict[str, tuple[int, int]]:
        """DescribeShareGroupOffsets: start offset and lag by topic. Empty for a group that is not there."""
        body = {"Groups": [{"GroupId": group, "Topics": None}]}

        def probe() -> tuple[dict[str, tuple[int, int]]] | None:
            answer = self.call(OFFSETS_TOPIC, "DescribeShareGroupOffsets", 1, body)
            if answer is None:
                return None
            (found,) = answer["Groups"]
            parts = [(topic["TopicName"], each) for topic in found["Topics"] for each in topic["Partitions"]]
            codes = {found["ErrorCode"], *(each["ErrorCode"] for _, each in parts)}
            if codes & {*PASSING}:
                return None
            assert codes <= {0, GROUP_ID_NOT_FOUND}, (group, found)
            return ({name: (each["StartOffset"], each["Lag"]) for name, each in parts},)

        return self.cluster.wait(probe, f"the group coordinator describes {group}")[0]

    def is_done(self, group: str, topic: str) -> bool:
        """Whether the group has ended all records of the topic."""
        found = self.described(group).get(topic)
        return found is not None and found[1] == 0
