"""Alerts fire in the faults that they are for, and end when these are mended: those that no test of dead nodes and
directories shows (test_prometheus).

The tests share a cluster. What takes half a minute goes on while others run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from interop_tests.harness.broker import chosen_bootstrap
from interop_tests.harness.damage import change_byte
from interop_tests.harness.raw_kafka import ErrorCode, produce, produce_body, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.metrics.faulty_cluster import (
    CONTROLS,
    FOLLOWS,
    HUNG,
    JOBS,
    KEYED,
    LETTERS,
    MAGIC_AT,
    OFFSETS,
    PARTITIONS,
    PIECE,
    SEGMENT_BYTES,
    SHARE_STATE,
    SLOW,
    TIMEOUT_S,
    TORN,
    WATCHED,
    FaultyCluster,
    batch_sizes,
    oldest_file,
)
from interop_tests.share_groups.hand import REJECT, Hand, Leader, initialize, read_from_start

GROUP = "workers"
OF_DAMAGE = ("KafkaGroupCoordinatorFailed", "KafkaShareCoordinatorFailed", "KafkaReplicaFetcherFailed")
OF_THE_MACHINE = {"KafkaLoopStalled", "KafkaLoopBusy"}
"""Alerts that a busy machine may cause."""
TRANSACTIONAL = 0x10
"""The bit of a batch's attributes."""
GREEDY = 30
"""Clients that produce some 130 bytes each."""
GIVEN_UP = "kafkacompat_share_dead_letters_given_up_total"

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts a cluster of its own"),
    pytest.mark.skipif(
        not os.environ.get("KAFKACOMPAT_SOAK"), reason="takes over a minute; KAFKACOMPAT_SOAK"
    ),
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    made = FaultyCluster(tmp_path_factory.mktemp("faulty"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def slow_faults(faulty: FaultyCluster) -> Iterator[ExitStack]:
    """The controller is away, so that nobody gets newer metadata, and FOLLOWS has too much to do. Closing the stack ends
    that."""
    faulty.watch()
    assert not faulty.firing() & {"KafkaMetadataStale"}
    with ExitStack() as stack:
        stack.enter_context(faulty.too_many_requests(FOLLOWS))
        controller = faulty.cluster.nodes[CONTROLS]
        controller.pause()
        stack.callback(controller.resume)
        yield stack


class Rejecting:
    """A member of a share group that rejects jobs. The topic of their dead letters is not enabled for them."""

    def __init__(self, faulty: FaultyCluster) -> None:
        self._faulty = faulty
        bootstrap = faulty.works.bootstrap
        with Connection(bootstrap) as connection:
            read_from_start(connection, GROUP, errors_deadletterqueue_topic_name=LETTERS)
            id_ = topic_id(connection, JOBS)
        initialize(lambda: bootstrap, [GROUP], JOBS)
        self._hand = Hand(lambda: Leader(bootstrap), GROUP, "hand", id_, timeout_s=TIMEOUT_S)

    def lose(self) -> None:
        """One letter."""
        self._faulty.produce(JOBS, b"job")
        ((first, last, _),) = wait_until(self._hand.fetch, "a job is delivered", TIMEOUT_S)
        assert self._hand.acknowledge(first, last, REJECT) == 0

    def close(self) -> None:
        self._hand.hang_up()


def test_letters_that_cannot_be_written(faulty: FaultyCluster) -> None:
    """The first one is lost before the first scrape. For Prometheus, the counter was never lower."""
    rejecting = Rejecting(faulty)
    try:
        rejecting.lose()
        wait_until(
            lambda: "no dead letters of jobs-0" in faulty.works.log_text(), "it is given up", TIMEOUT_S
        )
        faulty.watch()
        faulty.fires("KafkaDeadLettersLost")
        rejecting.lose()
        prometheus, grown = faulty.prometheus, f"increase({GIVEN_UP}[1m]) > 0"
        wait_until(lambda: prometheus.query(grown), "the next one is counted", TIMEOUT_S)
    finally:
        rejecting.close()


def test_wrong_passwords(faulty: FaultyCluster) -> None:
    """The alert ends a minute later (`test_no_alert_stays`)."""
    faulty.watch()
    assert "KafkaAuthenticationsFail" not in faulty.firing()
    with faulty.wrong_passwords():
        faulty.fires("KafkaAuthenticationsFail")


def test_a_follower_that_falls_behind(faulty: FaultyCluster) -> None:
    """The alert ends later, as the one before."""
    faulty.watch()
    assert "KafkaIsrFlapping" not in faulty.firing()
    follows = faulty.cluster.nodes[FOLLOWS]
    follows.pause()
    try:
        # A replica that has all records is in sync, whoever does not fetch.
        with Connection(faulty.works.bootstrap, TIMEOUT_S) as connection:
            for partition in range(PARTITIONS):
                answer = produce(connection, WATCHED, BatchPlan(), partition, acks=1)
                assert answer["ErrorCode"] == ErrorCode.NONE, answer
        faulty.fires("KafkaIsrFlapping")
    finally:
        follows.resume()
    faulty.cluster.wait_until_replicated(TIMEOUT_S)


def test_a_disk_that_changes_bytes(faulty: FaultyCluster) -> None:
    """The states of coordinators cannot be read. A replica whose leader has less cannot find where the logs part."""
    faulty.watch()
    cluster, works, follows = faulty.cluster, faulty.works, faulty.cluster.nodes[FOLLOWS]
    commit(faulty)
    faulty.produce(TORN, *[b"small"] * 4)
    cluster.wait_until_replicated(TIMEOUT_S)
    assert follows.stop() == 0
    # The index begins behind them: the start checks nothing before.
    faulty.produce(TORN, *[b"x" * 3000] * 6)
    assert not faulty.firing() & set(OF_DAMAGE)
    assert works.stop() == 0
    states = [oldest_file(works, topic) for topic in (OFFSETS, SHARE_STATE)]
    ends = [batch_sizes(path)[0] - 1 for path in states]
    for path, end in zip(states, ends, strict=True):
        assert len(batch_sizes(path)) > 1
        change_byte(path, end)
    torn = oldest_file(works, TORN)
    change_byte(torn, batch_sizes(torn)[0] + MAGIC_AT)
    follows.start()
    cluster.wait(lambda: leads_torn(faulty) == FOLLOWS, "the replica with less leads", TIMEOUT_S)
    faulty.prometheus.wait_until_firing("KafkaUncleanElection", timeout_s=TIMEOUT_S)
    works.start()
    faulty.fires("KafkaGroupCoordinatorFailed", "KafkaShareCoordinatorFailed", "KafkaReplicaFetcherFailed")

    # What the page of alerts says: this replica's directory is deleted, and copied again.
    assert works.stop() == 0
    for path, end in zip(states, ends, strict=True):
        change_byte(path, end)
    shutil.rmtree(torn.parent)
    works.start()
    cluster.wait_until_whole(TIMEOUT_S)
    faulty.prometheus.wait_until_scraped()
    faulty.resolves(*OF_DAMAGE)
    commit(faulty)


def test_a_transaction_that_nobody_knows(faulty: FaultyCluster) -> None:
    """It was begun two hours ago, and its producer has gone."""
    faulty.watch()
    assert "KafkaLateTransaction" not in faulty.firing()
    begun_ms = time.time_ns() // 1_000_000 - 7_200_000
    batch = BatchPlan(
        base_timestamp_ms=begun_ms,
        attributes=TRANSACTIONAL,
        producer_id=4711,
        producer_epoch=0,
        base_sequence=0,
    )
    answer = faulty.ask("Produce", 9, produce_body(HUNG, batch) | {"TransactionalId": "gone"})
    assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == ErrorCode.NONE, answer
    faulty.fires("KafkaLateTransaction")
    # As `kafka-transactions.sh abort` does.
    marker = {
        "ProducerId": 4711,
        "ProducerEpoch": 0,
        "TransactionResult": False,
        "Topics": [{"Name": HUNG, "PartitionIndexes": [0]}],
        "CoordinatorEpoch": 0,
    }
    faulty.ask("WriteTxnMarkers", 1, {"Markers": [marker]})
    faulty.resolves("KafkaLateTransaction")


def test_many_clients_over_their_quota(faulty: FaultyCluster) -> None:
    """The alert ends when the throttle times are over (`test_no_alert_stays`)."""
    faulty.watch()
    assert "KafkaClientsMuted" not in faulty.firing()
    faulty.limit("greedy", 60)
    for _ in range(GREEDY):
        with Connection(faulty.works.bootstrap, TIMEOUT_S, client_id="greedy") as connection:
            answer = produce(connection, HUNG, BatchPlan(), acks=1)
            assert answer["ErrorCode"] == ErrorCode.NONE, answer
    faulty.fires("KafkaClientsMuted")


def test_a_cleaner_that_may_move_next_to_nothing(faulty: FaultyCluster) -> None:
    faulty.watch()
    assert "KafkaCleanerStuck" not in faulty.firing()
    with faulty.slow_cleaner():
        faulty.produce(SLOW, *[PIECE] * 12, keys=[b"the same"] * 12)
        faulty.fires("KafkaCleanerStuck")
    faulty.resolves("KafkaCleanerStuck")


def leads_torn(faulty: FaultyCluster) -> int:
    found = faulty.cluster.partition(TORN)
    return -1 if found is None else found.leader


def commit(faulty: FaultyCluster) -> None:
    """Twice, so that the topic has more than one batch."""
    partition = {
        "PartitionIndex": 0,
        "CommittedOffset": 1,
        "CommittedLeaderEpoch": -1,
        "CommittedMetadata": "",
    }
    body = {
        "GroupId": "committed",
        "GenerationIdOrMemberEpoch": -1,
        "MemberId": "",
        "GroupInstanceId": None,
        "Topics": [{"Name": JOBS, "Partitions": [partition]}],
    }
    with Connection(faulty.works.bootstrap, TIMEOUT_S) as connection:

        def is_committed() -> bool:
            answer = connection.call("OffsetCommit", 8, body)
            return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0)

        for _ in range(2):
            wait_until(is_committed, "an offset is committed", TIMEOUT_S)


@pytest.mark.usefixtures("slow_faults")
def test_few_descriptors(faulty: FaultyCluster) -> None:
    assert "KafkaFileDescriptorsShort" not in faulty.firing()
    with faulty.few_descriptors():
        faulty.fires("KafkaFileDescriptorsShort")
    faulty.resolves("KafkaFileDescriptorsShort")


@pytest.mark.usefixtures("slow_faults")
def test_a_log_that_the_cleaner_cannot_read(faulty: FaultyCluster) -> None:
    """A byte changes in the active segment, which the cleaner leaves alone until it is full."""
    first = SEGMENT_BYTES // len(PIECE) - 1
    faulty.produce(KEYED, *[PIECE] * first, keys=[b"%d" % number for number in range(first)])
    written = oldest_file(faulty.works, KEYED)
    change_byte(written, written.stat().st_size - 1)
    assert "KafkaUncleanablePartitions" not in faulty.firing()
    faulty.produce(KEYED, *[PIECE] * 3, keys=[b"a", b"b", b"c"])
    faulty.fires("KafkaUncleanablePartitions")


@pytest.mark.usefixtures("slow_faults")
def test_a_loop_that_gets_no_processor(faulty: FaultyCluster) -> None:
    before = faulty.value("kafkacompat_loop_stalls_total")
    faulty.starve()
    faulty.fires("KafkaLoopStalled")
    assert faulty.value("kafkacompat_loop_stalls_total") > before


def test_a_loop_with_too_much_to_do_and_old_metadata(faulty: FaultyCluster, slow_faults: ExitStack) -> None:
    faulty.fires("KafkaMetadataStale", "KafkaLoopBusy", node_id=FOLLOWS)
    faulty.fires("KafkaMetadataStale")
    slow_faults.close()
    faulty.resolves("KafkaMetadataStale")
    faulty.resolves("KafkaMetadataStale", "KafkaLoopBusy", node_id=FOLLOWS)


def test_no_alert_stays(faulty: FaultyCluster) -> None:
    """The tests before have mended what they broke, but for the log that cannot be cleaned."""
    faulty.watch()
    cluster = faulty.cluster
    body = {"Topics": [{"Name": KEYED}], "TimeoutMs": 15000}

    def is_deleted() -> bool:
        answer = cluster.ask(lambda connection: connection.call("DeleteTopics", 6, body))
        codes = [] if answer is None else [each["ErrorCode"] for each in answer["Responses"]]
        return codes in ([ErrorCode.NONE], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])

    cluster.wait(is_deleted, f"{KEYED} is deleted", TIMEOUT_S)
    cluster.wait_until_whole(TIMEOUT_S)

    prometheus = faulty.prometheus
    prometheus.wait_until_scraped()
    wait_until(lambda: prometheus.firing() <= OF_THE_MACHINE, "all alerts end", TIMEOUT_S)
