"""Share groups continue when another program opens the data directory, or their leader or coordinator is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.cluster.clusters import BOTH, Cluster
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
    Crew,
    Hand,
    initialize,
    lag,
    read_from_start,
)
from interop_tests.share_groups.sides import STATE_TOPIC, has_share_coordinator

pytestmark = pytest.mark.needs_control

OTHER = {APACHE: KAFKACOMPAT, KAFKACOMPAT: APACHE}
GROUP, TOPIC = "group", "queue"
RECORDS = 12


def fill(connection: Connection, count: int) -> None:
    for number in range(count):
        assert produce(connection, TOPIC, BatchPlan([b"%d" % number]))["ErrorCode"] == 0


@pytest.mark.parametrize("first", [APACHE, KAFKACOMPAT])
def test_the_other_program_opens_the_directory_and_gives_it_back(tmp_path: Path, first: str) -> None:
    """What is acknowledged stays so, and what was held is delivered with the counts that the state has."""
    broker = SwitchingBroker(first, tmp_path / "node", True, {"group.share.assignment.interval.ms": "0"})
    try:
        broker.start()
        create_topic(broker.bootstrap, TOPIC)
        with Connection(broker.bootstrap) as connection:
            coordinator(connection, GROUP)
            wait_until(lambda: has_share_coordinator(connection), "there is a share coordinator")
            read_from_start(connection, GROUP)
            fill(connection, RECORDS)
            id_ = topic_id(connection, TOPIC)
        initialize(lambda: broker.bootstrap, GROUP, TOPIC, 1)
        for moves, kind in enumerate((OTHER[first], first)):
            start = moves * RECORDS
            hand = Hand(lambda: broker.bootstrap, GROUP, f"member{moves}", id_)
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
            again = Hand(lambda: broker.bootstrap, GROUP, f"again{moves}", id_)
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


def test_leaders_and_coordinators_are_killed(tmp_path: Path) -> None:
    """kill -9 of the leader of the records and of the state's leader while a crew works: a record whose acceptance was
    answered is not delivered again, and none is lost."""
    cluster = Cluster(
        KAFKACOMPAT,
        tmp_path / "cluster",
        3,
        BOTH,
        {
            "share.coordinator.state.topic.num.partitions": "1",
            "group.share.assignment.interval.ms": "0",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
        },
    )
    crew = None
    try:
        cluster.start()
        cluster.create_topic(TOPIC, 1, replication_factor=3)

        def leader() -> str | None:
            found = cluster.partition(TOPIC)
            node = cluster.nodes.get(found.leader) if found else None
            return node.bootstrap if node is not None and node.serves else None

        def any_node() -> str | None:
            return next((node.bootstrap for node in cluster.brokers if node.serves), None)

        def group_home() -> str | None:
            found = cluster.partition("__consumer_offsets", group_partition)
            node = cluster.nodes.get(found.leader) if found else None
            return node.bootstrap if node is not None and node.serves else None

        with Connection(cluster.brokers[0].bootstrap) as connection:
            read_from_start(connection, GROUP)
            connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [GROUP]})
            id_ = topic_id(connection, TOPIC)
            wait_until(lambda: has_coordinator_for_states(connection), "there is a share coordinator")
        group_partition = java_hash(GROUP) % 3
        cluster.leader("__consumer_offsets", group_partition)
        initialize(group_home, GROUP, TOPIC, 1)
        crew = Crew([Hand(leader, GROUP, f"hand{number}", id_) for number in range(3)]).start()
        written = 0
        for place in (TOPIC, STATE_TOPIC, TOPIC):
            written += cluster_fill(leader, 60)
            crew.settled(written - 30)
            found = cluster.partition(place)
            assert found is not None
            cluster.nodes[found.leader].kill()
            written += cluster_fill(leader, 60)
            crew.settled(written)
            cluster.mend()
        crew.settled(written)

        def is_done() -> bool:
            address = group_home()
            if address is None:
                return False
            with Connection(address) as connection:
                return list(lag(connection, GROUP)) == [(0, 0)]

        cluster.wait(is_done, "everything is accepted")
    finally:
        if crew is not None:
            crew.finish()
        cluster.close()


def has_coordinator_for_states(connection: Connection) -> bool:
    asked = {"KeyType": 2, "CoordinatorKeys": ["probe:AAAAAAAAAAAAAAAAAAAAAQ:0"]}
    (found,) = connection.call("FindCoordinator", 6, asked)["Coordinators"]
    return bool(found["ErrorCode"] == 0)


def java_hash(text: str) -> int:
    """The hash of a string, without its sign."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def cluster_fill(find: object, count: int) -> int:
    """Produce so many batches of one record at the leader, each until it is acknowledged once."""
    assert callable(find)
    for number in range(count):

        def is_written(number: int = number) -> bool:
            address = find()
            if address is None:
                return False
            try:
                with Connection(address, timeout_s=5) as connection:
                    return bool(produce(connection, TOPIC, BatchPlan([b"%d" % number]))["ErrorCode"] == 0)
            except Exception:
                return False

        wait_until(is_written, "a record is written")
    return count
