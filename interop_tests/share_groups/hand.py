"""Workers of a share group over raw sockets, in threads, that go on while leaders and coordinators die and move.

They need no membership: a leader delivers to whoever asks in the name of a group whose partitions have their state.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from interop_tests.harness.schema import DecodeError
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

BROKEN = (OSError, ConnectionClosed, Silence, DecodeError)
GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT = 1, 2, 3
Find = Callable[[], str | None]
"""host:port of the node to ask, or None while there is none."""
Ranges = list[tuple[int, int, int]]
"""First offset, last offset, delivery count."""


def read_from_start(connection: Connection, group: str, **more: str) -> None:
    """The group begins at the first record. `more` are other settings, with _ for a dot."""
    wanted = {"share.auto.offset.reset": "earliest"} | {
        key.replace("_", "."): each for key, each in more.items()
    }
    configs = [{"Name": name, "ConfigOperation": 0, "Value": value} for name, value in wanted.items()]
    resource = {"ResourceType": GROUP_RESOURCE, "ResourceName": group, "Configs": configs}
    answer = connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
    assert answer["Responses"][0]["ErrorCode"] == 0, answer


def initialize(find: Find, group: str, topic: str, partitions: int) -> None:
    """A member joins until all partitions have their first state, and leaves."""
    body = {"GroupId": group, "MemberId": "initializer", "RackId": None}
    epoch = 0

    def is_initialized() -> bool:
        nonlocal epoch
        address = find()
        with suppress(*BROKEN):
            if address is not None:
                with Connection(address, timeout_s=5) as connection:
                    names = [topic] if epoch == 0 else None
                    answer = connection.call(
                        "ShareGroupHeartbeat", 1, body | {"MemberEpoch": epoch, "SubscribedTopicNames": names}
                    )
                    epoch = answer["MemberEpoch"] if answer["ErrorCode"] == 0 else 0
                    given = (answer["Assignment"] or {}).get("TopicPartitions", [])
                    if sum(len(each["Partitions"]) for each in given) == partitions:
                        left = body | {"MemberEpoch": -1, "SubscribedTopicNames": None}
                        return bool(connection.call("ShareGroupHeartbeat", 1, left)["ErrorCode"] == 0)
        return False

    wait_until(is_initialized, f"the partitions of {topic} have their state", interval_s=0.2)


class Hand:
    """One member at the leader of one partition. It opens a new session after whatever happens."""

    def __init__(self, find: Find, group: str, name: str, topic_id: uuid.UUID, partition: int = 0) -> None:
        self._find = find
        self._body = {"GroupId": group, "MemberId": name}
        self._topic_id = topic_id
        self._partition = partition
        self._connection: Connection | None = None
        self._epoch = 0
        self.lock_ms: int | None = None
        """How long the group's locks last, as the last answer says."""

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._epoch = None, 0

    def _ask(self, api: str, batches: list[Any], more: dict[str, Any]) -> Any:
        """The partition's part of the answer, {} if there is none, or None if it is not known what became of it."""
        try:
            if self._connection is None:
                address = self._find()
                if address is None:
                    return {}
                self._connection = Connection(address, timeout_s=8)
            partition = {"PartitionIndex": self._partition, "AcknowledgementBatches": batches}
            topics = [{"TopicId": self._topic_id, "Partitions": [partition]}]
            body = self._body | {"ShareSessionEpoch": self._epoch, "Topics": topics} | more
            answer = self._connection.call(api, 2, body)
        except BROKEN:
            self.hang_up()
            return None
        if answer["ErrorCode"] != 0:
            self.hang_up()
            return {"ErrorCode": answer["ErrorCode"]}
        self._epoch += 1
        self.lock_ms = answer["AcquisitionLockTimeoutMs"]
        found = [each for topic in answer["Responses"] for each in topic["Partitions"]]
        return found[0] if found else {}

    def fetch(self, records: int = 1, wait_ms: int = 200) -> Ranges:
        """What was acquired, at most so many records."""
        wanted = {
            "MaxWaitMs": wait_ms,
            "MinBytes": 1,
            "MaxBytes": 1 << 20,
            "MaxRecords": records,
            "BatchSize": records,
            "ShareAcquireMode": 1,
        }
        found = self._ask("ShareFetch", [], wanted)
        if not found or found["ErrorCode"]:
            if found:
                self.hang_up()
            return []
        return [
            (each["FirstOffset"], each["LastOffset"], each["DeliveryCount"])
            for each in found["AcquiredRecords"]
        ]

    def acknowledge(self, first: int, last: int, kind: int = ACCEPT) -> int | None:
        """The partition's error code, or None if no answer came."""
        if self._epoch == 0:
            return -1
        batches = [{"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": [kind]}]
        found = self._ask("ShareAcknowledge", batches, {})
        if found is None:
            return None
        if found.get("ErrorCode", -1) not in (0, 121):
            self.hang_up()
        return int(found.get("ErrorCode", -1))


class Crew:
    """Threads that take records one by one and accept most of them, and judge what they see.

    A record whose acceptance was answered may not be delivered by a share fetch that is sent afterwards, and within one
    lock no record is delivered twice unless its session or its leader has ended.
    """

    def __init__(self, hands: list[Hand]) -> None:
        self._hands = hands
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self.accepted: dict[int, float] = {}
        """When the answer to a record's acceptance came."""
        self.delivered: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._work, args=(each,), daemon=True) for each in hands]

    def start(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def _work(self, hand: Hand) -> None:
        while not self._ends.is_set():
            asked = time.monotonic()
            for first, last, count in hand.fetch():
                with self._lock:
                    for offset in range(first, last + 1):
                        self.delivered[offset] += 1
                        if self.accepted.get(offset, asked) < asked:
                            self.wrong.append(f"{offset} is delivered ({count}) after it was accepted")
                # Every seventh delivery is given back.
                kind = RELEASE if (first + count) % 7 == 0 and count < 3 else ACCEPT
                code = hand.acknowledge(first, last, kind)
                if code == 0 and kind == ACCEPT:
                    with self._lock:
                        for offset in range(first, last + 1):
                            self.accepted.setdefault(offset, time.monotonic())

    def settled(self, count: int) -> None:
        """Wait until each of so many records is accepted. Records whose answer was lost are delivered again, or were
        accepted: `finish` shows that nothing is left."""

        def are_all_seen() -> bool:
            with self._lock:
                assert not self.wrong, self.wrong
                return set(self.delivered) >= {*range(count)}

        wait_until(are_all_seen, f"{count} records are delivered")

    def finish(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(30)
        for hand in self._hands:
            hand.hang_up()
        assert not self.wrong, self.wrong


def lag(connection: Connection, group: str) -> Iterator[tuple[int, int]]:
    """The lag of each partition."""
    body = {"Groups": [{"GroupId": group, "Topics": None}]}
    (found,) = connection.call("DescribeShareGroupOffsets", 1, body)["Groups"]
    for topic in found["Topics"]:
        for each in topic["Partitions"]:
            yield each["PartitionIndex"], each["Lag"]
