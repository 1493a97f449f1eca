"""A topic is deleted and created again with the same name, and then kill -9: checkpoints of the old topic do not apply
to the new one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.faults.load import plan
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import create_topic, fetch_records, list_offset, produce
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
OLD_RECORDS, DELETED_TO = 100, 90
EARLIEST, LATEST = -2, -1


def write(connection: Connection, topic: str, count: int) -> None:
    for number in range(0, count, 10):
        reply = produce(connection, topic, plan(*(b"%d" % each for each in range(number, number + 10))))
        assert reply["ErrorCode"] == 0, reply


def delete_records(connection: Connection, topic: str, offset: int) -> None:
    one = {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}
    (found,) = connection.call("DeleteRecords", 2, {"Topics": [one], "TimeoutMs": 5000})["Topics"]
    assert found["Partitions"][0]["ErrorCode"] == 0, found


def delete_topic(connection: Connection, topic: str) -> None:
    (found,) = connection.call("DeleteTopics", 5, {"TopicNames": [topic], "TimeoutMs": 5000})["Responses"]
    assert found["ErrorCode"] == 0, found


def test_a_topic_made_anew_keeps_what_was_acknowledged(make_broker: MakeBroker) -> None:
    """The log start of the old topic is within the new topic's records, or above all of them."""
    late = {
        "log.initial.task.delay.ms": "3600000",
        "log.flush.start.offset.checkpoint.interval.ms": "3600000",
        "log.flush.offset.checkpoint.interval.ms": "3600000",
        "replica.high.watermark.checkpoint.interval.ms": "3600000",
    }
    broker = make_broker(late)
    counts = {"shorter": 50, "longer": 200}
    with Connection(broker.bootstrap) as connection:
        for topic in counts:
            create_topic(broker.bootstrap, topic)
            write(connection, topic, OLD_RECORDS)
            delete_records(connection, topic, DELETED_TO)
    broker.restart()  # the checkpoints are written when it stops
    told = (broker.data_dir / "log-start-offset-checkpoint").read_text()
    assert all(f"{topic} 0 {DELETED_TO}" in told for topic in counts)
    with Connection(broker.bootstrap) as connection:
        for topic, count in counts.items():
            delete_topic(connection, topic)
            create_topic(broker.bootstrap, topic)
            write(connection, topic, count)
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        for topic, count in counts.items():
            assert list_offset(connection, topic, 0, EARLIEST)[:2] == (0, 0)
            assert list_offset(connection, topic, 0, LATEST)[:2] == (0, count)
            assert [record.value for record in fetch_records(connection, topic)] == [
                b"%d" % number for number in range(count)
            ]
