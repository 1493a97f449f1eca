"""One of two log directories refuses to rename the directory of a deleted topic: it goes offline, the node continues
with the other one, and the topic stays deleted. KIP-112."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.faults.load import Acknowledged, assert_kept, log_end, plan
from interop_tests.faults.mounts import pinned
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode, create_topic, produce
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
PARTITIONS = 4


def test_a_topic_is_deleted_that_a_directory_does_not_let_go(make_broker: MakeBroker, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    broker = make_broker({"log.dirs": f"{first},{second}"})
    broker.data_dir = first
    acknowledged: Acknowledged = {}
    for topic in ("kept", "gone"):
        create_topic(broker.bootstrap, topic, PARTITIONS)
        with Connection(broker.bootstrap) as connection:
            for partition in range(PARTITIONS):
                value = b"%s-%d" % (topic.encode(), partition)
                result = produce(connection, topic, plan(value), partition)
                assert result["ErrorCode"] == ErrorCode.NONE
                if topic == "kept":
                    acknowledged[partition, result["BaseOffset"]] = value
    with pinned(next(second.glob("gone-*"))):
        with Connection(broker.bootstrap) as connection:
            body = {"TopicNames": ["gone"], "TimeoutMs": 15000}
            (deleted,) = connection.call("DeleteTopics", 5, body)["Responses"]
            assert deleted["ErrorCode"] == ErrorCode.NONE
            for partition in [int(path.name[-1]) for path in first.glob("kept-*")]:
                result = produce(connection, "kept", plan(b"after"), partition)
                assert result["ErrorCode"] == ErrorCode.NONE
                acknowledged[partition, result["BaseOffset"]] = b"after"
        assert broker.process is not None
        assert broker.process.poll() is None, broker.log_text()[-3000:]
        broker.kill()
    broker.start()
    create_topic(broker.bootstrap, "gone", PARTITIONS)
    assert_kept(broker.bootstrap, "kept", acknowledged)
    for partition in range(PARTITIONS):
        assert log_end(broker.bootstrap, "gone", partition) == 0
    assert broker.stop() in (0, 143)
