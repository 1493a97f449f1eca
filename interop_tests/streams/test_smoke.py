"""Kafka's own smoke test of Streams (windows, suppression, joins of tables, a repartition), which checks each output
itself. Instances come, go, and are killed while its input is written.

It is the one of the release before, because the classes of the reference's are not published.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.kafka_jars import BEFORE
from interop_tests.harness.waiting import wait_until
from interop_tests.streams.instances import BROKER_SETTINGS, CLASSIC_SETTINGS, Instances, Run, java_command

pytestmark = pytest.mark.needs_control

KEYS, RECORDS = 10, 120
WRITTEN_IN_S = 12
PARTITIONS = 2
TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed"),
    *("cnt", "avg", "tagg", "fk"),
)
VERIFIED_WITHIN_S = 120.0
CLIENT = "org.apache.kafka.streams.tests.StreamsSmokeTest"
KINDS = [("streams", "exactly_once_v2"), ("classic", "at_least_once")]
"""Each protocol and each guarantee. test_instances.py has all four pairs in one life."""
if os.environ.get("KAFKACOMPAT_SOAK"):
    KINDS += [("streams", "at_least_once"), ("classic", "exactly_once_v2")]
GAVE_UP = "SMOKE-TEST-CLIENT-EXCEPTION"
CLOSED = "SMOKE-TEST-CLIENT-CLOSED"


def wait_until_at_rest(bootstrap: str) -> None:
    """Wait until all records of the input were processed, and no output grows any more."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watcher", "log_level": 0})
    seen: list[int] = []

    def rests() -> bool:
        nonlocal seen
        places = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        before, seen = seen, [consumer.get_watermark_offsets(each, 30)[1] for each in places]
        echoed = sum(end for place, end in zip(places, seen, strict=True) if place.topic == "echo")
        return seen == before and echoed >= KEYS * RECORDS

    try:
        wait_until(rests, "the outputs are complete", VERIFIED_WITHIN_S, interval_s=2)
    finally:
        consumer.close()


@pytest.mark.parametrize(("protocol", "guarantee"), KINDS)
def test_kafkas_smoke_test(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path, protocol: str, guarantee: str
) -> None:
    broker = make_broker(BROKER_SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in TOPICS]).values():
        made.result(30)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "application.id": "smoke",
        "processing.guarantee": guarantee,
        "replication.factor": "1",
        "commit.interval.ms": "200",
        "group.protocol": protocol,
        "main.consumer.auto.offset.reset": "earliest",
        **(CLASSIC_SETTINGS if protocol == "classic" else {}),
    }
    java = java_command(BEFORE)
    instances = Instances(tmp_path, "smoke", [*java, CLIENT], Run(settings, ["process"]))
    log_path = tmp_path / "driver.log"
    sizes = [str(each) for each in (KEYS, RECORDS, WRITTEN_IN_S)]
    try:
        instances.start(0)
        instances.wait_until_running(0)
        with open(log_path, "wb") as log:
            command = [*java, "SmokeDriver", broker.bootstrap, *sizes, guarantee]
            driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            instances.start(1)
            instances.wait_until_running(1)
            instances.kill(0)
            instances.start(0)
            instances.wait_until_running(0)
            assert instances.stop(1) == 143
            instances.start(2)
            instances.wait_until_running(2)

            wait_until(lambda: "WRITTEN" in log_path.read_text(), "the input is written", VERIFIED_WITHIN_S)
            wait_until_at_rest(broker.bootstrap)
            assert driver.stdin is not None
            driver.stdin.close()

            def has_ended() -> bool:
                instances.assert_runs()
                return driver.poll() is not None

            wait_until(has_ended, "the driver has checked the outputs", VERIFIED_WITHIN_S, 0.2)
        finally:
            driver.kill()
            driver.wait()
        said = log_path.read_text()
        assert driver.returncode == 0, said[-6000:]
        assert {"SUCCESS", "ALL-RECORDS-DELIVERED"} <= set(said.split()), said[-6000:]
        if guarantee == "exactly_once_v2":
            assert f"recordProcessed={KEYS * RECORDS}" in said, said[-6000:]
        for number in (0, 2):
            assert instances.stop(number) == 143
        for number in range(3):
            told = instances.log_text(number)
            assert GAVE_UP not in told, told[-6000:]
            assert CLOSED in told, told[-6000:]
    finally:
        instances.close()
