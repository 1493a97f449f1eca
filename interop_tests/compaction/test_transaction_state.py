"""__transaction_state is compacted: the remaining records restore the state of every transactional id, and each id
continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.compaction.keyed import EAGER_CLEANER, cleaned_to, wait_until_clean
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import KafkaTools, dump_faults
from interop_tests.harness.raw_kafka import create_topic, fetch
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import NEW, OLD, Producer, find_coordinator, init_producer_id
from interop_tests.transactions.test_by_hand import ID_NOT_FOUND, committed

pytestmark = pytest.mark.needs_control

STATE = "__transaction_state"
SMALL = {
    "transaction.state.log.segment.bytes": str(1 << 20),
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
BUSY, ROUNDS = 10, 60
"""Long ids, so that segments fill quickly: two segments, twice."""


def test_every_id_is_known_after_its_log_was_cleaned(
    tools: KafkaTools, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker(EAGER_CLEANER | SMALL)
    create_topic(broker.bootstrap, "t")
    names = [f"busy-{number}-" + "x" * 3000 for number in range(BUSY)]
    epochs = dict.fromkeys(names, -1)

    def keep_busy(connection: Connection) -> None:
        for name in names * ROUNDS:
            reply = init_producer_id(connection, name)
            assert reply["ErrorCode"] == 0
            assert reply["ProducerEpoch"] == epochs[name] + 1
            epochs[name] += 1

    with Connection(broker.bootstrap) as connection:
        early = Producer(connection, "early", NEW).init()
        early.send("t", b"early")
        early.finish(True)
        early.wait_for("CompleteCommit")
        aborted = Producer(connection, "aborted", OLD).init()
        aborted.send("t", b"aborted")
        aborted.finish(False)
        aborted.wait_for("CompleteAbort")
        left_open = Producer(connection, "open", NEW).init()
        left_open.send("t", b"open")
        producers = [early, aborted, left_open]
        before = [each.describe() for each in producers]
    for turn, stop in enumerate((broker.kill, broker.stop), 1):
        with Connection(broker.bootstrap) as connection:
            find_coordinator(connection, "early")
            early.connection = connection
            early.wait_for("CompleteCommit")
            keep_busy(connection)
            wait_until_clean(broker.data_dir, STATE)
        assert cleaned_to(broker.data_dir, STATE) > turn * BUSY * ROUNDS // 2
        size = sum(path.stat().st_size for path in (broker.data_dir / f"{STATE}-0").glob("*.log"))
        # After twice or four times as much, the active segment and one record for each id remain.
        assert size < (1 << 20) + 2 * BUSY * 3300
        stop()
        broker.start()
    with Connection(broker.bootstrap) as connection:
        find_coordinator(connection, names[0])
        for each in producers:
            each.connection = connection
        left_open.wait_for("Ongoing")
        assert [each.describe() for each in producers] == before
        for name, epoch in epochs.items():
            described = Producer(connection, name, NEW).describe()
            assert (described["TransactionState"], described["ProducerEpoch"]) == ("Empty", epoch)
        assert Producer(connection, "never-seen", NEW).describe()["ErrorCode"] == ID_NOT_FOUND
        assert fetch(connection, "t", 0, IsolationLevel=1)["LastStableOffset"] == 4
        left_open.finish(True)
        left_open.wait_for("CompleteCommit")
        early.send("t", b"late")
        early.finish(True)
        early.wait_for("CompleteCommit")
        assert committed(connection, "t") == [b"early", b"open", b"late"]
    broker.stop()
    files = sorted((broker.data_dir / f"{STATE}-0").glob("*.log"))
    output = tools.run("DumpLogSegments", "--files", ",".join(map(str, files)), "--transaction-log-decoder")
    assert [line for line in dump_faults(output) if not line.startswith("Non-consecutive")] == []
    assert "transactionalId=open" in output.out or "open" in output.out
