"""Streams groups (KIP-1071) that are held in their states while another program opens their directory, by members that are
written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.streams_groups.asking import (
    STREAMS_SETTINGS,
    Tasks,
    subtopology,
    task_ids,
    tasks_in,
    topic,
    topology,
)

TOPIC = "held"
PARTITIONS = 4
REBALANCE_TIMEOUT_MS = 600_000
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
FENCED_MEMBER_EPOCH = 110
STATES = {
    "settled": "Stable",
    "revoking": "Reconciling",
    "away": "Reconciling",
    "waiting": "NotReady",
    "empty": "Empty",
}
"""By group, its state."""
SETTINGS = STREAMS_SETTINGS | {"group.streams.num.standby.replicas": "1"}


class HeldMember:
    """A member that is a process of its own. It does only what it is told to."""

    def __init__(
        self, home: Callable[[], Connection], group: str, name: str, instance: str | None = None
    ) -> None:
        self._home = home
        self.group = group
        self.name = name
        self.instance = instance
        self.lives = 0
        self.epoch = 0
        self.active: Tasks = {}
        self.standby: Tasks = {}
        self.told: tuple[Tasks, Tasks] | None = None
        """Active and standby tasks of the last answer that named some, which the member has not reported yet."""

    def send(self, **fields: Any) -> dict[str, Any]:
        body = {"GroupId": self.group, "MemberId": f"{self.name}-{self.lives}", "InstanceId": self.instance}
        return self._home().call("StreamsGroupHeartbeat", 1, body | {"MemberEpoch": self.epoch} | fields)

    def beat(self, **fields: Any) -> dict[str, Any]:
        """A heartbeat that is accepted."""
        answer = self.send(**fields)
        assert answer["ErrorCode"] == 0, (self.group, self.name, self.epoch, answer)
        self.epoch = answer["MemberEpoch"]
        if answer["ActiveTasks"] is not None:
            self.told = tasks_in(answer["ActiveTasks"]), tasks_in(answer["StandbyTasks"])
        return answer

    def join(self, source: str = TOPIC) -> HeldMember:
        """Join with a topology that has a store."""
        self.lives += 1
        self.epoch, self.active, self.standby = 0, {}, {}
        changelog = topic(f"{self.group}-store-changelog", cleanup_policy="compact")
        self.beat(
            RebalanceTimeoutMs=REBALANCE_TIMEOUT_MS,
            Topology=topology(subtopology("0", [source], changelogs=[changelog])),
            ProcessId=self.name,
            ClientTags=[{"Key": "zone", "Value": self.name}],
            ActiveTasks=[],
            StandbyTasks=[],
            WarmupTasks=[],
        )
        return self

    def take(self) -> None:
        """Revoke and take what was told, and report that."""
        if self.told is None:
            self.beat()
        else:
            (self.active, self.standby), self.told = self.told, None
            tasks = {"ActiveTasks": task_ids(self.active), "StandbyTasks": task_ids(self.standby)}
            self.beat(**tasks, WarmupTasks=[])

    def goes_on(self) -> None:
        """A heartbeat at the present epoch changes nothing, and a later epoch is refused."""
        before = self.epoch, self.told
        self.beat()
        assert (self.epoch, self.told) == before, (self.group, self.name, before)
        assert self.send(MemberEpoch=self.epoch + 1)["ErrorCode"] == FENCED_MEMBER_EPOCH

    def commit(self, offset: int) -> None:
        partitions = [
            {"PartitionIndex": each, "CommittedOffset": offset} for each in self.active.get("0", [])
        ]
        body = {
            "GroupId": self.group,
            "GenerationIdOrMemberEpoch": self.epoch,
            "MemberId": f"{self.name}-{self.lives}",
            "GroupInstanceId": self.instance,
            "Topics": [{"Name": TOPIC, "Partitions": partitions}],
        }
        reply = self._home().call("OffsetCommit", 9, body)
        assert {each["ErrorCode"] for each in reply["Topics"][0]["Partitions"]} == {0}, reply

    def leave(self, epoch: int = LEAVES) -> None:
        answer = self.send(MemberEpoch=epoch)
        assert answer["ErrorCode"] == 0, answer


class HeldStreamsGroups:
    """One group in each of `STATES`. `home` returns the connection to their coordinator."""

    def __init__(self, home: Callable[[], Connection]) -> None:
        self._home = home
        self.settled = [HeldMember(home, "settled", name) for name in ("one", "two")]
        self.stays, self.comes = (HeldMember(home, "revoking", name) for name in ("one", "two"))
        self.static, self.beside = (
            HeldMember(home, "away", name, f"static-{name}") for name in ("one", "two")
        )
        self.waiting = HeldMember(home, "waiting", "one")
        self.last = HeldMember(home, "empty", "one")
        self.offset = 0

    def said(self) -> dict[str, Any]:
        """What the coordinator says of the groups, as far as it is stored."""
        asked = {"GroupIds": list(STATES), "IncludeAuthorizedOperations": False}
        described = self._home().call("StreamsGroupDescribe", 1, asked)["Groups"]
        fetching = [{"GroupId": each, "MemberId": None, "MemberEpoch": -1, "Topics": None} for each in STATES]
        fetched = self._home().call("OffsetFetch", 9, {"Groups": fetching, "RequireStable": True})["Groups"]
        listed = self._home().call("ListGroups", 5, {"StatesFilter": [], "TypesFilter": []})["Groups"]
        return {
            "described": {each["GroupId"]: told_of_group(each) for each in described},
            "offsets": {
                (group["GroupId"], each["PartitionIndex"]): each["CommittedOffset"]
                for group in fetched
                for topic in group["Topics"]
                for each in topic["Partitions"]
            },
            "listed": {each["GroupId"]: each for each in listed if each["GroupId"] in STATES},
        }

    def begin(self) -> dict[str, Any]:
        """Bring each group into its state. Returns what the coordinator says of it."""
        self.offset += 10
        for members in (self.settled, [self.stays], [self.static, self.beside], [self.last]):
            for member in members:
                member.join()
            self.settle(*members)
            for member in members:
                member.commit(self.offset)
        self.comes.join()
        wait_until(lambda: self._revokes(), "a member has to revoke tasks", interval_s=0.1)
        self.static.leave(LEAVES_FOR_A_WHILE)
        self.waiting.join("missing")
        self.last.leave()
        said = self.said()
        states = {name: each["GroupState"] for name, each in said["described"].items()}
        assert states == STATES, states
        assert {each["GroupState"] for each in said["listed"].values()} == set(STATES.values())
        return said

    def _revokes(self) -> bool:
        """The member that was alone knows that it has to give up tasks, and keeps them."""
        self.comes.beat()
        self.stays.beat()
        return self.stays.told is not None and len(self.stays.told[0].get("0", [])) < PARTITIONS

    def settle(self, *members: HeldMember) -> None:
        """The members of a group revoke and take, until they share all tasks, and each has the standbys of others."""

        def is_settled() -> bool:
            for each in members:
                each.take()
            active = sorted(task for each in members for task in each.active.get("0", []))
            standby = sorted(task for each in members for task in each.standby.get("0", []))
            epochs = {each.epoch for each in members}
            whole = list(range(PARTITIONS))
            return (
                all(each.told is None for each in members)
                and len(epochs) == 1
                and active == whole
                and standby == (whole if len(members) > 1 else [])
            )

        wait_until(is_settled, f"the members of {members[0].group} share all tasks", interval_s=0.05)

    def go_on(self) -> None:
        """Each member continues at its epoch."""
        before = self.said()
        for member in (*self.settled, self.beside, self.stays):
            member.goes_on()
        assert self.said() == before

    def finish(self) -> None:
        """Each group leaves its state, and its members leave it."""
        epoch, tasks = self.beside.epoch, (self.static.active, self.static.standby)
        self.static.join()
        self.settle(self.static, self.beside)
        assert (self.static.epoch, (self.static.active, self.static.standby)) == (epoch, tasks)
        self.settle(self.stays, self.comes)
        for member in (*self.settled, self.stays, self.comes, self.static, self.beside, self.waiting):
            member.leave()


def told_of_group(group: dict[str, Any]) -> dict[str, Any]:
    """What another coordinator tells alike from the beginning. The offsets of tasks are not stored, and the partitions of
    internal topics are counted at the next heartbeat."""
    not_stored = {"TaskOffsets", "TaskEndOffsets", "Partitions"}

    def stored(told: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in told.items() if key not in not_stored}

    parts = [
        part
        | {
            key: [stored(each) for each in part[key]]
            for key in ("StateChangelogTopics", "RepartitionSourceTopics")
        }
        for part in group["Topology"]["Subtopologies"] or []
    ]
    members = sorted((stored(each) for each in group["Members"]), key=lambda each: str(each["MemberId"]))
    return group | {"Members": members, "Topology": group["Topology"] | {"Subtopologies": parts}}


def create_source(bootstrap: str) -> None:
    create_topic(bootstrap, TOPIC, PARTITIONS)
