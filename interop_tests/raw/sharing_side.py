"""A side whose author knows share groups: each share session has a connection of its own, and states are awaited."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from interop_tests.consumer_groups.names import Names
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.waiting import wait_until
from interop_tests.raw.compare import all_sides, chosen, hostile_requests
from interop_tests.raw.patient_sharer import PatientSharer
from interop_tests.raw.side_by_side import BARRIER, CONNECTIONS, Side
from interop_tests.share_groups.sides import (
    SESSION_NOT_FOUND,
    SHARE_SETTINGS,
    BothCoordinators,
    has_share_coordinator,
)
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH
from kafkacompat._tests.fuzz.author import Request
from kafkacompat._tests.fuzz.choices import Choices
from kafkacompat._tests.fuzz.sharing import SHARE_SESSIONS
from kafkacompat.api.registry import ENTRIES, Entry

SETTINGS = SHARE_SETTINGS | {
    "transaction.state.log.num.partitions": "2",
    "group.share.max.size": "100",
    "group.share.max.share.sessions": "100",
    "group.consumer.max.size": "100",
    "group.max.size": "100",
}
INITIALIZED_S = 5.0
"""A state that cannot be made is waited for no longer than this."""
NO_EPOCH_OF_A_SESSION = 1 << 30


class SharingSide(Side):
    author: PatientSharer

    def __init__(self, broker: BrokerProcess, seed: int, entries: Sequence[Entry]) -> None:
        super().__init__(broker, seed, entries)
        wait_until(lambda: has_share_coordinator(self.own), f"{self.kind} has a share coordinator")
        self._records = BothCoordinators(broker.bootstrap, Names())
        self._members: dict[int, tuple[str, str]] = {}
        """Group and member that speak over a connection."""

    def make_author(self, choices: Choices, entries: Sequence[Entry]) -> PatientSharer:
        return PatientSharer(choices, entries)

    def close(self) -> None:
        self._records.close()
        super().close()

    def connection_for(self, number: int, request: Request) -> int:
        """A session ends with its connection, and Kafka ends only the last one of a connection."""
        if request.entry.name not in SHARE_SESSIONS:
            return number
        member = request.message.group_id or "", request.message.member_id or ""
        for known, each in self._members.items():
            if each == member:
                return known
        number = CONNECTIONS + len(self._members)
        self._members[number] = member
        return number

    def hang_up(self, number: int) -> None:
        super().hang_up(number)
        group_id, member_id = self._members.get(number, ("", ""))
        if not member_id or len(member_id) > 36:
            return
        asked: dict[str, Any] = {
            "GroupId": group_id,
            "MemberId": member_id,
            "ShareSessionEpoch": NO_EPOCH_OF_A_SESSION,
            "Topics": [],
        }
        wait_until(
            lambda: self.own.call("ShareAcknowledge", 1, asked)["ErrorCode"] == SESSION_NOT_FOUND,
            f"{self.kind} has ended the session of {member_id}",
            20,
            0.002,
        )

    def settle(self, api: str) -> None:
        super().settle(api)
        if api == "JoinGroup":
            self._forget_empty_groups()
        if api not in ("ShareGroupHeartbeat", "AlterShareGroupOffsets"):
            return
        until = time.monotonic() + INITIALIZED_S
        self._records.read()
        while any(self._records.initializing.values()) and time.monotonic() < until:
            time.sleep(0.005)
            self._records.read()

    def _forget_empty_groups(self) -> None:
        """Kafka forgets an empty consumer group when it refuses a JoinGroup to it (docs/reference/compatibility.md), and lists it
        until something else is committed."""
        asked = {"StatesFilter": ["Empty"], "TypesFilter": ["consumer"]}
        names = [group["GroupId"] for group in self.own.call("ListGroups", 5, asked)["Groups"]]
        if not names:
            return
        self.own.call("DeleteGroups", 2, {"GroupsNames": names})
        partition = {
            "PartitionIndex": 0,
            "CommittedOffset": 0,
            "CommittedLeaderEpoch": -1,
            "CommittedMetadata": "",
        }
        commit = {
            "GroupId": BARRIER,
            "GenerationIdOrMemberEpoch": -1,
            "MemberId": "",
            "GroupInstanceId": None,
            "Topics": [{"Name": BARRIER, "Partitions": [partition]}],
        }
        self.own.call("OffsetCommit", 9, commit)


def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> AbstractContextManager[list[SharingSide]]:
    return all_sides(folder, seed, chosen(ENTRIES, only), SETTINGS, make_side=SharingSide, kinds=kinds)


AREA = Area("raw-shares", start, hostile_requests, is_bound_to_seed=True, goes_on=True)
"""The requests differ from those that the area `raw` has with the same seed."""
