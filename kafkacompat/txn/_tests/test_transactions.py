"""The shell of transactions: a coordinator that loses and regains its shards, markers that do not arrive, remote
verification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import HandTime, PauselessTasks, PromptWorkers
from kafkacompat.api.write_txn_markers import error_response
from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.coordinator._tests.kit import NODE_ID, Partitions, image_of, topic_image
from kafkacompat.coordinator.loading import LOAD_RETRY_MS
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.records.batch import iterate_batches
from kafkacompat.tasks import Tasks, at_once
from kafkacompat.txn.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.txn.transaction_coordinator import (
    TransactionCoordinator,
    TransactionCoordinatorSettings,
)
from kafkacompat.txn.transaction_marker_channel_manager import END_RETRY_MS, RETRY_MS
from kafkacompat.txn.transaction_state_manager import TransactionSettings, machine_of, size_of_id
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kafkacompat.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkacompat.wire.messages.end_txn_request import EndTxnRequest
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.list_transactions_request import ListTransactionsRequest
from kafkacompat.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from kafkacompat.wire.messages.write_txn_markers_response import (
    WriteTxnMarkersResponse,
)

OTHER_NODE = 2
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Groups:
    """The group coordinator's part."""

    def __init__(self) -> None:
        self.code = E.NONE
        self.ended: list[tuple[Any, ...]] = []

    def end_transaction(self, *marker: Any) -> Deferred[E]:
        self.ended.append(marker)
        return Deferred.of(self.code)


class Channel:
    """A channel to another node. The test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Deferred[Any]]] = []

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.asked.append((message, answer))
        return answer


class NotServed(Exception):
    pass


def led_by(topic: TopicImage, leader: int, epoch: int = 0) -> TopicImage:
    partitions = {
        index: replace(each, leader=leader, leader_epoch=epoch) for index, each in topic.partitions.items()
    }
    return replace(topic, partitions=partitions)


class TransactionNode:
    def __init__(self, version: int = 2, settings: TransactionCoordinatorSettings | None = None) -> None:
        self.settings = settings or TransactionCoordinatorSettings()
        self.time = HandTime()
        self.partitions = Partitions()
        self.partitions.now_ms = self.time.now_ms
        self.groups = Groups()
        self.version = version
        self.next_id: int | None = 10
        self.channel: Channel | None = Channel()
        self.image: MetadataImage = image_of([], offset=-1)
        self.coordinator = self.make()
        self.publish(topic_image(TRANSACTION_TOPIC, 1), topic_image("t", 2), topic_image(OFFSETS_TOPIC, 1))

    def make(self) -> TransactionCoordinator:
        partitions: Any = self.partitions
        groups: Any = self.groups
        coordinator = TransactionCoordinator(
            CoordinatorServices(NODE_ID, partitions, self.time, self.time, Tasks(self.time), None),
            PromptWorkers(),
            self,
            lambda: self.image,
            LocalMarkerWriter(partitions, groups, self.time, Tasks(self.time), 30_000),
            lambda node_id: self.channel,
            self.settings,
        )
        coordinator.start()
        return coordinator

    def next_producer_id(self) -> int | None:
        return self.next_id

    def publish(self, *topics: TopicImage) -> None:
        old = self.image
        self.image = replace(
            image_of({**old.topics, **{topic.name: topic for topic in topics}}.values()),
            features={"transaction.version": self.version},
        )
        self.coordinator.on_image(old, self.image)
        self.time.advance(0)

    def move(self, leader: int, epoch: int) -> None:
        self.publish(led_by(self.image.topics[TRANSACTION_TOPIC], leader, epoch))

    def init(self, transactional_id: str = "tx", **fields: Any) -> Any:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields
        )
        return self.coordinator.init_producer_id(request)

    def init_from(self, connection_id: int, transactional_id: str) -> E:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return E(self.coordinator.init_producer_id(request, connection_id).result().error_code)

    def add(self, epoch: int, *partitions: TopicPartition) -> Any:
        return self.coordinator.add_partitions("tx", 10, epoch, frozenset(partitions), self.version)

    def end(self, epoch: int, committed: bool = True) -> Any:
        request = EndTxnRequest(
            transactional_id="tx", producer_id=10, producer_epoch=epoch, committed=committed
        )
        return self.coordinator.end_transaction(request, self.version)

    def described(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=["tx"])
        (found,) = at_once(self.coordinator.describe_transactions(request)).transaction_states
        return found

    def state(self) -> str:
        found = self.described()
        return found.transaction_state or E(found.error_code).name

    def begin(self, *partitions: TopicPartition) -> None:
        assert self.init().result().producer_epoch == 0
        assert self.add(0, *partitions).result() is E.NONE

    def markers(self, partition: TopicPartition) -> list[tuple[int, int]]:
        """(producer id, epoch) of the control batches in the partition."""
        log = self.partitions.logs.get(partition)
        found = []
        for batch in [] if log is None else log.batches:
            (header,) = iterate_batches(batch)
            assert header.is_control
            found.append((header.producer_id, header.producer_epoch))
        return found


def written(request: WriteTxnMarkersRequest, code: E) -> WriteTxnMarkersResponse:
    return error_response(request, code, 1)


def test_a_transaction_of_this_nodes_partitions_is_over_at_once() -> None:
    world = TransactionNode()
    world.begin(T0, T1)
    answer = world.end(0).result()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, 10, 1)
    assert world.state() == "CompleteCommit"
    assert world.markers(T0) == world.markers(T1) == [(10, 1)]


def test_offsets_are_ended_by_the_group_coordinator() -> None:
    world = TransactionNode()
    world.begin(TopicPartition(OFFSETS_TOPIC, 0))
    world.groups.code = E.COORDINATOR_LOAD_IN_PROGRESS
    world.end(0)
    assert world.state() == "PrepareCommit"
    world.groups.code = E.NONE
    world.time.advance(1000)
    assert world.state() == "CompleteCommit"
    assert world.groups.ended == [(0, 10, 1, True, 0, 2)] * 2


def test_nothing_but_the_first_end_counts_until_it_is_committed() -> None:
    world = TransactionNode()
    world.begin(T0)
    world.partitions.held = True
    first = world.end(0)
    assert not first.done
    for other in (world.end(0), world.end(0, False), world.add(0, T1), world.init()):
        answer = other.result()
        assert getattr(answer, "error_code", answer) == E.CONCURRENT_TRANSACTIONS
    world.partitions.release()
    assert first.result().error_code == E.NONE
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_step_that_cannot_be_written_has_not_been(failure: E, told: E) -> None:
    world = TransactionNode()
    world.begin(T0)
    world.partitions.refusal = failure
    assert world.end(0).result().error_code == told
    assert world.state() == "Ongoing"
    world.partitions.refusal = None
    assert world.end(0, False).result().error_code == E.NONE
    assert world.state() == "CompleteAbort"


def test_a_step_whose_wait_is_over_at_once_is_told_how_it_ended() -> None:
    """As when too many requests wait already."""
    world = TransactionNode()
    world.begin(T0)
    world.partitions.held = True
    world.partitions.when_replicated = lambda ends, timeout_ms: Deferred.of(  # type: ignore[method-assign]
        dict.fromkeys(ends, E.REQUEST_TIMED_OUT)
    )
    assert world.end(0).result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "Ongoing"


def test_ids_that_are_on_their_way_are_retriable() -> None:
    world = TransactionNode()
    world.next_id = None
    assert world.init().result().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    world.next_id = 10
    assert world.init().result().error_code == E.NONE


def test_a_timeout_is_refused_before_the_coordinator_is_looked_for() -> None:
    world = TransactionNode()
    world.move(OTHER_NODE, 9)
    for timeout_ms, code in ((0, E.INVALID_TRANSACTION_TIMEOUT), (1, E.NOT_COORDINATOR)):
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=timeout_ms)
        assert world.coordinator.init_producer_id(request).result().error_code == code


@pytest.mark.parametrize("has_two_phases", [False, True])
def test_a_transaction_without_a_timeout_stays_open(has_two_phases: bool) -> None:
    world = TransactionNode(
        settings=TransactionCoordinatorSettings(TransactionSettings(has_two_phase_commit=True))
    )
    assert world.init(enable_2pc=has_two_phases).result().error_code == E.NONE
    assert world.add(0, T0).result() is E.NONE
    for _ in range(10):
        world.time.advance(60_000)
    assert world.state() == ("Ongoing" if has_two_phases else "CompleteAbort")


def test_two_phase_commit_has_to_be_enabled() -> None:
    answer = TransactionNode().init(enable_2pc=True).result()
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def far(world: TransactionNode) -> Channel:
    """The other node leads `t`."""
    world.publish(led_by(world.image.topics["t"], OTHER_NODE))
    assert world.channel is not None
    return world.channel


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.CORRUPT_MESSAGE,
        None,
    ],
)
def test_markers_are_sent_until_they_are_written(code: E | None) -> None:
    world = TransactionNode()
    world.begin(T0)
    channel = far(world)
    assert world.end(0).result().error_code == E.NONE
    ((request, answer),) = channel.asked
    (marker,) = request.markers
    assert (marker.producer_epoch, marker.transaction_result, marker.transaction_version) == (1, True, 2)
    if code is None:
        answer.fail(ConnectionError("lost"))
    else:
        answer.resolve(written(request, code))
    assert world.state() == "PrepareCommit"
    world.time.advance(1000)
    again, answer = channel.asked[1]
    answer.resolve(written(again, E.NONE))
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_coordinator_that_was_overtaken_sends_no_more(code: E) -> None:
    world = TransactionNode()
    world.begin(T0)
    channel = far(world)
    world.end(0)
    ((request, answer),) = channel.asked
    answer.resolve(written(request, code))
    world.time.advance(60_000)
    assert len(channel.asked) == 1


def test_a_prepared_transaction_is_described_with_the_partitions_that_need_a_marker() -> None:
    """So kafka-transactions.sh shows where the end of a transaction hangs."""
    world = TransactionNode()
    topic = led_by(topic_image("t", 3), OTHER_NODE)
    here = replace(topic.partitions[0], leader=NODE_ID)
    world.publish(replace(topic, partitions={**topic.partitions, 0: here}))
    world.begin(*(TopicPartition("t", at) for at in range(3)))
    channel = world.channel
    assert channel is not None

    def left() -> dict[str, list[int]]:
        return {topic.topic: topic.partitions for topic in world.described().topics}

    assert left() == {"t": [0, 1, 2]}
    world.end(0)
    assert left() == {"t": [1, 2]}
    request, answer = channel.asked[-1]
    codes = written(request, E.NONE)
    codes.markers[0].topics[0].partitions[1].error_code = E.NOT_LEADER_OR_FOLLOWER
    answer.resolve(codes)
    assert (world.state(), left()) == ("PrepareCommit", {"t": [2]})
    world.publish(replace(topic, partitions={0: here}))
    world.time.advance(RETRY_MS)
    assert (world.state(), left()) == ("CompleteCommit", {})


def test_a_deleted_topic_needs_no_marker() -> None:
    world = TransactionNode()
    world.begin(T0)
    channel = far(world)
    world.end(0)
    old = world.image
    world.image = image_of([topic for topic in old.topics.values() if topic.name != "t"])
    world.coordinator.on_image(old, world.image)
    ((_, answer),) = channel.asked
    answer.fail(ConnectionError("lost"))
    world.time.advance(100)
    assert world.state() == "CompleteCommit"


def test_the_completion_is_written_again_until_it_is() -> None:
    world = TransactionNode()
    world.begin(T0)
    channel = far(world)
    world.end(0)
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    ((request, answer),) = channel.asked
    answer.resolve(written(request, E.NONE))
    assert world.state() == "PrepareCommit"
    assert world.coordinator.markers.ends_to_write_again == 1
    world.time.advance(END_RETRY_MS)
    assert world.coordinator.markers.ends_to_write_again == 1
    world.partitions.refusal = None
    world.time.advance(END_RETRY_MS)
    assert world.state() == "CompleteCommit"
    assert world.coordinator.markers.ends_to_write_again == 0


@pytest.mark.parametrize("committed", [True, False])
def test_a_prepared_outcome_is_brought_to_its_end_by_the_next_coordinator(committed: bool) -> None:
    world = TransactionNode()
    world.begin(T0)
    channel = far(world)
    world.end(0, committed)
    ((request, answer),) = channel.asked
    world.move(OTHER_NODE, 1)
    assert world.state() == "NOT_COORDINATOR"
    answer.resolve(written(request, E.NONE))
    assert len(world.partitions.logs[TopicPartition(TRANSACTION_TOPIC, 0)].batches) == 3
    world.move(NODE_ID, 2)
    assert world.state() == ("PrepareCommit" if committed else "PrepareAbort")
    again, answer = channel.asked[1]
    assert (again.markers[0].transaction_result, again.markers[0].coordinator_epoch) == (committed, 2)
    answer.resolve(written(again, E.NONE))
    assert world.state() == ("CompleteCommit" if committed else "CompleteAbort")


def test_a_new_epoch_of_the_same_leader_loads_anew() -> None:
    """A record of the old epoch may be committed although its writer got an error."""
    world = TransactionNode()
    world.begin(T0)
    world.partitions.held = True
    answer = world.end(0)
    world.move(NODE_ID, 1)
    world.partitions.release(E.NOT_LEADER_OR_FOLLOWER)
    assert answer.result().error_code == E.NOT_COORDINATOR
    world.time.advance(LOAD_RETRY_MS)
    assert world.state() == "COORDINATOR_LOAD_IN_PROGRESS"
    world.partitions.release()
    world.time.advance(0)
    assert world.state() == "CompleteCommit"
    assert world.markers(T0) == [(10, 1)]


@pytest.mark.parametrize("kept", [True, False])
def test_nothing_follows_from_what_was_loaded_before_it_is_committed(kept: bool) -> None:
    """A prepared commit that only some replicas have may be lost with the next leader. Markers already sent would
    commit one half of a transaction whose other half is then aborted."""
    world = TransactionNode()
    world.begin(T0)
    world.partitions.held = True
    world.end(0)
    world.move(NODE_ID, 1)
    world.partitions.release(E.NOT_LEADER_OR_FOLLOWER)
    world.partitions.held = True
    world.time.advance(LOAD_RETRY_MS)
    assert world.add(0, T0).result() is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.markers(T0) == []
    log = world.partitions.logs[TopicPartition(TRANSACTION_TOPIC, 0)]
    if not kept:
        log.truncate_to(log.log_end_offset - 1)
    world.partitions.release()
    world.move(NODE_ID, 2)
    assert world.state() == ("CompleteCommit" if kept else "Ongoing")
    assert world.markers(T0) == ([(10, 1)] if kept else [])


def test_markers_of_a_transaction_topic_that_is_gone_end_nothing() -> None:
    """The epochs of its partitions start again, and its ids are unknown."""
    world = TransactionNode()
    world.begin(T0)
    channel = far(world)
    world.end(0)
    ((request, answer),) = channel.asked
    world.partitions.logs.clear()
    world.publish(topic_image(TRANSACTION_TOPIC, 1, b"another".ljust(16, b"\1")))
    answer.resolve(written(request, E.NONE))
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"


@pytest.mark.parametrize("version", [0, 2])
def test_transactions_time_out_and_ids_expire(version: int) -> None:
    world = TransactionNode(version)
    world.begin(T0)
    world.time.advance(60_000)
    assert world.state() == "Ongoing"
    world.time.advance(10_001)
    assert world.state() == "CompleteAbort"
    assert world.markers(T0) == [(10, 1)]
    assert world.end(0).result().error_code in (E.INVALID_TXN_STATE, E.PRODUCER_FENCED)
    world.time.advance(604_800_000 + 3_600_000)
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert world.end(1).result().error_code == E.INVALID_PRODUCER_ID_MAPPING
    world.move(NODE_ID, 1)
    assert world.state() == "TRANSACTIONAL_ID_NOT_FOUND"


def listed(world: TransactionNode, request: ListTransactionsRequest) -> Any:
    return PauselessTasks(world.time).run("listing", world.coordinator.list_transactions(request)).result()


@pytest.mark.parametrize("pattern", ["(", "a\\1", "(?=x)", "x" * 4001, r"\pL" * 300 + "abcd"])
def test_patterns_that_are_not_taken(pattern: str) -> None:
    world = TransactionNode()
    assert world.init().result().error_code == 0
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    answer = listed(world, request)
    assert (answer.error_code, answer.transaction_states) == (E.INVALID_REGULAR_EXPRESSION, [])


@pytest.mark.parametrize(
    ("filters", "names", "unknown"),
    [
        ([], ["tx", "other"], []),
        (["Ongoing"], ["tx"], []),
        (["Empty", "Ongoing", "Empty"], ["tx", "other"], []),
        (["empty", "Empty", "x", "empty"], ["other"], ["empty", "x"]),
        (["x"], [], ["x"]),
    ],
)
def test_transactions_are_listed_by_state_and_unknown_states_are_told(
    filters: list[str], names: list[str], unknown: list[str]
) -> None:
    """Kafka's names, exact. Each unknown name is reported once and matches nothing."""
    world = TransactionNode()
    world.begin(T0)
    assert world.init("other").result().error_code == 0
    answer = listed(world, ListTransactionsRequest(state_filters=filters))
    assert answer.error_code == 0
    assert [each.transactional_id for each in answer.transaction_states] == names
    assert answer.unknown_state_filters == unknown


def test_a_transactional_id_that_is_named_twice_is_described_once() -> None:
    world = TransactionNode()
    world.begin(T0)
    request = DescribeTransactionsRequest(transactional_ids=["tx", "no", "tx"])
    answer = at_once(world.coordinator.describe_transactions(request))
    assert [(each.transactional_id, each.error_code) for each in answer.transaction_states] == [
        ("tx", 0),
        ("no", E.TRANSACTIONAL_ID_NOT_FOUND),
    ]


def test_nothing_is_served_before_the_start_or_after_the_stop() -> None:
    world = TransactionNode()
    world.coordinator.stop()
    assert world.init().result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "COORDINATOR_NOT_AVAILABLE"
    assert listed(world, ListTransactionsRequest()).error_code == E.COORDINATOR_NOT_AVAILABLE


# --- the verifier


class Verifying:
    """A verifier whose coordinator is the other node."""

    def __init__(self) -> None:
        world = TransactionNode()
        world.publish(led_by(world.image.topics[TRANSACTION_TOPIC], OTHER_NODE, 1))
        self.channel = world.channel
        assert self.channel is not None
        self.verifier = AddPartitionsToTxnManager(
            NODE_ID,
            lambda: world.image,
            world.coordinator,
            lambda node_id: world.channel,
            Tasks(world.time),
            30_000,
            NotServed,
        )
        self.world = world

    def ask(
        self, transactional_id: str = "tx", epoch: int = 0, adds: bool = True, producer_id: int = 10
    ) -> Deferred[Any]:
        return self.verifier.ask(transactional_id, producer_id, epoch, [T0], adds)

    def answer(self, at: int, code: E) -> None:
        assert self.channel is not None
        request, answer = self.channel.asked[at]
        answer.resolve(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=each.transactional_id,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name="t",
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=0, partition_error_code=code
                                    )
                                ],
                            )
                        ],
                    )
                    for each in request.transactions
                ]
            )
        )


def test_questions_gather_while_one_is_under_way() -> None:
    far_away = Verifying()
    assert far_away.channel is not None
    answers = [far_away.ask(f"tx{number}") for number in range(4)]
    assert len(far_away.channel.asked) == 1
    far_away.answer(0, E.NONE)
    assert [each.transactional_id for each in far_away.channel.asked[1][0].transactions] == [
        "tx1",
        "tx2",
        "tx3",
    ]
    far_away.answer(1, E.PRODUCER_FENCED)
    assert [answer.result() for answer in answers] == [{T0: E.NONE}] + [{T0: E.INVALID_PRODUCER_EPOCH}] * 3


@pytest.mark.parametrize(
    ("epochs", "codes"),
    [
        ((0, 0), (E.NETWORK_EXCEPTION, E.NONE)),
        ((0, 1), (E.INVALID_PRODUCER_EPOCH, E.NONE)),
        ((1, 0), (E.NONE, E.INVALID_PRODUCER_EPOCH)),
    ],
)
def test_of_two_questions_that_wait_the_newer_one_stands(epochs: tuple[int, int], codes: tuple[E, E]) -> None:
    far_away = Verifying()
    far_away.ask("other")
    answers = [far_away.ask("tx", epoch) for epoch in epochs]
    far_away.answer(0, E.NONE)
    far_away.answer(1, E.NONE)
    assert tuple(answer.result()[T0] for answer in answers) == codes


def test_a_new_producer_id_is_not_fenced_by_the_epoch_of_the_one_before() -> None:
    """The epochs were used up, or the transactional id has expired: the new producer id begins at epoch 0."""
    far_away = Verifying()
    far_away.ask("other")
    before = far_away.ask(epoch=32_766)
    after = far_away.ask(epoch=0, producer_id=11)
    far_away.answer(0, E.NONE)
    far_away.answer(1, E.NONE)
    assert before.result() == {T0: E.NETWORK_EXCEPTION}
    assert after.result() == {T0: E.NONE}


@pytest.mark.parametrize(
    ("failure", "code", "is_a_bug"),
    [
        (ConnectionLost("lost"), E.NETWORK_EXCEPTION, False),
        (KeyError("a bug"), E.NETWORK_EXCEPTION, True),
        (NotServed(), E.NONE, False),
    ],
)
def test_answers_that_do_not_come(failure: Exception, code: E, is_a_bug: bool, faults: Faults) -> None:
    far_away = Verifying()
    assert far_away.channel is not None
    answer = far_away.ask()
    far_away.channel.asked[0][1].fail(failure)
    assert answer.result() == {T0: code}
    assert faults.take() == [failure] * is_a_bug


@pytest.mark.parametrize(
    ("top", "code"),
    [(E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE), (E.NOT_COORDINATOR, E.NOT_COORDINATOR)],
)
def test_an_error_of_the_whole_answer(top: E, code: E) -> None:
    far_away = Verifying()
    assert far_away.channel is not None
    answer = far_away.ask()
    far_away.channel.asked[0][1].resolve(AddPartitionsToTxnResponse(error_code=top))
    assert answer.result() == {T0: code}


def test_a_coordinator_that_is_nowhere() -> None:
    far_away = Verifying()
    far_away.world.channel = None
    assert far_away.ask().result() == {T0: E.NETWORK_EXCEPTION}
    far_away.world.move(-1, 2)
    assert far_away.ask().result() == {T0: E.COORDINATOR_NOT_AVAILABLE}


def test_a_question_that_could_not_be_sent_refuses_nobody_later() -> None:
    """By then the id may have a new producer, whose epochs begin at 0."""
    far_away = Verifying()
    channel, far_away.world.channel = far_away.world.channel, None
    assert far_away.ask(epoch=7).result() == {T0: E.NETWORK_EXCEPTION}
    far_away.world.channel = channel
    answer = far_away.ask(epoch=0)
    far_away.answer(0, E.NONE)
    assert answer.result() == {T0: E.NONE}


def test_a_coordinator_that_is_here_is_asked_directly() -> None:
    far_away = Verifying()
    far_away.world.move(NODE_ID, 2)
    assert far_away.ask().result() == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert far_away.world.init().result().error_code == E.NONE
    assert far_away.ask(adds=False).result() == {T0: E.TRANSACTION_ABORTABLE}
    assert far_away.ask().result() == {T0: E.NONE}
    assert far_away.ask(adds=False).result() == {T0: E.NONE}
    assert far_away.world.state() == "Ongoing"


def test_old_producers_are_believed_where_verification_is_off() -> None:
    world = TransactionNode()
    verifier = AddPartitionsToTxnManager(
        NODE_ID,
        lambda: world.image,
        world.coordinator,
        lambda node_id: world.channel,
        Tasks(world.time),
        30_000,
        NotServed,
        lambda: False,
    )
    assert verifier.ask("tx", 10, 0, [T0], False).result() == {T0: E.NONE}
    assert verifier.ask("tx", 10, 0, [T0], True).result() == {T0: E.INVALID_PRODUCER_ID_MAPPING}


def test_a_partition_that_the_answer_leaves_out_may_not_be_written() -> None:
    far_away = Verifying()
    assert far_away.channel is not None
    verified = far_away.verifier.ask("tx", 10, 0, [T0, T1], False)
    far_away.answer(0, E.NONE)
    assert verified.result() == {T0: E.NONE, T1: E.UNKNOWN_SERVER_ERROR}
    verified = far_away.verifier.ask("tx", 10, 0, [T0], False)
    far_away.channel.asked[1][1].resolve(AddPartitionsToTxnResponse())
    assert verified.result() == {T0: E.UNKNOWN_SERVER_ERROR}


def test_a_stop_answers_whoever_waits() -> None:
    far_away = Verifying()
    answers = [far_away.ask("tx"), far_away.ask("other")]
    far_away.verifier.close()
    assert [answer.result() for answer in answers] == [{T0: E.NETWORK_EXCEPTION}] * 2
    far_away.answer(0, E.NONE)
    assert far_away.ask().result() == {T0: E.NETWORK_EXCEPTION}


def test_questions_are_timed_and_partitions_that_may_not_be_written_counted() -> None:
    far_away = Verifying()
    meter, now_s = far_away.verifier.meter, 1.0
    meter.monotonic_s = lambda: now_s
    answers = [far_away.ask("tx"), far_away.ask("other")]
    now_s = 1.25
    far_away.answer(0, E.NONE)
    now_s = 3.0
    far_away.answer(1, E.INVALID_TXN_STATE)
    assert all(answer.done for answer in answers)
    assert (list(meter.times_ms.recent), meter.failures) == ([250, 2_000], 1)
    world = far_away.world
    world.publish(led_by(world.image.topics[TRANSACTION_TOPIC], NODE_ID, 2))
    assert far_away.ask("tx").result() == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert (meter.times_ms.count, meter.failures) == (3, 2)


# --- memory


def test_new_ids_are_bounded_for_a_connection_and_ids_that_are_there_go_on() -> None:
    world = TransactionNode()
    memory = world.coordinator._memory
    taken = 0
    while world.init_from(7, f"{'i' * 32_000}{taken}") is E.NONE:
        taken += 1
    assert 100 < taken < 150
    assert world.init_from(7, f"{'i' * 32_000}0") is E.NONE
    assert world.init_from(7, "new") is E.NONE
    assert world.init_from(7, f"{'i' * 32_000}{taken}") is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.init_from(8, f"{'i' * 32_000}{taken}") is E.NONE
    ids = machine_of(next(iter(world.coordinator._shards))).transactions
    assert memory.used == sum(size_of_id(each) for each in ids)


def test_ids_are_bounded_for_the_node_and_given_back() -> None:
    world = TransactionNode(settings=TransactionCoordinatorSettings(ids_max_bytes=1 << 20))
    numbers = iter(range(1_000))
    while world.init_from(number := next(numbers), f"{'i' * 32_000}{number}") is E.NONE:
        pass
    assert 20 < number < 40
    assert world.init_from(number, f"{'i' * 32_000}0") is E.NONE
    world.time.advance(604_800_001 + 3_600_000)
    assert world.coordinator._memory.used < 1 << 15
    assert world.init_from(number, f"{'i' * 32_000}{number}") is E.NONE


def test_loaded_ids_are_counted_and_an_id_that_the_log_refuses_is_not() -> None:
    world = TransactionNode()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert world.init_from(1, "refused") is not E.NONE
    assert world.coordinator._memory.used == 0
    world.partitions.refusal = None
    assert world.init_from(1, "there") is E.NONE
    world.coordinator.stop()
    world.time.advance(1)
    assert world.coordinator._memory.used == 0
    world.coordinator = world.make()
    world.coordinator.on_image(image_of([], offset=-1), world.image)
    world.time.advance(10)
    assert world.coordinator._memory.used == size_of_id("there")
