"""The requests of the members and administrators of one streams group, and the topologies that members tell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from interop_tests.consumer_groups.asking import REBALANCE_TIMEOUT_MS, Asking
from interop_tests.consumer_groups.pair import Pair
from interop_tests.consumer_groups.talk import SETTINGS, Body, Side
from interop_tests.harness.raw_kafka import ErrorCode, topic_id
from interop_tests.harness.waiting import wait_until

GROUP_SIZE_MAX = 5
STREAMS_SETTINGS = SETTINGS | {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.session.timeout.ms": "1800000",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.max.size": str(GROUP_SIZE_MAX),
    "default.replication.factor": "1",
}
MISSING_INTERNAL_TOPICS = 3
Tasks = dict[str, list[int]]
"""Partitions by subtopology."""
Owned = tuple[Tasks, Tasks, Tasks]
"""Active, standby and warm-up tasks."""
NOTHING: Owned = ({}, {}, {})


class StreamsSide(Side):
    def knows_topics(self, names: Sequence[str]) -> None:
        """Wait until the broker has created these internal topics."""

        def are_there() -> bool:
            answer = self.connection.call(
                "Metadata",
                12,
                {"Topics": [{"Name": name} for name in names], "AllowAutoTopicCreation": False},
            )
            return all(topic["ErrorCode"] == 0 for topic in answer["Topics"])

        wait_until(are_there, f"{self.kind} has created {names}", 20, 0.01)
        for name in names:
            self.names.learn(topic_id(self.connection, name), name)
        self.pass_barrier()


def topic(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> Body:
    pairs = [{"Key": key.replace("_", "."), "Value": value} for key, value in configs.items()]
    return {"Name": name, "Partitions": partitions, "ReplicationFactor": replicas, "TopicConfigs": pairs}


def subtopology(
    number: str,
    sources: Sequence[str] = (),
    sinks: Sequence[str] = (),
    repartition: Sequence[Body] = (),
    changelogs: Sequence[Body] = (),
    copartitioned: Sequence[tuple[list[int], list[int]]] = (),
    regex: Sequence[str] = (),
) -> Body:
    """`copartitioned`: indexes into `sources` and `repartition`."""
    return {
        "SubtopologyId": number,
        "SourceTopics": [*sources],
        "SourceTopicRegex": [*regex],
        "StateChangelogTopics": [*changelogs],
        "RepartitionSinkTopics": [*sinks],
        "RepartitionSourceTopics": [*repartition],
        "CopartitionGroups": [
            {"SourceTopics": of_sources, "SourceTopicRegex": [], "RepartitionSourceTopics": of_internal}
            for of_sources, of_internal in copartitioned
        ],
    }


def topology(*subtopologies: Body, epoch: int = 0) -> Body:
    return {"Epoch": epoch, "Subtopologies": [*subtopologies]}


def internal_topics(told: Body) -> list[str]:
    return sorted(
        {
            each["Name"]
            for one in told["Subtopologies"]
            for kind in ("RepartitionSourceTopics", "StateChangelogTopics")
            for each in one[kind]
        }
    )


def tasks_in(told: list[Body] | None) -> Tasks:
    return {each["SubtopologyId"]: each["Partitions"] for each in told or []}


def task_ids(tasks: Tasks) -> list[Body]:
    return [{"SubtopologyId": number, "Partitions": partitions} for number, partitions in tasks.items()]


def with_tasks(known: Owned, answer: Body) -> Body:
    """The answer with the tasks that the member has by it."""
    if answer["ErrorCode"] != 0 or answer["ActiveTasks"] is not None:
        return answer
    active, standby, warmup = map(task_ids, known)
    return answer | {"ActiveTasks": active, "StandbyTasks": standby, "WarmupTasks": warmup}


class StreamsAsking(Asking):
    """One group."""

    def __init__(self, pair: Pair, group: str) -> None:
        super().__init__(pair, group)
        self.told: Body | None = None
        """The topology of the first member that was not refused."""
        self.is_lost = False
        """Whether Kafka has failed to answer. What it has changed before that is accidental."""

    def streams_beat(
        self,
        member: str,
        epoch: int,
        expect: int | None = 0,
        *,
        version: int = 1,
        owned: Owned | None = None,
        known: Owned | None = None,
        client_id: str = "client",
        **fields: Any,
    ) -> Any:
        """StreamsGroupHeartbeat. Fields have the protocol's names. `known`: the tasks that the member was told last.
        kafkacompat tells them again when the member tells others, and Kafka does not."""
        body: Body = {"GroupId": self.group, "MemberId": member, "MemberEpoch": epoch} | fields
        if owned is not None:
            active, standby, warmup = map(task_ids, owned)
            body |= {"ActiveTasks": active, "StandbyTasks": standby, "WarmupTasks": warmup}
        loosen = None if owned is None or known is None else partial(with_tasks, known)
        answer = self.pair.ask("StreamsGroupHeartbeat", version, body, client_id, loosen=loosen)
        statuses = [each["StatusCode"] for each in answer["Status"] or []]
        if MISSING_INTERNAL_TOPICS in statuses and self.told is not None:
            names = internal_topics(self.told)
            self.pair.change("internal topics are there", lambda side: side.knows_topics(names))  # type: ignore[attr-defined]
        self.is_lost = self.is_lost or answer["ErrorCode"] == ErrorCode.UNKNOWN_SERVER_ERROR
        return self._expected(answer, answer["ErrorCode"], expect)

    def streams_join(self, member: str, told: Body, expect: int | None = 0, **fields: Any) -> Any:
        """The first heartbeat of a member."""
        before = self.told
        if before is None:
            self.told = told
        first = {
            "RebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
            "Topology": told,
            "ProcessId": f"process of {member}",
            "ClientTags": [],
            "owned": NOTHING,
        } | fields
        answer = self.streams_beat(member, 0, expect, **first)
        if answer["ErrorCode"] != ErrorCode.NONE:
            self.told = before
        return answer

    def streams_describe(
        self, expect: int | None = 0, version: int = 1, *, includes_description: bool = False
    ) -> Any:
        body: Body = {"GroupIds": [self.group], "IncludeAuthorizedOperations": version == 0}
        if includes_description:
            body["IncludeTopologyDescription"] = True
        answer = self.pair.ask("StreamsGroupDescribe", version, body)
        return self._expected(answer, answer["Groups"][0]["ErrorCode"], expect)


class Worker:
    """A member, and the tasks that it has as far as Kafka's answers say."""

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.id = slot
        self.incarnation = 0
        self.instance: str | None = None
        self.process = "p"
        self.epoch = 0
        self.endpoint_epoch = 0
        self.owned: Owned = NOTHING
        self.owned_before: Owned = NOTHING

    @property
    def is_in(self) -> bool:
        return self.epoch > 0

    def begin_again(self) -> None:
        self.incarnation += 1
        self.id = f"{self.slot}{self.incarnation}"
        self.epoch, self.endpoint_epoch = 0, 0
        self.owned = self.owned_before = NOTHING

    def learn(self, answer: Any) -> None:
        if answer["ErrorCode"] != 0:
            if answer["ErrorCode"] in (25, 82, 110):  # unknown member, fenced instance, fenced epoch
                self.epoch, self.owned = 0, NOTHING
            return
        self.epoch = answer["MemberEpoch"]
        self.endpoint_epoch = answer["EndpointInformationEpoch"]
        if answer["ActiveTasks"] is not None:
            self.owned_before = self.owned
            self.owned = (
                tasks_in(answer["ActiveTasks"]),
                tasks_in(answer["StandbyTasks"]),
                tasks_in(answer["WarmupTasks"]),
            )
