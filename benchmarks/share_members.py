"""Members of a share group from one raw-protocol generator: ShareFetch version 2, encoded and read by hand, because the
generator must not be what limits the rate."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

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
READY_WITHIN_S = 90.0
NOT_YET = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR."""

Range = tuple[int, int, int]
"""First and last offset, and the delivery count."""
Acknowledge = Callable[[list[Range]], Iterator[bytes]]


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


def one_by_one(ranges: list[Range]) -> Iterator[bytes]:
    """An acknowledgement batch for each record."""
    pack = struct.Struct(">qq").pack
    for first, last, _ in ranges:
        for offset in range(first, last + 1):
            yield pack(offset, offset) + ACCEPT


def in_batches(ranges: list[Range]) -> Iterator[bytes]:
    for first, last, _ in ranges:
        yield struct.pack(">qq", first, last) + ACCEPT


class ShareMember:
    """One member on a connection of its own. A session belongs to its connection."""

    def __init__(self, bootstrap: str, group: str, number: int) -> None:
        self.connection = Connection(bootstrap, timeout_s=60.0)
        self.group = group.encode()
        self.member_id = f"member-{number:05d}"
        self.epoch = 0
        self.partitions: list[tuple[bytes, int]] = []
        self.session_epoch = 0
        self.acquired: dict[tuple[bytes, int], list[Range]] = {}
        """What the last answer gave and the next request acknowledges."""
        self.accepted = 0

    def heartbeat(self, topic: str) -> None:
        """Join or go on. Takes the assignment."""
        message = ShareGroupHeartbeatRequest(
            group_id=self.group.decode(),
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[topic] if self.epoch == 0 else None,
        )
        header = encode_request_header(HEARTBEAT, 1, 1, "bench", True)
        self.connection.send_bytes(frame(header + encode(message, 1)))
        answer = decode(ShareGroupHeartbeatResponse, 1, self.connection.receive_frame(), 5)
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
        for topic_id, index in named:
            ranges = self.acquired.get((topic_id, index), [])
            batches = list(acknowledge(ranges))
            self.accepted += sum([last - first + 1 for first, last, _ in ranges])
            body = struct.pack(">i", index) + uvarint(len(batches) + 1) + b"".join(batches) + b"\0"
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

    def receive(self) -> list[memoryview]:
        """Returns the record bytes."""
        answer = decode(ShareFetchResponse, 2, memoryview(self.connection.receive_frame()), 5)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        records = []
        for topic in answer.responses:
            for each in topic.partitions:
                assert each.error_code == 0, (each.error_code, each.error_message)
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
        return records

    def close(self) -> None:
        self.connection.close()


def joined(bootstrap: str, group: str, topic: str, count: int, least: int) -> list[ShareMember]:
    """Members that have the partitions of the topic between them. `least`: how many each must have."""
    members = [ShareMember(bootstrap, group, number) for number in range(count)]
    deadline = time.monotonic() + READY_WITHIN_S
    # This creates the topic of groups.
    members[0].connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
    while not all(len(member.partitions) >= least for member in members):
        assert time.monotonic() < deadline, "the group gets no assignment"
        for member in members:
            member.heartbeat(topic)
        time.sleep(0.2)
    return members


def accept_all(members: list[ShareMember], records: int, acknowledge: Acknowledge, within_s: float) -> float:
    """Fetch and accept until `records` more are acknowledged. Returns the seconds. Members answer in turn."""
    goal = sum(member.accepted for member in members) + records
    started = time.perf_counter()
    deadline = time.monotonic() + within_s
    while sum(member.accepted for member in members) < goal:
        assert time.monotonic() < deadline, "the records are not delivered"
        for member in members:
            member.send_fetch(acknowledge)
        for member in members:
            member.receive()
    return time.perf_counter() - started
