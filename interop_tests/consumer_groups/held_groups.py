"""Consumer groups that are held in every state while their coordinator changes: its program, its process or its node.

The members are written by hand, so that none of them leaves the state by itself. Afterwards the new coordinator must
say of the groups what the old one said, and the members continue at their epochs.
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from interop_tests.cluster.views import BROKEN
from interop_tests.harness import groups as classic
from interop_tests.harness.raw_kafka import ErrorCode, topic_id
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

TOPIC = "held"
PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    # No member is fenced while the coordinator changes.
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
LONG_MS = 600_000
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
FENCED_MEMBER_EPOCH = 110
EVERYTHING = struct.pack(
    f">hih{len(TOPIC)}si{PARTITIONS}ii",
    *(0, 1, len(TOPIC), TOPIC.encode(), PARTITIONS, *range(PARTITIONS), -1),
)
"""A classic consumer's assignment of all partitions."""
COORDINATOR_MOVES = (14, 15, 16)
"""The coordinator is loading, is not available, or has moved."""
STATES = ("mixed", "released", "revoking", "matching", "empty")


class HeldMember:
    """A member of the consumer protocol. It does only what it is told to, one request for each method."""

    def __init__(
        self,
        home: Callable[[], Connection],
        group: str,
        instance: str | None = None,
        regex: str | None = None,
    ) -> None:
        self._home = home
        self.group = group
        self.instance = instance
        self.regex = regex
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.partitions: set[int] = set()
        self.told: set[int] | None = None
        """The partitions of the last response that named some, which the member does not have yet."""

    def send(self, **fields: Any) -> dict[str, Any]:
        body = {"GroupId": self.group, "MemberId": self.member_id, "InstanceId": self.instance}
        body["MemberEpoch"] = self.epoch
        return self._home().call("ConsumerGroupHeartbeat", 1, body | fields)

    def beat(self, **fields: Any) -> dict[str, Any]:
        """A heartbeat that the coordinator accepts."""
        answer = self.send(**fields)
        assert answer["ErrorCode"] == 0, (self.group, self.epoch, answer)
        self.epoch = answer["MemberEpoch"]
        if answer["Assignment"] is not None:
            self.told = {
                each for topic in answer["Assignment"]["TopicPartitions"] for each in topic["Partitions"]
            }
        return answer

    def join(self) -> HeldMember:
        self.member_id, self.epoch, self.partitions = str(uuid.uuid4()), 0, set()
        names = [TOPIC] if self.regex is None else []
        fields = {"SubscribedTopicNames": names, "SubscribedTopicRegex": self.regex, "TopicPartitions": []}
        self.beat(RebalanceTimeoutMs=LONG_MS, **fields)
        self.take()
        return self

    def take(self) -> None:
        """Revoke and take what the coordinator has told, and report that."""
        if self.told is not None:
            self.partitions, self.told = self.told, None
        owned = {"TopicId": topic_id(self._home(), TOPIC), "Partitions": sorted(self.partitions)}
        self.beat(TopicPartitions=[owned] if self.partitions else [])

    def leave(self, epoch: int = LEAVES) -> None:
        answer = self.send(MemberEpoch=epoch)
        assert (answer["ErrorCode"], answer["MemberEpoch"]) == (0, epoch), answer

    def goes_on(self) -> None:
        """A heartbeat at the present epoch changes nothing, and another epoch is refused."""
        before = self.epoch
        answer = self.beat()
        assert (answer["MemberEpoch"], answer["Assignment"]) == (before, None), (self.group, before, answer)
        for epoch in (before + 1, before - 1):
            if epoch > 0:
                assert self.send(MemberEpoch=epoch)["ErrorCode"] == FENCED_MEMBER_EPOCH

    def commit(
        self, offset: int, epoch: int | None = None, numbers: Iterable[int] = range(PARTITIONS)
    ) -> set[int]:
        """Commit this offset for these partitions. Returns the error codes."""
        partitions = [{"PartitionIndex": each, "CommittedOffset": offset} for each in numbers]
        body = {
            "GroupId": self.group,
            "GenerationIdOrMemberEpoch": self.epoch if epoch is None else epoch,
            "MemberId": self.member_id,
            "GroupInstanceId": self.instance,
            "Topics": [{"Name": TOPIC, "Partitions": partitions}],
        }
        reply = self._home().call("OffsetCommit", 9, body)
        return {each["ErrorCode"] for each in reply["Topics"][0]["Partitions"]}

    def may_commit(self, offset: int) -> dict[tuple[int, int], set[int]]:
        """The error codes of a commit of the offset that is committed already, by epoch and partition. A member may
        commit with an older epoch, if it has had the partition since then."""
        epochs = range(max(self.epoch - 3, 1), self.epoch + 2)
        return {
            (epoch, number): self.commit(offset, epoch, [number])
            for epoch in epochs
            for number in range(PARTITIONS)
        }


class HeldGroups:
    """One group in each of `STATES`. `find` returns the address of their coordinator, or None while there is none."""

    def __init__(self, find: Callable[[], str | None]) -> None:
        self._find = find
        self._connection: Connection | None = None
        self.offset = 0
        one, two = (HeldMember(self.home, "revoking") for _ in range(2))
        self.stays, self.comes = one, two
        self.beside_classic = HeldMember(self.home, "mixed")
        self.beside_static = HeldMember(self.home, "released")
        self.static = HeldMember(self.home, "released", instance="static-1")
        self.matching = HeldMember(self.home, "matching", regex=f"{TOPIC[:2]}.*")
        self.last = HeldMember(self.home, "empty")
        self.classic: classic.Member | None = None

    def close(self) -> None:
        for each in (self._connection, self.classic and self.classic.connection):
            if each is not None:
                each.close()

    def home(self) -> Connection:
        """The connection to the coordinator."""
        if self._connection is None:
            address = self._find()
            if address is None:
                raise OSError("no node is the coordinator")
            self._connection = Connection(address)
        return self._connection

    def has_moved(self) -> None:
        """The coordinator is another one, or was started again. Find it, and wait until it serves."""
        if self._connection is not None:
            self._connection.close()
        if self.classic is not None:
            self.classic.connection.close()

        def serves() -> bool:
            self._connection = None
            try:
                codes = {each["ErrorCode"] for each in self._described()}
            except BROKEN:
                return False
            return not codes & set(COORDINATOR_MOVES)

        wait_until(serves, "the coordinator serves the groups")
        if self.classic is not None:
            self.classic.connection = Connection(self.home().bootstrap, client_id="member")

    # what the coordinator says

    def _described(self) -> list[dict[str, Any]]:
        body = {"GroupIds": list(STATES), "IncludeAuthorizedOperations": False}
        return list(self.home().call("ConsumerGroupDescribe", 1, body)["Groups"])

    def described(self) -> dict[str, dict[str, Any]]:
        """Everything that ConsumerGroupDescribe says, in an order that does not depend on the coordinator."""
        found = {each["GroupId"]: each for each in self._described()}
        for group in found.values():
            group["Members"].sort(key=lambda each: each["MemberId"])
            for member in group["Members"]:
                for field in ("Assignment", "TargetAssignment"):
                    for topic in member[field]["TopicPartitions"]:
                        topic["Partitions"].sort()
        return found

    def said(self) -> dict[str, Any]:
        """The description, the offsets, and the list of the groups."""
        asked = [{"GroupId": each, "MemberId": None, "MemberEpoch": -1, "Topics": None} for each in STATES]
        fetched = self.home().call("OffsetFetch", 9, {"Groups": asked, "RequireStable": True})["Groups"]
        for group in fetched:
            for topic in group["Topics"]:
                topic["Partitions"].sort(key=lambda each: each["PartitionIndex"])
        return {
            "described": self.described(),
            "offsets": sorted(fetched, key=lambda each: each["GroupId"]),
            "listed": self._listed(),
            "commits": [each.may_commit(self.offset) for each in self._members()],
        }

    def _listed(self) -> dict[str, dict[str, Any]]:
        filters: dict[str, list[str]] = {"StatesFilter": [], "TypesFilter": []}
        listed = self.home().call("ListGroups", 5, filters)["Groups"]
        return {each["GroupId"]: each for each in listed if each["GroupId"] in STATES}

    def types(self) -> dict[str, str]:
        """The groups' types in ListGroups."""
        return {name: each["GroupType"] for name, each in self._listed().items()}

    def _members(self) -> Iterator[HeldMember]:
        """The members of the consumer protocol that are in their groups."""
        yield from (self.stays, self.comes, self.beside_classic, self.beside_static, self.matching)

    # the states

    def begin(self) -> dict[str, Any]:
        """Bring each group into its state. Returns what the coordinator says of it."""
        self._share_with_classic()
        self._release()
        self._begin_revocation()
        self._match()
        self._join_and_go()
        self._commit()
        said = self.said()
        states = {name: each["GroupState"] for name, each in said["described"].items()}
        wanted = dict(zip(STATES, ("Stable", "Reconciling", "Reconciling", "Stable", "Empty"), strict=True))
        assert states == wanted, states
        types = sorted(each["MemberType"] for each in said["described"]["mixed"]["Members"])
        assert types == [0, 1], "a member of each protocol"
        epochs = [each["MemberEpoch"] for each in said["described"]["released"]["Members"]]
        assert epochs.count(LEAVES_FOR_A_WHILE) == 1
        return said

    def go_on(self) -> None:
        """Each member continues at its epoch with heartbeats and commits."""
        before = self.described()
        for each in self._members():
            each.goes_on()
        assert self.classic is not None
        assert self.classic.heartbeat() == ErrorCode.NONE
        assert (
            self.classic.heartbeat(GenerationId=self.classic.generation - 1) == ErrorCode.ILLEGAL_GENERATION
        )
        self._commit()
        assert self.described() == before

    def finish(self) -> None:
        """Each group leaves its state, as its members expect it."""
        held = self.static.partitions
        epoch = self.described()["released"]["GroupEpoch"]
        assert self.static.join().epoch == epoch, "the return of a static member is no rebalance"
        assert self.static.partitions == held != set()
        self._settle(self.stays, self.comes)
        assert len(self.comes.partitions) == 2
        self.comes.leave()
        self._settle(self.stays)
        self._downgrade()

    def _downgrade(self) -> None:
        """The classic member is left alone. The group becomes a classic one, in which it rebalances."""
        assert self.classic is not None
        self.beside_classic.leave()
        assert self.classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        generation = self.classic.generation
        self._rejoin(self.classic)
        assert (self.classic.is_leader, self.classic.generation) == (True, generation + 1)
        assert self.types()["mixed"] == "classic"

    def _settle(self, *members: HeldMember) -> None:
        """The members of a group revoke and take, until they share all its partitions."""

        def is_settled() -> bool:
            for each in members:
                each.take()
            parts = [each.partitions for each in members if each.told is None]
            return len(parts) == len(members) and sorted(itertools.chain(*parts)) == list(range(PARTITIONS))

        wait_until(is_settled, f"the members of {members[0].group} share all partitions")

    def _rejoin(self, member: classic.Member) -> None:
        """JoinGroup and SyncGroup. The leader of a classic group gives itself everything."""
        answer = member.join()
        assert answer["ErrorCode"] == ErrorCode.NONE, answer
        plan = {member.member_id: EVERYTHING} if member.is_leader else None
        assert member.sync(plan)["ErrorCode"] == ErrorCode.NONE

    def _share_with_classic(self) -> None:
        """A member of each protocol in one group, with two partitions each. The first time the classic member comes to
        a consumer group, and later the other one to a classic group."""
        self.beside_classic.join()
        if self.classic is None:
            self._settle(self.beside_classic)
            self.classic = classic.Member(
                self.home().bootstrap,
                "mixed",
                protocols={"range": classic.subscription(TOPIC)},
                session_timeout_ms=LONG_MS,
                rebalance_timeout_ms=LONG_MS,
            )
            self.classic.get_id()
            self._rejoin(self.classic)
        made = self.classic

        def is_settled() -> bool:
            self.beside_classic.take()
            if made.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin(made)
            return (
                len(self.beside_classic.partitions) == 2
                and self.described()["mixed"]["GroupState"] == "Stable"
                and made.heartbeat() == ErrorCode.NONE
            )

        wait_until(is_settled, "both protocols have their partitions")
        assert self.types()["mixed"] == "consumer"

    def _release(self) -> None:
        """A static member has gone for a while, and nobody gets its partitions."""
        if self.beside_static.epoch == 0:
            self.beside_static.join()
            self.static.join()
        self._settle(self.beside_static, self.static)
        self.static.leave(LEAVES_FOR_A_WHILE)

    def _begin_revocation(self) -> None:
        """A member is to give two partitions up, and has not done it. The other one waits for them."""
        if self.stays.epoch == 0:
            self.stays.join()
            self._settle(self.stays)
        self.comes.join()

        def is_told() -> bool:
            self.stays.beat()
            return self.stays.told is not None

        wait_until(is_told, "the member is told to revoke")

    def _match(self) -> None:
        if self.matching.epoch == 0:
            self.matching.join()
        self._settle(self.matching)

    def _join_and_go(self) -> None:
        """A group without members, with the offsets of the last one."""
        found = self.described()["empty"]
        self.last.join()
        if found["ErrorCode"] == 0:
            assert self.last.epoch == found["GroupEpoch"] + 1
        assert self.last.commit(self.offset + 1) == {ErrorCode.NONE}
        self.last.leave()

    def _commit(self) -> None:
        """Every member commits the next offset."""
        self.offset += 1
        for each in self._members():
            assert each.commit(self.offset) == {ErrorCode.NONE}, each.group
        assert self.classic is not None
        assert self.classic.commit(TOPIC, self.offset) == ErrorCode.NONE
