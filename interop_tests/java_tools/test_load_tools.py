"""Kafka's performance tools and its verifiable clients."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until

RECORDS = 20_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producer_and_consumer_performance(
    tools: KafkaTools, bootstrap: str, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic(partitions=3)
    produced = tools.run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "200", "--throughput", "-1"),
        *("--bootstrap-server", bootstrap, "--command-property", "acks=all", f"compression.type={codec}"),
    )
    assert produced.lines[-1].startswith(f"{RECORDS} records sent, "), str(produced)
    consumed = tools.run(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(RECORDS)),
        *("--timeout", "20000"),
    )
    columns = [word.strip() for word in consumed.lines[0].split(",")]
    values = [word.strip() for word in consumed.lines[-1].split(",")]
    row = dict(zip(columns, values, strict=True))
    assert row["data.consumed.in.nMsg"] == str(RECORDS), str(consumed)
    assert abs(float(row["data.consumed.in.MB"]) - RECORDS * 200 / 2**20) < 0.01


def test_end_to_end_latency(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    output = tools.run(
        "EndToEndLatency",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "300"),
        *("--record-size", "100", "--producer-acks", "all"),
    )
    assert re.search(r"Avg latency: \d+\.\d+ ms", output.out), str(output)
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", output.out), str(output)


def events(log: Path, name: str) -> list[dict[str, Any]]:
    """The events with this name that a verifiable client has printed so far."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [event for event in found if event["name"] == name]


def test_verifiable_producer_and_consumer_agree(
    tools: KafkaTools,
    bootstrap: str,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Every acknowledged record is consumed once, and the consumer's commits reach the end."""
    topic, count = make_topic(partitions=2), 500
    produced, consumed = tmp_path / "producer.log", tmp_path / "consumer.log"
    produce = ["VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1"]
    consume = ["VerifiableConsumer", "--bootstrap-server", bootstrap, "--topic", topic, "--verbose"]
    consume += ["--group-id", unique("group"), "--reset-policy", "earliest", "--max-messages", str(count)]
    with (
        tools.spawn(*produce, "--max-messages", str(count), log=produced) as producer,
        tools.spawn(*consume, log=consumed),
    ):
        assert producer.wait(60) == 0
        acknowledged = {
            (event["partition"], event["offset"]): event["value"]
            for event in events(produced, "producer_send_success")
        }
        assert len(acknowledged) == count
        assert events(produced, "producer_send_error") == []
        wait_until(
            lambda: len(events(consumed, "record_data")) >= count,
            "the consumer has every record",
            timeout_s=60,
        )
        seen = [
            ((event["partition"], event["offset"]), event["value"])
            for event in events(consumed, "record_data")
        ]
        assert len(seen) == count
        assert dict(seen) == acknowledged
        last = wait_until(
            lambda: [
                commit
                for commit in events(consumed, "offsets_committed")
                if sum(entry["offset"] for entry in commit["offsets"]) == count
            ],
            "the consumer has committed to the end",
            timeout_s=30,
        )
        assert all(commit["success"] for commit in last)
        (assigned, *_) = events(consumed, "partitions_assigned")
        assert sorted(entry["partition"] for entry in assigned["partitions"]) == [0, 1]
