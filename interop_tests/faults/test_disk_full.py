"""A full disk: writes are refused, the broker stays up, reads continue, and no acknowledged record is lost.

There are two ways: a small file system (needs root), and a limit on the size of files, which every process may have.
Apache Kafka halts when its only log directory fails. For it only the last guarantee is tested.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.faults.load import BROKEN, Acknowledged, assert_kept, log_end, plan
from interop_tests.faults.mounts import mounted_tmpfs, remount
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode, create_topic, produce
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
KAFKA_STORAGE_ERROR = 56
CHECKPOINTS_MS = 300
"""High watermarks and recovery points are written this often, so that they are also written to the full disk."""
SETTINGS = {
    "replica.high.watermark.checkpoint.interval.ms": str(CHECKPOINTS_MS),
    "log.flush.offset.checkpoint.interval.ms": str(CHECKPOINTS_MS),
    "log.flush.start.offset.checkpoint.interval.ms": str(CHECKPOINTS_MS),
    "log.index.size.max.bytes": "4096",
}


def fill(broker: BrokerProcess, topic: str, acknowledged: Acknowledged, value_bytes: int = 100_000) -> int:
    """Produce until the broker refuses, and then small records until it refuses those. Returns the error code, or -100
    for a broken connection."""
    code = 0
    try:
        with Connection(broker.bootstrap) as connection:
            for size in (value_bytes, 1000, 10):
                for number in range(2000):
                    value = b"%d-%d-" % (size, number) + b"x" * size
                    result = produce(connection, topic, plan(value))
                    code = result["ErrorCode"]
                    if code != ErrorCode.NONE:
                        break
                    acknowledged[0, result["BaseOffset"]] = value
                assert code != ErrorCode.NONE, "the disk never became full"
    except BROKEN:
        code = -100
    return code


def assert_survives(broker: BrokerProcess, topic: str, make_room: Callable[[], None]) -> None:
    acknowledged: Acknowledged = {}
    code = fill(broker, topic, acknowledged)
    assert len(acknowledged) > 5
    if broker.kind != APACHE:
        assert code == KAFKA_STORAGE_ERROR
        time.sleep(4 * CHECKPOINTS_MS / 1000)
        assert broker.process is not None
        assert broker.process.poll() is None, broker.log_text()[-3000:]
        assert_kept(broker.bootstrap, topic, acknowledged)
        with Connection(broker.bootstrap) as connection:
            assert produce(connection, topic, plan(b"x" * 100_000))["ErrorCode"] == KAFKA_STORAGE_ERROR
    make_room()
    if broker.kind != APACHE:
        # When there is room again, it accepts records without a restart.
        with Connection(broker.bootstrap) as connection:
            result = produce(connection, topic, plan(b"after"))
            assert result["ErrorCode"] == ErrorCode.NONE
            acknowledged[0, result["BaseOffset"]] = b"after"
        assert "Traceback" not in broker.log_text()
    broker.kill()
    broker.start()
    assert_kept(broker.bootstrap, topic, acknowledged)
    with Connection(broker.bootstrap) as connection:
        assert (
            produce(connection, topic, plan(b"at last"))["BaseOffset"] == log_end(broker.bootstrap, topic) - 1
        )
    assert broker.stop() in (0, 143)


def test_a_full_file_system(make_broker: MakeBroker, tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", "8m") as small:
        broker = make_broker(SETTINGS | {"log.dirs": str(small / "data")})
        broker.data_dir = small / "data"
        create_topic(broker.bootstrap, "filled", 1, {"segment.bytes": str(1 << 20)})
        assert_survives(broker, "filled", lambda: remount(small, "size=32m"))
        broker.kill()


def test_a_limit_on_the_size_of_files(make_broker: MakeBroker) -> None:
    broker = make_broker(SETTINGS)
    create_topic(broker.bootstrap, "limited")
    unlimited = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (2_000_000, unlimited[1]))
    pid = broker.pid

    def make_room() -> None:
        if broker.process is not None and broker.process.poll() is None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)

    assert_survives(broker, "limited", make_room)


def test_a_full_disk_refuses_topics_and_takes_them_later(make_broker: MakeBroker, tmp_path: Path) -> None:
    """The metadata log is also on the full disk. The node stays up and continues when there is room."""
    with mounted_tmpfs(tmp_path / "small", "8m") as small:
        broker = make_broker(SETTINGS | {"log.dirs": str(small / "data")})
        if broker.kind == APACHE:
            pytest.skip("Apache Kafka halts when its only log directory fails")
        create_topic(broker.bootstrap, "filled")
        acknowledged: Acknowledged = {}
        fill(broker, "filled", acknowledged)
        ballast = small / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 512):
                    pass
            except OSError:
                pass
        made = []
        with Connection(broker.bootstrap) as connection:
            # The last page of the metadata log still has room for some records.
            for number in range(100):
                (topic,) = connection.call("CreateTopics", 7, new_topic(f"late-{number}"))["Topics"]
                if topic["ErrorCode"] != ErrorCode.NONE:
                    break
                made.append(topic["Name"])
            assert topic["ErrorCode"] == KAFKA_STORAGE_ERROR, topic
        assert broker.process is not None
        assert broker.process.poll() is None, broker.log_text()[-3000:]
        assert_kept(broker.bootstrap, "filled", acknowledged)
        ballast.unlink()
        remount(small, "size=32m")
        create_topic(broker.bootstrap, "taken")
        broker.kill()
        broker.start()
        assert_kept(broker.bootstrap, "filled", acknowledged)
        with Connection(broker.bootstrap) as connection:
            for name in ("taken", *made):
                assert produce(connection, name, plan(b"v"))["BaseOffset"] == 0
        broker.kill()


def new_topic(name: str) -> dict[str, object]:
    topic = {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
    return {"Topics": [topic], "timeoutMs": 3000}
