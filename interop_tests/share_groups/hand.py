"""Members of share groups over raw sockets, and crews of them in threads that go on while leaders and coordinators die
and move.

They need no membership: a leader delivers to whoever asks in the name of a group whose partitions have their state.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from interop_tests.harness.schema import DecodeError
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

BROKEN = (OSError, ConnectionClosed, Silence, DecodeError)
GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT = 1, 2, 3
INVALID_RECORD_STATE = 121
SHARE_FETCH, SHARE_ACKNOWLEDGE = "ShareFetch", "ShareAcknowledge"


class Leader(NamedTuple):
    """One leadership of a partition."""

    address: str
    """host:port"""
    epoch: int = 0


Find = Callable[[], Leader | None]
"""The leader to ask, or None while there is none."""
FindAddress = Callable[[], str | None]
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


def heartbeat(group: str, epoch: int, topic: str | None) -> dict[str, Any]:
    """The request of a member that joins (0), stays or leaves (-1)."""
    return {
        "GroupId": group,
        "MemberId": "initializer",
        "RackId": None,
        "MemberEpoch": epoch,
        "SubscribedTopicNames": None if topic is None else [topic],
    }


def initialize(find: FindAddress, groups: Sequence[str], topic: str, partitions: int = 1) -> None:
    """A member of each group joins until all partitions have their first state, and leaves."""
    epochs = dict.fromkeys(groups, 0)
    told: deque[str] = deque(maxlen=5)

    def beat(connection: Connection, group: str) -> bool:
        epoch = epochs[group]
        asked = heartbeat(group, epoch, None if epoch else topic)
        answer = connection.call("ShareGroupHeartbeat", 1, asked)
        told.append(f"{group}: {answer}")
        epochs[group] = answer["MemberEpoch"] if answer["ErrorCode"] == 0 else 0
        given = (answer["Assignment"] or {}).get("TopicPartitions", [])
        if sum(len(each["Partitions"]) for each in given) < partitions:
            return False
        left = connection.call("ShareGroupHeartbeat", 1, heartbeat(group, -1, None))
        return bool(left["ErrorCode"] == 0)

    def are_initialized() -> bool:
        address = find()
        try:
            if address is not None:
                with Connection(address, timeout_s=5) as connection:
                    for group in list(epochs):
                        if beat(connection, group):
                            del epochs[group]
        except BROKEN as error:
            told.append(repr(error))
            # The assignment may have been in the answer that was lost, and is told again to a member that joins.
            epochs.update(dict.fromkeys(epochs, 0))
        return not epochs

    try:
        wait_until(are_initialized, f"{topic} has its state in {groups}", interval_s=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}\nleft: {epochs}, the last answers: {list(told)}") from None


class Asked(NamedTuple):
    """An acknowledgement and what became of it. The code is None if no answer came."""

    first: int
    last: int
    kind: int
    code: int | None


class Hand:
    """One member at the leader of one partition. It opens a new session after whatever happens."""

    def __init__(
        self,
        find: Find,
        group: str,
        name: str,
        topic_id: uuid.UUID,
        partition: int = 0,
        timeout_s: float = 8.0,
    ) -> None:
        self.group = group
        self.leader: Leader | None = None
        """The one that it is connected to."""
        self.was_silent = False
        """A request had no answer in time though its connection was open."""
        self.begins_anew = False
        """Set to have a crew's hand open a new session."""
        self.codes: list[int] = []
        """The error codes of whole answers and of the partition in share fetches, if there are any."""
        self._find = find
        self._body = {"GroupId": group, "MemberId": name}
        self._topic_id = topic_id
        self._partition = partition
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._epoch = 0
        self.lock_ms: int | None = None
        """How long the group's locks last, as the last answer says."""
        self._later: list[tuple[Asked, int | None]] = []
        """Acknowledgements whose answers have not been read, with their correlation ids."""
        self._fetch: int | None = None
        self.hangs_up: Callable[[], None] = lambda: None
        """Called before the connection is closed."""

    def hang_up(self) -> None:
        self.hangs_up()
        if self._connection is not None:
            self._connection.close()
        self._connection, self._epoch, self.leader = None, 0, None

    def _send(self, api: str, batches: list[Any], more: dict[str, Any]) -> int | None:
        """The correlation id of a request that is sent."""
        try:
            if self._connection is None:
                self.leader = self._find()
                if self.leader is None:
                    return None
                self._connection = Connection(self.leader.address, timeout_s=self._timeout_s)
            partition = {"PartitionIndex": self._partition, "AcknowledgementBatches": batches}
            topics = [{"TopicId": self._topic_id, "Partitions": [partition]}]
            body = self._body | {"ShareSessionEpoch": self._epoch, "Topics": topics} | more
            number = self._connection.send(api, 2, body)
        except BROKEN:
            self.hang_up()
            return None
        self._epoch += 1
        return number

    def _receive(self, api: str, number: int | None) -> Any:
        """The partition's part of the answer, {} if there is none, or None if it is not known what became of it."""
        if number is None or self._connection is None:
            return None
        try:
            answer = self._connection.receive(api, 2, number)
        except BROKEN as error:
            self.was_silent |= isinstance(error, Silence)
            self.hang_up()
            return None
        if answer["ErrorCode"] != 0:
            self.codes.append(answer["ErrorCode"])
            self.hang_up()
            return {"ErrorCode": answer["ErrorCode"]}
        self.lock_ms = answer["AcquisitionLockTimeoutMs"]
        found = [each for topic in answer["Responses"] for each in topic["Partitions"]]
        return found[0] if found else {}

    def fetch(self, records: int = 1, wait_ms: int = 200) -> Ranges:
        """What was acquired, at most so many records."""
        self.fetch_later(records, wait_ms)
        return self.fetched()

    def fetch_later(self, records: int, wait_ms: int) -> None:
        """Send a share fetch. `fetched` reads its answer."""
        wanted = {
            "MaxWaitMs": wait_ms,
            "MinBytes": 1,
            "MaxBytes": 1 << 20,
            "MaxRecords": records,
            "BatchSize": records,
            "ShareAcquireMode": 1,
        }
        self._fetch = self._send(SHARE_FETCH, [], wanted)

    def fetched(self) -> Ranges:
        found = self._receive(SHARE_FETCH, self._fetch)
        self._fetch = None
        if not found or found["ErrorCode"]:
            if found:
                self.codes.append(found["ErrorCode"])
                self.hang_up()
            return []
        return [
            (each["FirstOffset"], each["LastOffset"], each["DeliveryCount"])
            for each in found["AcquiredRecords"]
        ]

    def acknowledge(self, first: int, last: int, kind: int = ACCEPT) -> int | None:
        """The partition's error code, or None if no answer came."""
        self.acknowledge_later(first, last, kind)
        (asked,) = self.answers()
        return asked.code

    def acknowledge_later(self, first: int, last: int, kind: int = ACCEPT) -> None:
        """Send an acknowledgement. `answers` reads its answer."""
        asked = Asked(first, last, kind, None)
        if self._epoch == 0:
            self._later.append((asked._replace(code=-1), None))
            return
        batches = [{"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": [kind]}]
        self._later.append((asked, self._send(SHARE_ACKNOWLEDGE, batches, {})))

    def answers(self) -> list[Asked]:
        """What became of the acknowledgements that were sent, in their order."""
        found = []
        later, self._later = self._later, []
        for asked, number in later:
            if asked.code is None:
                answer = self._receive(SHARE_ACKNOWLEDGE, number)
                code = None if answer is None else int(answer.get("ErrorCode", -1))
                if code not in (None, 0, INVALID_RECORD_STATE):
                    self.hang_up()
                asked = asked._replace(code=code)
            found.append(asked)
        return found


class Delivery(NamedTuple):
    """A record that a hand has got. Times are of this machine's clock, in seconds."""

    leader: Leader
    hand: Hand
    count: int
    at: float
    locked_until: float
    """The lock does not end before."""

    def is_not_before(self, count: int, asked: float) -> bool:
        """Whether a share fetch that was sent at `asked` may not deliver the record with this count. Answers may be read
        in another order than they were made in."""
        return count == self.count or (count < self.count and self.at < asked)


class Crew:
    """Threads that take records one by one and accept most of them, and judge what they see.

    A record whose acceptance was answered may not be delivered by a share fetch that is sent afterwards. Within one
    leadership delivery counts grow, and a record goes to another member only when its holder has acknowledged it or is
    gone, or when its lock has ended. A leader that was deposed while it was paused may break this until it knows.
    """

    def __init__(self, hands: Sequence[Hand], newest: Find, lock_s: float) -> None:
        """`newest` is the leader in the newest of the nodes' views."""
        self.hands = hands
        self._newest = newest
        self._lock_s = lock_s
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self.accepted: dict[int, float] = {}
        """When the answer to a record's acceptance came."""
        self.delivered: dict[int, Delivery] = {}
        """The last one of each record."""
        self._held: dict[int, Delivery] = {}
        self.wrong: list[str] = []
        self.excused: list[str] = []
        """What deposed leaders did."""
        self._threads = [threading.Thread(target=self._work, args=(each,), daemon=True) for each in hands]
        for hand in hands:
            # Others may get what the member has as soon as its session ends.
            hand.hangs_up = partial(self._let_go, hand)

    def start(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def _work(self, hand: Hand) -> None:
        try:
            while not self._ends.is_set():
                self._take(hand)
        except Exception as error:
            self.wrong.append(f"a hand fails: {error!r}")
            raise

    def _take(self, hand: Hand) -> None:
        if hand.begins_anew:
            hand.begins_anew = False
            hand.hang_up()
        asked = time.monotonic()
        ranges = hand.fetch()
        leader = hand.leader
        if leader is None:
            self._ends.wait(0.1)
            return
        for first, last, count in ranges:
            wrong = self._judge(hand, leader, range(first, last + 1), count, asked)
            if wrong:
                (self.wrong if self._is_newest(leader) else self.excused).extend(wrong)
        for first, last, count in ranges:
            # Every seventh delivery is given back.
            kind = RELEASE if (first + count) % 7 == 0 and count < 3 else ACCEPT
            self._let_go(hand)
            if hand.acknowledge(first, last, kind) == 0 and kind == ACCEPT:
                with self._lock:
                    for offset in range(first, last + 1):
                        self.accepted.setdefault(offset, time.monotonic())

    def _judge(self, hand: Hand, leader: Leader, offsets: range, count: int, asked: float) -> list[str]:
        wrong = []
        with self._lock:
            # If this answer took longer than a lock, another member may hold the record already.
            now, locked_until = time.monotonic(), asked + self._lock_s
            for offset in offsets:
                what = f"{offset} is delivered by {leader} for the {count}. time"
                if self.accepted.get(offset, asked) < asked:
                    wrong.append(f"{what} after it was accepted")
                before, held = self.delivered.get(offset), self._held.get(offset)
                if before is not None and before.leader == leader and before.is_not_before(count, asked):
                    wrong.append(f"{what} after the {before.count}.")
                if held is not None and held.leader == leader and now < min(held.locked_until, locked_until):
                    wrong.append(f"{what} while a member holds it")
                delivery = Delivery(leader, hand, count, now, locked_until)
                self.delivered[offset] = self._held[offset] = delivery
        return wrong

    def _let_go(self, hand: Hand) -> None:
        """From now on the leader may give others what this one has."""
        with self._lock:
            self._held = {offset: each for offset, each in self._held.items() if each.hand is not hand}

    def _is_newest(self, leader: Leader) -> bool:
        return wait_until(self._newest, "there is a leader") == leader

    def abandon(self) -> None:
        """Let the threads end by themselves."""
        self._ends.set()

    def finish(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a hand hangs"
        for hand in self.hands:
            hand.hang_up()
        assert not self.wrong, self.wrong


def lag(connection: Connection, group: str) -> Iterator[tuple[int, int]]:
    """The lag of each partition."""
    body = {"Groups": [{"GroupId": group, "Topics": None}]}
    (found,) = connection.call("DescribeShareGroupOffsets", 1, body)["Groups"]
    for topic in found["Topics"]:
        for each in topic["Partitions"]:
            yield each["PartitionIndex"], each["Lag"]
