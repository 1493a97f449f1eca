"""kill -9 and SIGTERM under load: every acknowledged record is there afterwards, at its offset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import pytest

from interop_tests.faults.load import Acknowledged, Writer, assert_kept, log_end, plan
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.raw_kafka import create_topic, produce
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
ROUNDS = 200 if SOAK else 20
APACHE_ROUNDS = 3
TERMINATED = 143
"""The exit status of a JVM after SIGTERM, when its shutdown hooks have run."""


def writers(broker: BrokerProcess, topic: str) -> list[Writer]:
    """Writers with acks=all and acks=1, on two partitions each."""
    return [Writer(broker.bootstrap, topic, partition, acks) for partition, acks in enumerate((-1, 1, -1, 1))]


def has_reached(load: list[Writer], goal: int) -> bool:
    return sum(len(writer.acknowledged) for writer in load) >= goal


def all_acknowledged(load: list[Writer]) -> Acknowledged:
    # The writers continue meanwhile. Copying a dict is atomic.
    return {place: value for writer in load for place, value in writer.acknowledged.copy().items()}


def test_kills_in_a_row_lose_nothing_acknowledged(make_broker: MakeBroker) -> None:
    """Segments roll during the run, and each start recovers the tail that the previous one wrote."""
    broker = make_broker()
    topic = "killed"
    create_topic(broker.bootstrap, topic, 4, {"segment.bytes": str(1 << 20)})
    load = writers(broker, topic)
    try:
        for round_number in range(APACHE_ROUNDS if broker.kind == APACHE else ROUNDS):
            before = [len(writer.acknowledged) for writer in load]

            def each_wrote(before: list[int] = before) -> bool:
                return all(
                    len(writer.acknowledged) > count for writer, count in zip(load, before, strict=True)
                )

            wait_until(each_wrote, f"all write in round {round_number}", interval_s=0.01)
            # Kill at different points of the writers' cycles.
            time.sleep(0.013 * (round_number % 7))
            broker.kill()
            broker.start()
            if round_number % 5 == 4:
                assert_kept(broker.bootstrap, topic, all_acknowledged(load))
    finally:
        for writer in load:
            writer.stop()
    assert_kept(broker.bootstrap, topic, all_acknowledged(load))


def test_a_stop_under_load_is_clean(make_broker: MakeBroker) -> None:
    """SIGTERM: exit status 0, the file that marks a clean shutdown, and every acknowledged record."""
    broker = make_broker()
    topic = "stopped"
    create_topic(broker.bootstrap, topic, 4)
    load = writers(broker, topic)
    try:
        for _ in range(1 if broker.kind == APACHE else 3):
            goal = sum(len(writer.acknowledged) for writer in load) + 200
            wait_until(partial(has_reached, load, goal), "records are acknowledged")
            assert broker.stop() == (TERMINATED if broker.kind == APACHE else 0), broker.log_text()
            assert (broker.data_dir / ".kafka_cleanshutdown").exists()
            broker.start()
    finally:
        for writer in load:
            writer.stop()
    assert_kept(broker.bootstrap, topic, all_acknowledged(load))
    assert "Traceback" not in broker.log_text()


def test_a_torn_tail_is_cut_off(make_broker: MakeBroker) -> None:
    """Half a batch, as after a write that the kernel did not finish: recovery removes it, and its offset is used
    again."""
    broker = make_broker()
    topic = "torn"
    create_topic(broker.bootstrap, topic)
    with Connection(broker.bootstrap) as connection:
        for number in range(10):
            assert produce(connection, topic, plan(b"%d" % number))["ErrorCode"] == 0
    broker.kill()
    (segment,) = (broker.data_dir / f"{topic}-0").glob("*.log")
    whole = segment.stat().st_size
    torn = bytearray(plan(b"never acknowledged").encode())
    torn[:8] = (10).to_bytes(8, "big")
    for cut in (5, 30, len(torn) - 1):
        with open(segment, "ab") as file:
            file.write(torn[:cut])
        broker.start()
        assert log_end(broker.bootstrap, topic) == 10
        broker.kill()
        assert segment.stat().st_size == whole
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, topic, plan(b"10"))["BaseOffset"] == 10
    expected: Acknowledged = {(0, number): b"%d" % number for number in range(11)}
    assert_kept(broker.bootstrap, topic, expected)
