"""A classic group member written by hand: every request of the protocol, over its own raw connection."""

from __future__ import annotations

import struct
import time
from typing import Any

from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

SESSION_TIMEOUT_MS = 6000
REBALANCE_TIMEOUT_MS = 10_000
LATEST_JOIN, LATEST_SYNC, LATEST_HEARTBEAT, LATEST_LEAVE = 9, 5, 4, 5


def coordinator(connection: Connection, group: str) -> int:
    """The node that coordinates the group. Waits until the offsets topic is created."""

    def ask() -> Any:
        reply = connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        (found,) = reply["Coordinators"]
        if found["ErrorCode"] == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            assert found["NodeId"] == -1
            return None
        assert found["ErrorCode"] == 0, found
        listed = connection.call("OffsetFetch", 7, {"GroupId": group, "Topics": None, "RequireStable": True})
        # The coordinator may still be loading its partition of the offsets topic.
        if listed["ErrorCode"] in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return None
        return (found["NodeId"],)

    return int(wait_until(ask, f"{group} has a coordinator")[0])


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """The metadata of a consumer in JoinGroup, version 1. (Kafka never completes a rebalance with invalid metadata.)"""
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return (
        struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data + bytes(4)
    )


class Member:
    """One member. Each method sends one request. The generation and the member id are taken from the responses."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        client_id: str = "member",
    ) -> None:
        self.connection = Connection(bootstrap, client_id=client_id)
        self.group = group
        self.instance = instance
        self.protocols = protocols if protocols is not None else {"range": subscription()}
        self.protocol_type = "consumer"
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[dict[str, Any]] = []

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    def send_join(self, version: int = LATEST_JOIN) -> int:
        """Send JoinGroup without waiting."""
        body = {
            "GroupId": self.group,
            "SessionTimeoutMs": self.session_timeout_ms,
            "RebalanceTimeoutMs": self.rebalance_timeout_ms,
            "MemberId": self.member_id,
            "GroupInstanceId": self.instance,
            "ProtocolType": self.protocol_type,
            "Protocols": [{"Name": name, "Metadata": data} for name, data in self.protocols.items()],
            "Reason": None,
        }
        return self.connection.send("JoinGroup", version, body)

    def receive_join(self, number: int, version: int = LATEST_JOIN, timeout_s: float = 20) -> dict[str, Any]:
        """The response to a JoinGroup that was sent before."""
        reply = self.connection.receive("JoinGroup", version, number, timeout_s)
        if reply["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply["MemberId"]
        elif reply["ErrorCode"] == 0:
            self.member_id = reply["MemberId"]
            self.generation = reply["GenerationId"]
            self.leader = reply["Leader"]
            self.members = reply["Members"]
        return reply

    def join(self, version: int = LATEST_JOIN) -> dict[str, Any]:
        """Send JoinGroup and return its response unchanged."""
        return self.receive_join(self.send_join(version), version)

    def begin(self, version: int = LATEST_JOIN) -> int:
        """Send JoinGroup until the member waits for the others: the handshake for the member id is complete."""
        self.get_id(version)
        return self.send_join(version)

    def get_id(self, version: int = LATEST_JOIN) -> None:
        """The handshake for the member id, if the version has one."""
        if version >= 4 and not self.member_id and self.instance is None:
            refused = self.join(version)
            assert refused["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED, refused

    def send_sync(
        self, assignments: dict[str, bytes] | None = None, version: int = LATEST_SYNC, **more: Any
    ) -> int:
        """Send SyncGroup without waiting."""
        body = {
            "GroupId": self.group,
            "GenerationId": self.generation,
            "MemberId": self.member_id,
            "GroupInstanceId": self.instance,
            "ProtocolType": self.protocol_type,
            "ProtocolName": next(iter(self.protocols)),
            "Assignments": [
                {"MemberId": member, "Assignment": data} for member, data in (assignments or {}).items()
            ],
        }
        return self.connection.send("SyncGroup", version, body | more)

    def receive_sync(self, number: int, version: int = LATEST_SYNC, timeout_s: float = 20) -> dict[str, Any]:
        """The response to a SyncGroup that was sent before."""
        return self.connection.receive("SyncGroup", version, number, timeout_s)

    def sync(
        self, assignments: dict[str, bytes] | None = None, version: int = LATEST_SYNC, **more: Any
    ) -> dict[str, Any]:
        """Send SyncGroup and return its response."""
        return self.receive_sync(self.send_sync(assignments, version, **more), version)

    def heartbeat(self, version: int = LATEST_HEARTBEAT, **more: Any) -> int:
        """Send Heartbeat. Returns its error code."""
        body = {
            "GroupId": self.group,
            "GenerationId": self.generation,
            "MemberId": self.member_id,
            "GroupInstanceId": self.instance,
        }
        return int(self.connection.call("Heartbeat", version, body | more)["ErrorCode"])

    def leave(self, version: int = LATEST_LEAVE) -> dict[str, Any]:
        """Send LeaveGroup for this member and return its response."""
        member = {"MemberId": self.member_id, "GroupInstanceId": self.instance}
        body = (
            {"GroupId": self.group, "Members": [member]} if version >= 3 else {"GroupId": self.group} | member
        )
        body.pop("GroupInstanceId", None)
        return self.connection.call("LeaveGroup", version, body)

    def commit(
        self, topic: str, offset: int, metadata: str | None = "", version: int = 9, **more: Any
    ) -> int:
        """OffsetCommit of partition 0. Returns its error code."""
        partition = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": metadata}
        body = {
            "GroupId": self.group,
            "GenerationIdOrMemberEpoch": self.generation,
            "MemberId": self.member_id,
            "GroupInstanceId": self.instance,
            "Topics": [{"Name": topic, "Partitions": [partition]}],
        }
        reply = self.connection.call("OffsetCommit", version, body | more)
        return int(reply["Topics"][0]["Partitions"][0]["ErrorCode"])

    def close(self) -> None:
        self.connection.close()


def begin_together(members: list[Member]) -> list[int]:
    """Send JoinGroup for all members immediately one after the other, so that all arrive within
    group.initial.rebalance.delay.ms."""
    for member in members:
        member.get_id()
    return [member.send_join() for member in members]


def join_together(members: list[Member]) -> list[dict[str, Any]]:
    """Bring the members into one generation, also if some arrive too late for the first one. Returns their JoinGroup
    responses."""
    deadline = time.monotonic() + 60
    waiting = {number: member.begin() for number, member in enumerate(members)}
    replies: dict[int, dict[str, Any]] = {}
    while waiting or len({member.generation for member in members}) > 1:
        assert time.monotonic() < deadline, "the members do not come to one generation"
        for number, member in enumerate(members):
            if number in waiting:
                if not member.connection.is_silent(0.02):
                    replies[number] = member.receive_join(waiting.pop(number))
                    assert replies[number]["ErrorCode"] == 0, replies[number]
            elif member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                waiting[number] = member.send_join()
    return [replies[number] for number in range(len(members))]


def settle(members: list[Member], assignments: dict[int, bytes] | None = None) -> list[bytes]:
    """Bring the members into one generation and return their assignments. By default member n gets b"plan n"."""
    join_together(members)
    (leader,) = [member for member in members if member.is_leader]
    plan = {
        member.member_id: (assignments or {}).get(number, b"plan %d" % number)
        for number, member in enumerate(members)
    }
    numbers = [member.send_sync(plan if member is leader else None) for member in members]
    answers = [member.receive_sync(number) for member, number in zip(members, numbers, strict=True)]
    assert {answer["ErrorCode"] for answer in answers} == {0}, answers
    return [answer["Assignment"] for answer in answers]
