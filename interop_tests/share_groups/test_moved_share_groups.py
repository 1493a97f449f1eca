"""Share groups continue when another program opens the data directory."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from interop_tests.cli.command import output_of
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic, produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import (
    ACCEPT,
    REJECT,
    RELEASE,
    Hand,
    Leader,
    initialize,
    lag,
    read_from_start,
)
from interop_tests.share_groups.sides import has_share_coordinator

pytestmark = pytest.mark.needs_control

OTHER = {APACHE: KAFKACOMPAT, KAFKACOMPAT: APACHE}
GROUP, TOPIC, LETTERS = "group", "queue", "dlq.queue"
RECORDS = 12


def fill(connection: Connection, count: int) -> None:
    for number in range(count):
        assert produce(connection, TOPIC, BatchPlan.of_now(b"%d" % number))["ErrorCode"] == 0


@pytest.mark.parametrize("first", [APACHE, KAFKACOMPAT])
def test_the_other_program_opens_the_directory_and_gives_it_back(tmp_path: Path, first: str) -> None:
    """What is acknowledged stays so, and what was held is delivered with the counts that the state has."""
    broker = SwitchingBroker(first, tmp_path / "node", True, {"group.share.assignment.interval.ms": "0"})

    def leader() -> Leader:
        return Leader(broker.bootstrap)

    try:
        broker.start()
        create_topic(broker.bootstrap, TOPIC)
        with Connection(broker.bootstrap) as connection:
            coordinator(connection, GROUP)
            wait_until(lambda: has_share_coordinator(connection), "there is a share coordinator")
            read_from_start(connection, GROUP)
            fill(connection, RECORDS)
            id_ = topic_id(connection, TOPIC)
        initialize(lambda: broker.bootstrap, [GROUP], TOPIC)
        for moves, kind in enumerate((OTHER[first], first)):
            start = moves * RECORDS
            hand = Hand(leader, GROUP, f"member{moves}", id_)
            for offset in range(start, start + RECORDS):
                assert wait_until(hand.fetch, f"{offset} is delivered") == [(offset, offset, 1)]
            assert hand.acknowledge(start, start + 3, ACCEPT) == 0
            assert hand.acknowledge(start + 5, start + 5, ACCEPT) == 0
            assert hand.acknowledge(start + 6, start + 6, REJECT) == 0
            assert hand.acknowledge(start + 7, start + 8, RELEASE) == 0
            broker.become(kind)
            hand.hang_up()
            with Connection(broker.bootstrap) as connection:
                found: list[tuple[int, int]] = []

                def has_told(
                    connection: Connection = connection, found: list[tuple[int, int]] = found
                ) -> bool:
                    found[:] = lag(connection, GROUP)
                    return found == [(0, RECORDS - 6)]

                wait_until(has_told, "the group lags behind by what is not acknowledged")
            again = Hand(leader, GROUP, f"again{moves}", id_)
            counts: dict[int, int] = {}
            while len(counts) < RECORDS - 6:
                for each, last, count in wait_until(again.fetch, "the rest is delivered"):
                    counts |= dict.fromkeys(range(each, last + 1), count)
                    assert again.acknowledge(each, last) == 0
            left = {start + 4, start + 7, start + 8, *range(start + 9, start + RECORDS)}
            assert {*counts} == left
            assert all(count >= 2 for offset, count in counts.items() if offset in (start + 7, start + 8))
            again.hang_up()
            with Connection(broker.bootstrap) as connection:
                assert list(lag(connection, GROUP)) == [(0, 0)]
                fill(connection, RECORDS)
    finally:
        broker.kill()


def test_apache_kafka_opens_the_directory_after_dead_letters_were_removed(tmp_path: Path) -> None:
    """In the steps of docs/how-to/keep-dead-letters.md. What was rejected stays so, its letter is there, and the group
    goes on."""
    settings = {"group.share.assignment.interval.ms": "0"}
    broker = SwitchingBroker(KAFKACOMPAT, tmp_path / "node", True, settings)

    def hand(name: str, id_: UUID) -> Hand:
        return Hand(lambda: Leader(broker.bootstrap), GROUP, name, id_)

    def has_lag(count: int) -> bool:
        with Connection(broker.bootstrap) as connection:
            return list(lag(connection, GROUP)) == [(0, count)]

    try:
        broker.start()
        create_topic(broker.bootstrap, TOPIC)
        create_topic(broker.bootstrap, LETTERS, configs={"errors.deadletterqueue.group.enable": "true"})
        with Connection(broker.bootstrap) as connection:
            coordinator(connection, GROUP)
            wait_until(lambda: has_share_coordinator(connection), "there is a share coordinator")
            read_from_start(
                connection,
                GROUP,
                errors_deadletterqueue_topic_name=LETTERS,
                errors_deadletterqueue_copy_record_enable="true",
            )
            fill(connection, 4)
            id_ = topic_id(connection, TOPIC)
        initialize(lambda: broker.bootstrap, [GROUP], TOPIC)
        before = hand("before", id_)
        for offset in range(4):
            assert wait_until(before.fetch, f"{offset} is delivered") == [(offset, offset, 1)]
        assert before.acknowledge(0, 0, REJECT) == 0
        assert before.acknowledge(1, 1, ACCEPT) == 0
        assert before.acknowledge(2, 3, RELEASE) == 0
        wait_until(lambda: has_lag(2), "the rejected record is archived")
        before.hang_up()
        of_group = ["errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"]
        unset = [word for name in of_group for word in ("--unset", name)]
        output_of("groups", "alter", GROUP, "--bootstrap", broker.bootstrap, *unset)
        unset = ["--unset", "errors.deadletterqueue.group.enable"]
        output_of("topics", "alter", LETTERS, "--bootstrap", broker.bootstrap, *unset)
        broker.become(APACHE)
        after = hand("after", id_)
        counts: dict[int, int] = {}
        while len(counts) < 2:
            for first, last, count in wait_until(after.fetch, "the rest is delivered"):
                counts |= dict.fromkeys(range(first, last + 1), count)
                assert after.acknowledge(first, last) == 0
        assert counts == {2: 2, 3: 2}
        wait_until(lambda: has_lag(0), "nothing is left")
        words = ("--bootstrap", broker.bootstrap, "--from-beginning", "--until-end", "--print", "value")
        assert output_of("consume", LETTERS, *words).split() == ["0"]
        after.hang_up()
    finally:
        broker.kill()
