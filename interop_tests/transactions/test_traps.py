"""Known traps that depend on timing: a kill directly after an end, late ends, rebalances, replays, expiry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.broker import APACHE, BrokerProcess, chosen_kind
from interop_tests.harness.groups import Member, coordinator, settle
from interop_tests.harness.raw_kafka import create_topic, list_offset
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import (
    LOADING,
    NEW,
    NOT_AVAILABLE,
    OLD,
    Producer,
    Protocol,
    find_coordinator,
    init_producer_id,
)
from interop_tests.transactions.test_by_hand import (
    ID_NOT_FOUND,
    INVALID_PRODUCER_ID_MAPPING,
    PRODUCER_FENCED,
    UNSTABLE_OFFSET_COMMIT,
    add_offsets,
    commit_offsets,
    committed,
    fetched_offset,
)

MakeBroker = Callable[..., BrokerProcess]
MakeTopic = Callable[..., str]
NOT_COORDINATOR, NOT_ENOUGH_REPLICAS, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 16, 19, 22, 27


@pytest.mark.needs_control
def test_the_first_producer_of_all_gets_an_id(make_broker: MakeBroker) -> None:
    """Apache Kafka answers once that it has no ids yet, and librdkafka then waits for a second. In kafkacompat the
    request waits."""
    broker = make_broker()
    with Connection(broker.bootstrap) as connection:
        code = init_producer_id(connection, None)["ErrorCode"]
    assert code in ((0, LOADING) if broker.kind == APACHE else (0,))


@pytest.mark.needs_control
def test_before_there_is_a_coordinator_every_answer_is_to_ask_again(make_broker: MakeBroker) -> None:
    """The transaction topic does not exist before a client looks for a coordinator. Until then clients only get
    retriable errors."""
    broker = make_broker()
    create_topic(broker.bootstrap, "t")
    with Connection(broker.bootstrap) as connection:
        early = Producer(connection, "tx", OLD)
        early.id, early.epoch = 1, 0
        retriable = (LOADING, NOT_AVAILABLE, NOT_COORDINATOR)
        assert init_producer_id(connection, "tx")["ErrorCode"] in retriable
        assert early.add("t") in retriable
        assert add_offsets(early, "group") in retriable
        for version in (1, 4, 5):
            assert early.end(True, version)["ErrorCode"] in retriable
        for version in (9, 11, 12):
            assert early.produce("t", b"early", version=version)["ErrorCode"] == NOT_ENOUGH_REPLICAS
        assert commit_offsets(early, "group", "t", 1) in retriable
        assert early.describe()["ErrorCode"] in retriable
        assert list_offset(connection, "t", 0, -1)[1] == 0

        # The same with many clients at once, from the moment when one has looked for it.
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(Connection(broker.bootstrap)) for _ in range(20)]
            find_coordinator(connection, "tx")
            ids: set[int] = set()
            for number, other in enumerate(others):
                ids.add(Producer(other, f"tx-{number}", NEW).init().id)
            assert len(ids) == len(others)


@pytest.mark.parametrize("verb", [True, False], ids=["commit", "abort"])
def test_an_end_that_comes_late_does_not_tear_the_next_transaction(
    connection: Connection, connect: Callable[..., Connection], unique: Any, make_topic: MakeTopic, verb: bool
) -> None:
    """The end was sent twice. Its second copy arrives during the next transaction."""
    topic = make_topic()
    producer = Producer(connect(), unique("tx"), NEW).init()
    late = Producer(connect(), producer.transactional_id, NEW)
    for number in range(3):
        late.id, late.epoch = producer.id, producer.epoch
        producer.send(topic, b"%d-a" % number)
        producer.send(topic, b"%d-b" % number)
        if number:
            late.epoch = producer.epoch - 1
            assert late.end(verb)["ErrorCode"] == PRODUCER_FENCED
            producer.send(topic, b"%d-c" % number)
        producer.finish(number != 1)
        producer.wait_for("CompleteCommit", "CompleteAbort")
    assert committed(connection, topic) == [b"0-a", b"0-b", b"2-a", b"2-b", b"2-c"]


@pytest.mark.needs_control
def test_a_decided_transaction_is_completed_after_a_kill(
    make_broker: MakeBroker, unique: Any, protocol: Protocol
) -> None:
    """An acknowledged end is final, whether its markers are written or not. No transaction stays in PrepareCommit or
    ends twice."""
    if chosen_kind() == APACHE:
        pytest.skip("Apache Kafka calls the transaction complete after a kill with markers still missing")
    broker = make_broker()
    create_topic(broker.bootstrap, "t", 3)
    name, expected = unique("tx"), []
    for number in range(3):
        with Connection(broker.bootstrap) as connection:
            producer = Producer(connection, name, protocol).init()
            for partition in range(3):
                producer.send("t", b"%d" % number, partition=partition)
            before = producer.id, producer.epoch
            producer.finish(number != 1)
            broker.kill()
        broker.start()
        with Connection(broker.bootstrap) as connection:
            find_coordinator(connection, name)
            producer.connection = connection
            producer.wait_for("CompleteAbort" if number == 1 else "CompleteCommit")
            # The response was lost: the same request again gets the same response, and the opposite one does not.
            producer.id, producer.epoch = before
            assert producer.end(number != 1)["ErrorCode"] == 0
            assert producer.end(number == 1)["ErrorCode"] != 0
            if number != 1:
                expected.append(b"%d" % number)

            def is_whole(connection: Connection = connection, end: int = 2 * (number + 1)) -> bool:
                ends = [list_offset(connection, "t", each, -1, isolation=1)[1] for each in range(3)]
                assert max(ends) <= end
                return min(ends) == end

            wait_until(is_whole, "every partition has its marker")
            assert committed(connection, "t") == expected


def test_offsets_are_taken_while_the_group_rebalances(
    bootstrap: str, connection: Connection, make_topic: MakeTopic, unique: Any
) -> None:
    """Requests of the present generation, in each of its states. A commit without a transaction waits for the
    assignment."""
    topic, group = make_topic(), unique("group")
    coordinator(connection, group)
    first, second = Member(bootstrap, group), Member(bootstrap, group)
    producer = Producer(connection, unique("tx"), NEW).init()

    def commit(member: Member, offset: int) -> int:
        return commit_offsets(
            producer, group, topic, offset, GenerationId=member.generation, MemberId=member.member_id
        )

    try:
        settle([first])
        assert commit(first, 1) == 0
        joining = second.begin()
        wait_until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, "the group rebalances")
        assert commit(first, 2) == 0
        assert first.commit(topic, 9) == 0
        old = first.generation
        assert first.join()["ErrorCode"] == 0
        assert second.receive_join(joining)["ErrorCode"] == 0
        assert (first.generation, second.generation) == (old + 1, old + 1)
        assert commit(first, 3) == 0
        assert first.commit(topic, 9) == REBALANCE_IN_PROGRESS
        first.generation = old
        assert commit(first, 4) == ILLEGAL_GENERATION
        producer.finish(True)
        producer.wait_for("CompleteCommit")
        assert fetched_offset(connection, group, topic) == (0, 3)
    finally:
        first.close()
        second.close()


@pytest.mark.needs_control
def test_an_idle_id_expires_and_begins_anew(make_broker: MakeBroker, unique: Any) -> None:
    # Long enough that none expires between two of the steps below.
    broker = make_broker(
        {
            "transactional.id.expiration.ms": "5000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
        }
    )
    create_topic(broker.bootstrap, "t")
    with Connection(broker.bootstrap) as connection:
        idle, busy = (Producer(connection, unique("tx"), NEW).init() for _ in range(2))
        idle.send("t", b"idle")
        idle.finish(True)
        busy.send("t", b"open")
        wait_until(lambda: idle.describe()["ErrorCode"] == ID_NOT_FOUND, "the id has expired")
        assert busy.state() == "Ongoing"
        assert idle.end(True)["ErrorCode"] == INVALID_PRODUCER_ID_MAPPING
        assert idle.produce("t", b"more")["ErrorCode"] == INVALID_PRODUCER_ID_MAPPING
        # A client that requests a new epoch gets a new id instead.
        again = init_producer_id(connection, idle.transactional_id, producer_id=idle.id, epoch=idle.epoch)
        assert (again["ErrorCode"], again["ProducerEpoch"]) == (0, 0)
        assert again["ProducerId"] not in (idle.id, busy.id)
        idle.id, idle.epoch = again["ProducerId"], 0
        idle.sequences.clear()
        idle.send("t", b"anew")
        idle.finish(True)
        busy.finish(True)
        idle.wait_for("CompleteCommit")
        busy.wait_for("CompleteCommit")
        assert committed(connection, "t") == [b"idle", b"open", b"anew"]


# Actions on one partition of a group in order, without the last step for "open", and the resulting offset.
HISTORIES: dict[str, tuple[list[str | int], int]] = {
    "a later commit stands": ([5, "plain 7", "commit"], 7),
    "so does the one before an abort": (["plain 3", 5, "abort"], 3),
    "deleted while pending": ([5, "delete", "commit"], -1),
    "deleted with one that stood": (["plain 3", 5, "delete", "commit"], -1),
    "deleted and committed anew": ([5, "delete", "plain 8", "commit"], 8),
    "deleted and pending anew": ([5, "delete", 6, "commit"], 6),
    "deleted after the end": ([5, "commit", "delete"], -1),
    "twice in one transaction": ([5, 6, "commit"], 6),
    "open": (["plain 3", 5], 3),
}


@pytest.mark.needs_control
def test_offsets_are_the_same_after_the_log_is_read_again(
    make_broker: MakeBroker, unique: Any, protocol: Protocol
) -> None:
    """Tombstones and commits among pending offsets: the coordinator's answers agree with its log."""
    broker = make_broker()
    create_topic(broker.bootstrap, "t")
    producers: dict[str, Producer] = {}

    def delete(connection: Connection, group: str) -> None:
        body = {"GroupId": group, "Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0}]}]}
        reply = connection.call("OffsetDelete", 0, body)
        assert reply["ErrorCode"] == 0
        assert reply["Topics"][0]["Partitions"][0]["ErrorCode"] == 0

    def stage(producer: Producer, group: str, offset: int) -> None:
        if not protocol.adds:
            wait_until(lambda: add_offsets(producer, group) == 0, "the offsets are added")
        wait_until(lambda: commit_offsets(producer, group, "t", offset) == 0, "the commit is taken")

    def told(connection: Connection) -> dict[str, tuple[int, int]]:
        return {group: fetched_offset(connection, group, "t", stable=False) for group in HISTORIES}

    expected = {group: (0, offset) for group, (_, offset) in HISTORIES.items()}
    with Connection(broker.bootstrap) as connection:
        for group, (steps, _) in HISTORIES.items():
            coordinator(connection, group)
            plain = Member(broker.bootstrap, group)
            producer = producers[group] = Producer(connection, unique("tx"), protocol).init()
            for step in steps:
                if isinstance(step, int):
                    stage(producer, group, step)
                elif step == "delete":
                    delete(connection, group)
                elif step in ("commit", "abort"):
                    producer.finish(step == "commit")
                    producer.wait_for("CompleteCommit", "CompleteAbort")
                else:
                    assert plain.commit("t", int(step.removeprefix("plain "))) == 0
            plain.close()
        assert told(connection) == expected
        assert fetched_offset(connection, "open", "t")[0] == UNSTABLE_OFFSET_COMMIT
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        for group in HISTORIES:
            coordinator(connection, group)
        assert told(connection) == expected
        for group in HISTORIES:
            found = fetched_offset(connection, group, "t")
            assert found[0] == (UNSTABLE_OFFSET_COMMIT if group == "open" else 0)
        producer = producers["open"]
        producer.connection = connection
        find_coordinator(connection, producer.transactional_id)
        producer.finish(True)
        producer.wait_for("CompleteCommit")
        assert fetched_offset(connection, "open", "t") == (0, 5)
