"""Transactions on a folder that Apache Kafka and kafkacompat serve in turn: each completes the transactions that the
other has started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.raw_kafka import create_topic, fetch
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import NEW, OLD, Producer, Protocol, find_coordinator
from interop_tests.transactions.test_by_hand import committed

pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize("order", [(APACHE, KAFKACOMPAT), (KAFKACOMPAT, APACHE)], ids=lambda order: order[0])
def test_a_transaction_that_one_broker_has_begun_is_ended_by_the_other(
    order: tuple[str, str], tmp_path: Path, unique: Any
) -> None:
    first, second = order
    broker = SwitchingBroker(first, tmp_path / "node", dynamic=False)
    broker.start()
    try:
        create_topic(broker.bootstrap, "t")
        producers: dict[Protocol, Producer] = {}
        with Connection(broker.bootstrap) as connection:
            for protocol in (OLD, NEW):
                producer = producers[protocol] = Producer(connection, unique("tx"), protocol).init()
                for commit in (True, False):
                    producer.send("t", b"%r by the first" % commit)
                    producer.finish(commit)
                    producer.wait_for("CompleteCommit", "CompleteAbort")
                producer.send("t", b"open")
        broker.become(second)
        with Connection(broker.bootstrap) as connection:
            for producer in producers.values():
                producer.connection = connection
                find_coordinator(connection, producer.transactional_id)
                producer.wait_for("Ongoing")
                producer.send("t", b"more")
                producer.finish(True)
                producer.wait_for("CompleteCommit")
        broker.become(first)
        with Connection(broker.bootstrap) as connection:
            for producer in producers.values():
                producer.connection = connection
                find_coordinator(connection, producer.transactional_id)
                producer.wait_for("CompleteCommit")
                producer.send("t", b"last")
                producer.finish(True)
                producer.wait_for("CompleteCommit")
            found = fetch(connection, "t", 0, IsolationLevel=1)
            assert found["LastStableOffset"] == found["HighWatermark"] == 18
            assert sorted(value for value in committed(connection, "t") if value) == sorted(
                [b"True by the first", b"open", b"more", b"last"] * 2
            )
    finally:
        broker.kill()
