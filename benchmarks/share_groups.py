"""A share group at work (KIP-932): records accepted one by one and in batches, how soon they come, and what a broker
needs for many records in flight and for the state of many share-partitions."""

from __future__ import annotations

import re
import selectors
import statistics
import struct
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from benchmarks.measure import cpu_seconds, create_topic, memory_mb, running
from benchmarks.raw import Stream, error_of_produce, produce_frame, record_batch
from benchmarks.share_members import NOT_YET, Fleet, ShareMember, in_batches, one_by_one
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.wire import Connection, encode_request_header, frame
from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages import initialize_share_group_state_request as initialize_request
from kafkacompat.wire.messages import read_share_group_state_request as read_request
from kafkacompat.wire.messages.initialize_share_group_state_response import InitializeShareGroupStateResponse
from kafkacompat.wire.messages.read_share_group_state_response import ReadShareGroupStateResponse

Figures = dict[str, float]
GROUP, TOPIC = "bench-group", "bench"
PARTITIONS = 10
"""So that ten of 100 members compete for each, and ten members have one each."""
BATCH_RECORDS, RECORD_BYTES = 100, 100
WITHIN_S = 120.0
WARM_WITHIN_S, MEASURED_WITHIN_S = 20.0, 30.0
"""What is accepted until then is measured. Both are less than a session of members that send no heartbeat."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.share.max.size": "1000",
    "group.share.session.timeout.ms": "60000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.record.lock.duration.ms": "60000",
}
NONE, INVALID_REQUEST = 0, 42
START_OFFSET = 7
RESPONSE_HEADER_BYTES = 5
"""Of a flexible version without tags."""
M = TypeVar("M", bound=Message)


def earliest(broker: BrokerProcess, group: str) -> None:
    """Let the group begin at the start of its topics."""
    change = {"Name": "share.auto.offset.reset", "ConfigOperation": 0, "Value": "earliest"}
    resource = {"ResourceType": 32, "ResourceName": group, "Configs": [change]}
    with Connection(broker.bootstrap) as connection:
        answer = connection.call(
            "IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False}
        )
    assert answer["Responses"][0]["ErrorCode"] == 0, answer


def fill(broker: BrokerProcess, topic: str, partitions: int, records: int, per_batch: int) -> None:
    """Produce at least this many records, evenly over the partitions."""
    batch = record_batch(b"x" * RECORD_BYTES, per_batch)
    stream = Stream(broker.bootstrap)
    frames = [produce_frame(topic, [index], 1, batch) for index in range(partitions)]
    for each in frames:
        _await_leader(stream, topic, each)
    in_flight = 0
    for number in range(-(-records // per_batch)):
        stream.send(frames[number % partitions])
        in_flight += 1
        while in_flight >= 8:
            assert error_of_produce(stream.reply(), topic) == 0
            in_flight -= 1
    for _ in range(in_flight):
        assert error_of_produce(stream.reply(), topic) == 0


def _await_leader(stream: Stream, topic: str, request: bytes) -> None:
    """A new partition's leader may not know of it yet."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        stream.send(request)
        error = error_of_produce(stream.reply(), topic)
        if error == 0:
            return
        assert error in (3, 5, 6), error
        assert time.monotonic() < deadline, error
        time.sleep(0.1)


def acknowledging(members: int, style: str, records: int) -> Callable[[str], Figures]:
    """The rate of records, by `members` that fetch 500 at a time. With more members than partitions they compete."""
    acknowledge = one_by_one if style == "one by one" else in_batches

    def run(kind: str) -> Figures:
        with running(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, PARTITIONS)
            earliest(broker, GROUP)
            warm = records // 2
            # More than is accepted: a member whose partitions are drained would only wait.
            fill(broker, TOPIC, PARTITIONS, (warm + records) * 3 // 2, BATCH_RECORDS)
            fleet = Fleet(broker.bootstrap, GROUP, TOPIC, members, max(1, PARTITIONS // members))
            fleet.accept(warm, acknowledge, WARM_WITHIN_S)
            fleet.heartbeat()
            before = cpu_seconds(broker)
            accepted, took = fleet.accept(records, acknowledge, MEASURED_WITHIN_S)
            figures = {
                "records/s": accepted / took,
                "broker CPU s/million records": (cpu_seconds(broker) - before) / accepted * 1e6,
            }
            fleet.close()
        return figures

    return run


def java_members(threads: int, records: int) -> Callable[[str], Figures]:
    """Kafka's own performance tool with this many consumers. Its rate includes the time until they have partitions."""

    def run(kind: str) -> Figures:
        with running(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, PARTITIONS)
            earliest(broker, GROUP)
            fill(broker, TOPIC, PARTITIONS, records + PARTITIONS * 2_000, BATCH_RECORDS)
            before = cpu_seconds(broker)
            words = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--group", GROUP]
            words += ["--num-records", str(records), "--threads", str(threads), "--timeout", "60000"]
            done = subprocess.run(
                [*kafka_java("-Xmx512m"), "org.apache.kafka.tools.ShareConsumerPerformance", *words],
                capture_output=True, text=True, timeout=WITHIN_S,
            )  # fmt: skip
            used = cpu_seconds(broker) - before
        heading, row = (re.split(r",\s*", line.strip()) for line in done.stdout.strip().splitlines()[-2:])
        told = dict(zip(heading, row, strict=False))
        consumed = int(told["data.consumed.in.nMsg"])
        assert consumed >= records, f"{consumed} of {records} are consumed"
        return {"records/s": float(told["nMsg.sec"]), "broker CPU s/million records": used / consumed * 1e6}

    return run


def latency(rate: int, records: int) -> Callable[[str], Figures]:
    """From the producer's call to the member, at a fixed rate of one-record batches. Each fetch accepts the last."""

    def run(kind: str) -> Figures:
        with running(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, 1)
            earliest(broker, GROUP)
            fleet = Fleet(broker.bootstrap, GROUP, TOPIC, 1, 1)
            stream = Stream(broker.bootstrap)
            _paced(stream, fleet.members[0], rate, records // 2)
            fleet.heartbeat()
            samples = _paced(stream, fleet.members[0], rate, records)
            fleet.close()
        ordered = sorted(samples)
        return {
            "p50 ms": statistics.median(ordered) * 1e3,
            "p99 ms": ordered[len(ordered) * 99 // 100] * 1e3,
        }

    return run


def _paced(stream: Stream, member: ShareMember, rate: int, records: int) -> list[float]:
    """One thread produces and fetches, so that neither waits for the other's turn. A record that is late delays no other."""
    samples: list[float] = []
    sent = answered = 0
    started = time.perf_counter()
    deadline = time.monotonic() + WITHIN_S
    with selectors.DefaultSelector() as selector:
        selector.register(stream.socket, selectors.EVENT_READ)
        selector.register(member.socket, selectors.EVENT_READ, member)
        if not member.is_asking:
            member.send_fetch(in_batches)
        while len(samples) < records or answered < records:
            assert time.monotonic() < deadline, f"{len(samples)} of {records} records are delivered"
            due = started + sent / rate - time.perf_counter() if sent < records else 1.0
            if due <= 0:
                value = struct.pack(">d", time.perf_counter())
                stream.send(produce_frame(TOPIC, [0], 1, record_batch(value, 1)))
                sent += 1
                due = 0
            for key, _ in selector.select(due):
                if key.data is None:
                    answered += _answers(stream)
                    continue
                parts = member.receive_some()
                now = time.perf_counter()
                for part in parts or ():
                    samples += [now - sent_at for sent_at in _times(bytes(part))]
                if parts is not None:
                    member.send_fetch(in_batches)
    return samples


def _answers(stream: Stream) -> int:
    """Take the answers that are there."""
    count = 0
    while not count or stream.has_more:
        assert error_of_produce(stream.reply(), TOPIC) == 0
        count += 1
    return count


def _times(batches: bytes) -> list[float]:
    """The values of one-record batches."""
    found = []
    position = 0
    while position < len(batches):
        (length,) = struct.unpack_from(">i", batches, position + 8)
        position += 12 + length
        found.append(struct.unpack(">d", batches[position - 9 : position - 1])[0])
    return found


def in_flight(records: int, partitions: int) -> Callable[[str], Figures]:
    """Memory of a broker while one member holds many records. The member accepts none."""
    per_partition = records // partitions

    def run(kind: str) -> Figures:
        settings = SETTINGS | {
            "group.share.max.partition.max.record.locks": "10000",
            "group.share.partition.max.record.locks": str(per_partition),
            "group.share.max.record.lock.duration.ms": "3600000",
            "group.share.record.lock.duration.ms": "3600000",
        }
        with running(kind, settings) as broker:
            create_topic(broker, TOPIC, partitions)
            earliest(broker, GROUP)
            fill(broker, TOPIC, partitions, records, BATCH_RECORDS)
            fleet = Fleet(broker.bootstrap, GROUP, TOPIC, 1, partitions)
            (member,) = fleet.members
            before = memory_mb(broker)
            held = 0
            deadline = time.monotonic() + WITHIN_S
            while held < records:
                assert time.monotonic() < deadline, f"{held} of {records} are held"
                member.send_fetch(in_batches, max_records=10_000)
                member.receive()
                fleet.heartbeat()
                held += sum(last - first + 1 for each in member.acquired.values() for first, last, _ in each)
                member.acquired = {}
            figures = {"memory of the records, MB": memory_mb(broker) - before}
            fleet.close()
        return figures

    return run


def takeover(keys: int) -> Callable[[str], Figures]:
    """A share coordinator that comes back with the state of many share-partitions: until it answers for the last."""

    def run(kind: str) -> Figures:
        with running(kind, SETTINGS) as broker:
            create_topic(broker, TOPIC, 1)
            with Connection(broker.bootstrap) as connection:
                named = {"TopicId": UUID(int=0), "Name": TOPIC}
                topic_id = connection.call("Metadata", 12, {"Topics": [named]})["Topics"][0]["TopicId"].bytes
                _find_coordinator(connection, f"{GROUP}:{uuid_to_text(topic_id)}:0")
                _await_state(connection, GROUP, topic_id, INVALID_REQUEST)
                for number in range(keys):
                    _initialize(connection, f"group-{number:05d}", topic_id)
            memory = memory_mb(broker)
            broker.stop()
            started = time.perf_counter()
            broker.start()
            with Connection(broker.bootstrap) as connection:
                _await_state(connection, f"group-{keys - 1:05d}", topic_id, NONE)
            return {"restarted with all keys, s": time.perf_counter() - started, "memory MB": memory}

    return run


def _find_coordinator(connection: Connection, key: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while True:
        answer = connection.call("FindCoordinator", 6, {"KeyType": 2, "CoordinatorKeys": [key]})
        if answer["Coordinators"][0]["ErrorCode"] == NONE:
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def _initialize(connection: Connection, group: str, topic_id: bytes) -> None:
    state = initialize_request.PartitionData(state_epoch=1, start_offset=START_OFFSET)
    topic = initialize_request.InitializeStateData(topic_id=topic_id, partitions=[state])
    request = initialize_request.InitializeShareGroupStateRequest(group_id=group, topics=[topic])
    answer = _ask(connection, request, InitializeShareGroupStateResponse)
    part = answer.results[0].partitions[0]
    assert part.error_code == NONE, part.error_message


def _await_state(connection: Connection, group: str, topic_id: bytes, expected: int) -> None:
    """Until the coordinator has loaded and answers for this share-partition."""
    state = read_request.PartitionData(leader_epoch=0)
    topic = read_request.ReadStateData(topic_id=topic_id, partitions=[state])
    request = read_request.ReadShareGroupStateRequest(group_id=group, topics=[topic])
    deadline = time.monotonic() + WITHIN_S
    while True:
        answer = _ask(connection, request, ReadShareGroupStateResponse)
        part = answer.results[0].partitions[0]
        if part.error_code == expected:
            assert expected != NONE or part.start_offset == START_OFFSET
            return
        assert part.error_code in NOT_YET, (part.error_code, part.error_message)
        assert time.monotonic() < deadline, part.error_message
        time.sleep(0.02)


def _ask(connection: Connection, request: Message, response_type: type[M]) -> M:
    assert request.API_KEY is not None
    header = encode_request_header(request.API_KEY, 0, 1, "bench", True)
    connection.send_bytes(frame(header + encode(request, 0)))
    return decode(response_type, 0, connection.receive_frame(), RESPONSE_HEADER_BYTES)
