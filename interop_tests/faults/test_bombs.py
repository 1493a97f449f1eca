"""Small requests that cause much work: they are refused or accepted, while other clients are served.

Kafka decompresses each batch in a request thread for as long as it takes, and accepts these. So only kafkacompat
refuses them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import lz4.frame
import psutil
import pytest

from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode, create_topic, produce, produce_body
from interop_tests.harness.records import BatchPlan, encode_record, zigzag
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
TOPIC = "bombs"
ROUNDS = 5


def of_headers(count: int) -> bytes:
    """A record of headers without name and value."""
    inside = b"\0\0\0\1\1" + zigzag(count) + bytes(2 * count)
    return zigzag(len(inside)) + inside


def batches() -> dict[str, tuple[bytes, int]]:
    """A batch and the expected error."""
    record = encode_record(0, None, b"value")
    frames = lz4.frame.compress(record) + lz4.frame.compress(b"") * 40_000
    framed = BatchPlan(records=frames, attributes=3).encode()
    count = 1_000_000
    tiny = b"".join(
        zigzag(len(inside)) + inside
        for index in range(count)
        for inside in (b"\0\0" + zigzag(index) + b"\1\2x\0",)
    )
    return {
        "ten million headers": (
            BatchPlan(codec="zstd", records=of_headers(10_000_000)).encode(),
            ErrorCode.INVALID_RECORD,
        ),
        "forty thousand frames": (framed, ErrorCode.INVALID_RECORD),
        "a value of 200 MB": (BatchPlan(values=[bytes(200_000_000)], codec="zstd").encode(), ErrorCode.NONE),
        "a value of 300 MB": (
            BatchPlan(values=[bytes(300_000_000)], codec="zstd").encode(),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        "a million records": (
            BatchPlan(codec="zstd", records=tiny, record_count=count, last_offset_delta=count - 1).encode(),
            ErrorCode.NONE,
        ),
    }


def test_hostile_batches_are_answered_while_others_are_served(make_broker: MakeBroker) -> None:
    broker = make_broker({"message.max.bytes": str(50 << 20)})
    if broker.kind == APACHE:
        pytest.skip("Kafka has no such bounds")
    create_topic(broker.bootstrap, TOPIC, 1)
    process = psutil.Process(broker.pid)
    with Connection(broker.bootstrap, timeout_s=120) as hostile, Connection(broker.bootstrap) as other:
        for name, (batch, expected) in batches().items():
            before = process.cpu_times()
            asked = hostile.send("Produce", 9, produce_body(TOPIC, batch))
            served = 0
            while served < ROUNDS:
                assert other.call("ApiVersions", 0, {})["ErrorCode"] == 0
                assert produce(other, TOPIC, BatchPlan(), acks=1)["ErrorCode"] == 0
                served += 1
            answer: dict[str, Any] = hostile.receive("Produce", 9, asked)
            (result,) = answer["Responses"][0]["PartitionResponses"]
            assert result["ErrorCode"] == expected, name
            after = process.cpu_times()
            # Without bounds and steps, this took five to eleven seconds for the first, and more for the others.
            assert after.user + after.system - before.user - before.system < 30, name


def test_a_large_request_without_records_closes_its_connection_alone(make_broker: MakeBroker) -> None:
    broker = make_broker()
    if broker.kind == APACHE:
        pytest.skip("Kafka has no such bound")
    with Connection(broker.bootstrap) as hostile, Connection(broker.bootstrap) as other:
        hostile.send_bytes(struct.pack(">ihhi", 100 << 20, 15, 0, 1))
        assert hostile.is_closed_by_peer()
        assert other.call("ApiVersions", 0, {})["ErrorCode"] == 0
    with Connection(broker.bootstrap) as hostile, Connection(broker.bootstrap) as other:
        names = struct.pack(">hhih", 15, 0, 1, -1) + struct.pack(">i", 2_000_000) + b"\0\1x" * 2_000_000
        hostile.send_bytes(struct.pack(">i", len(names)) + names)
        assert hostile.is_closed_by_peer()
        assert other.call("ApiVersions", 0, {})["ErrorCode"] == 0


def test_many_group_names_are_answered_in_steps(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Connection(broker.bootstrap, timeout_s=120) as many, Connection(broker.bootstrap) as other:
        groups = [f"group {index}" for index in range(50_000)]
        asked = many.send("DescribeGroups", 0, {"Groups": groups})
        for _ in range(ROUNDS):
            assert other.call("ApiVersions", 0, {})["ErrorCode"] == 0
        answer = many.receive("DescribeGroups", 0, asked)
    assert sorted(each["GroupId"] for each in answer["Groups"]) == sorted(groups)
