"""Members of a share group from one raw-protocol generator, which must not be what limits the rate: ShareFetch version 2,
encoded in one piece, and one thread that serves each member as soon as its answer is there."""

from __future__ import annotations

import selectors
import struct
import sys
import time
from array import array
from collections.abc import Callable, Sequence

from interop_tests.harness.wire import Connection, encode_request_header, frame
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages.share_fetch_response import ShareFetchResponse
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

HEARTBEAT, SHARE_FETCH = 76, 78
MAX_RECORDS = 500
"""max.poll.records of Kafka's clients."""
MAX_BYTES = 50 << 20
MAX_WAIT_MS = 500
ACCEPT = b"\2\1\0"
"""One acknowledge type, and no tags."""
ACKNOWLEDGEMENT_BYTES = 19
READY_WITHIN_S = 90.0
RECEIVE_BYTES = 1 << 18
NOT_YET = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR."""
STARTING = (*NOT_YET, 3, 5, 6)
"""Of a partition, also UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE and NOT_LEADER_OR_FOLLOWER."""
SETTLED_S = 2.0
BUSY = 0.7
"""Of a core: a generator that needs more may be what limits the rate."""

Range = tuple[int, int, int]
"""First and last offset, and the delivery count."""
Acknowledge = Callable[[Sequence[Range]], tuple[int, bytes]]
"""The number of acknowledgement batches, and the batches."""


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


def one_by_one(ranges: Sequence[Range]) -> tuple[int, bytes]:
    """An acknowledgement batch for each record."""
    total, parts = 0, []
    for first, last, _ in ranges:
        count = last - first + 1
        offsets = array("q", range(first, last + 1))
        if sys.byteorder == "little":
            offsets.byteswap()
        columns = offsets.tobytes()
        part = bytearray((bytes(16) + ACCEPT) * count)
        for place in range(8):
            part[place::ACKNOWLEDGEMENT_BYTES] = column = columns[place::8]
            part[place + 8 :: ACKNOWLEDGEMENT_BYTES] = column
        parts.append(part)
        total += count
    return total, b"".join(parts)


def in_batches(ranges: Sequence[Range]) -> tuple[int, bytes]:
    parts = [struct.pack(">qq", first, last) + ACCEPT for first, last, _ in ranges]
    return len(parts), b"".join(parts)


class ShareMember:
    """One member on a connection of its own. A session belongs to its connection."""

    def __init__(self, bootstrap: str, group: str, number: int) -> None:
        self.connection = Connection(bootstrap, timeout_s=READY_WITHIN_S)
        self.socket = self.connection.socket
        self.group = group.encode()
        self.member_id = f"member-{number:05d}"
        self.epoch = 0
        self.partitions: list[tuple[bytes, int]] = []
        self.session_epoch = 0
        self.acquired: dict[tuple[bytes, int], Sequence[Range]] = {}
        """What the last answer gave and the next request acknowledges."""
        self.accepted = 0
        """Records whose acknowledgement is answered."""
        self.is_asking = False
        self._sent = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._received = 0

    def heartbeat(self, topic: str, connection: Connection | None = None) -> None:
        """Join or go on. Takes the assignment."""
        message = ShareGroupHeartbeatRequest(
            group_id=self.group.decode(),
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[topic] if self.epoch == 0 else None,
        )
        header = encode_request_header(HEARTBEAT, 1, 1, "bench", True)
        using = connection or self.connection
        using.send_bytes(frame(header + encode(message, 1)))
        answer = decode(ShareGroupHeartbeatResponse, 1, using.receive_frame(), 5)
        if answer.error_code in NOT_YET:
            return
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.partitions = [
                (topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            ]

    def send_fetch(self, acknowledge: Acknowledge, max_records: int = MAX_RECORDS) -> None:
        """Acknowledge what the last answer gave, and ask for more."""
        by_topic: dict[bytes, list[bytes]] = {}
        named = self.partitions if self.session_epoch == 0 else list(self.acquired)
        self._sent = 0
        for topic_id, index in named:
            ranges = self.acquired.get((topic_id, index), ())
            count, batches = acknowledge(ranges)
            self._sent += sum([last - first + 1 for first, last, _ in ranges])
            body = struct.pack(">i", index) + uvarint(count + 1) + batches + b"\0"
            by_topic.setdefault(topic_id, []).append(body)
        topics = [
            topic_id + uvarint(len(bodies) + 1) + b"".join(bodies) + b"\0"
            for topic_id, bodies in by_topic.items()
        ]
        body = compact(self.group) + compact(self.member_id.encode())
        body += struct.pack(
            ">iiiiiib?", self.session_epoch, MAX_WAIT_MS, 1, MAX_BYTES, max_records, max_records, 0, False
        )
        body += uvarint(len(topics) + 1) + b"".join(topics) + b"\1\0"
        self.connection.send_bytes(frame(encode_request_header(SHARE_FETCH, 2, 1, "bench", True) + body))
        self.acquired = {}
        self.session_epoch += 1
        self.is_asking = True

    def receive_some(self) -> list[memoryview] | None:
        """Take what is there, and wait if nothing is. Returns the record bytes of an answer that is complete."""
        received = self.socket.recv_into(memoryview(self._buffer)[self._received :])
        if not received:
            raise ConnectionError(f"the broker closed the connection of {self.member_id}")
        self._received += received
        if self._received < 4:
            return None
        size = 4 + int.from_bytes(self._buffer[:4], "big")
        if self._received < size:
            if size > len(self._buffer):
                # Not in its place, because somebody may still look at records of the last answer.
                self._buffer = self._buffer[: self._received] + bytes(size - self._received)
            return None
        assert self._received == size, "there are two answers to one request"
        self._received = 0
        return self._take(memoryview(self._buffer)[4:size])

    def receive(self) -> list[memoryview]:
        """The record bytes of the next answer. They are good until the next call."""
        while True:
            records = self.receive_some()
            if records is not None:
                return records

    def _take(self, content: memoryview) -> list[memoryview]:
        answer = decode(ShareFetchResponse, 2, content, 5)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        records = []
        for topic in answer.responses:
            for each in topic.partitions:
                assert each.error_code in (0, *STARTING), (each.error_code, each.error_message)
                assert each.acknowledge_error_code == 0, (
                    each.acknowledge_error_code,
                    each.acknowledge_error_message,
                )
                if each.acquired_records:
                    self.acquired[topic.topic_id, each.partition_index] = [
                        (part.first_offset, part.last_offset, part.delivery_count)
                        for part in each.acquired_records
                    ]
                    records.append(each.records)
        self.accepted += self._sent
        self._sent = 0
        self.is_asking = False
        return records

    def close(self) -> None:
        self.connection.close()


class Fleet:
    """Members that have the partitions of a topic between them. Each sends its next request when its answer is there."""

    def __init__(self, bootstrap: str, group: str, topic: str, count: int, least: int) -> None:
        """`least`: how many partitions each member must have, when the assignment has not changed for SETTLED_S."""
        self.topic = topic
        self.members = [ShareMember(bootstrap, group, number) for number in range(count)]
        self._heartbeats = Connection(bootstrap, timeout_s=READY_WITHIN_S)
        deadline = time.monotonic() + READY_WITHIN_S
        # This creates the topic of groups.
        self._heartbeats.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        known: list[tuple[int, int]] = []
        since = time.monotonic()
        while time.monotonic() - since < SETTLED_S:
            assert time.monotonic() < deadline, "the group gets no assignment"
            self.heartbeat()
            found = [(member.epoch, len(member.partitions)) for member in self.members]
            if found != known or min(count for _, count in found) < least:
                known, since = found, time.monotonic()
            time.sleep(0.2)

    def heartbeat(self) -> None:
        """All members, while fetches may wait on their connections."""
        for member in self.members:
            member.heartbeat(self.topic, self._heartbeats)

    @property
    def accepted(self) -> int:
        return sum([member.accepted for member in self.members])

    def accept(self, records: int, acknowledge: Acknowledge, within_s: float) -> tuple[int, float]:
        """Fetch and accept until `records` more are acknowledged, or the time is over. Returns how many they are, and the
        seconds. Members are left with their requests under way, for the next call."""
        before, started, own = self.accepted, time.perf_counter(), time.process_time()
        done = 0
        with selectors.DefaultSelector() as selector:
            for member in self.members:
                selector.register(member.socket, selectors.EVENT_READ, member)
                if not member.is_asking:
                    member.send_fetch(acknowledge)
            while done < records and time.perf_counter() - started < within_s:
                for key, _ in selector.select(1.0):
                    member = key.data
                    had = member.accepted
                    if member.receive_some() is not None:
                        done += member.accepted - had
                        member.send_fetch(acknowledge)
        took = time.perf_counter() - started
        used = (time.process_time() - own) / took
        assert done, f"no record is accepted within {within_s} s"
        assert done == self.accepted - before
        if used > BUSY:
            print(f"  the generator used {used:.0%} of a core", file=sys.stderr, flush=True)
        return done, took

    def close(self) -> None:
        for member in self.members:
            member.close()
        self._heartbeats.close()
