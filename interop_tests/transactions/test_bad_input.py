"""Forbidden requests of producers in transactions: the error codes are Apache Kafka's, and nothing is half applied.

Each test runs unchanged against either broker. The assertions are the answers of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic, fetch, list_offset, produce, produce_body
from interop_tests.harness.records import BatchPlan, encode_record
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import (
    CONTROL,
    NEW,
    OLD,
    TRANSACTIONAL,
    Producer,
    Protocol,
    find_coordinator,
    init_producer_id,
)
from interop_tests.transactions.test_by_hand import (
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_RECORD,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
    add_offsets,
    commit_offsets,
    committed,
    fetched_offset,
    offset_to_commit,
    txn_offset_commit,
)

MakeBroker = Callable[..., Any]
MakeProducer = Callable[..., Producer]
MakeTopic = Callable[..., str]
Connect = Callable[..., Connection]

CORRUPT, UNKNOWN_PARTITION, METADATA_TOO_LARGE, INVALID_GROUP_ID = 2, 3, 12, 24
COORDINATOR_FENCED, CONCURRENT, TRANSACTIONAL_ID_DENIED, ABORTABLE = 52, 51, 53, 120
INVALID_PRODUCER_EPOCH = 47
TOPIC_DENIED, NOT_ATTEMPTED, OUT_OF_ORDER = 29, 55, 45

# --- clients without such a transaction


class Identity(NamedTuple):
    """The identity in a request."""

    transactional_id: str
    id: int
    epoch: int


WHO = ("unknown id", "empty id", "another producer", "older epoch", "newer epoch")


def identity(who: str, producer: Producer, unused: str) -> Identity:
    name, number, epoch = producer.transactional_id, producer.id, producer.epoch
    return {
        "unknown id": Identity(unused, number, epoch),
        "empty id": Identity("", number, epoch),
        "another producer": Identity(name, number + 1_000_000, epoch),
        "older epoch": Identity(name, number, epoch - 1),
        "newer epoch": Identity(name, number, epoch + 1),
    }[who]


def of_offsets(version: int) -> Callable[[Producer, str, str], int]:
    def commit(producer: Producer, topic: str, group: str) -> int:
        producer.protocol = NEW._replace(offsets=version)
        return commit_offsets(producer, group, topic, 5)

    return commit


def of_produce(version: int) -> Callable[[Producer, str, str], int]:
    return lambda producer, topic, group: producer.produce(topic, b"x", partition=1, version=version)[
        "ErrorCode"
    ]


def of_end(version: int, commit: bool) -> Callable[[Producer, str, str], int]:
    return lambda producer, topic, group: producer.end(commit, version)["ErrorCode"]


REQUESTS: dict[str, Callable[[Producer, str, str], int]] = {
    "AddPartitionsToTxn 1": lambda producer, topic, group: producer.add(topic, 1, version=1),
    "AddPartitionsToTxn 3": lambda producer, topic, group: producer.add(topic, 1, version=3),
    "AddOffsetsToTxn 1": lambda producer, topic, group: add_offsets(producer, group, 1),
    "AddOffsetsToTxn 4": lambda producer, topic, group: add_offsets(producer, group, 4),
    "EndTxn 1, commit": of_end(1, True),
    "EndTxn 4, commit": of_end(4, True),
    "EndTxn 5, commit": of_end(5, True),
    "EndTxn 5, abort": of_end(5, False),
    "TxnOffsetCommit 2": of_offsets(2),
    "TxnOffsetCommit 4": of_offsets(4),
    "TxnOffsetCommit 5": of_offsets(5),
    "Produce 9": of_produce(9),
    "Produce 11": of_produce(11),
    "Produce 12": of_produce(12),
}
CODES: dict[str, tuple[int, int, int, int, int]] = {
    "AddPartitionsToTxn 1": (49, 42, 49, 47, 47),
    "AddPartitionsToTxn 3": (49, 42, 49, 90, 90),
    "AddOffsetsToTxn 1": (49, 42, 49, 47, 47),
    "AddOffsetsToTxn 4": (49, 42, 49, 90, 90),
    "EndTxn 1, commit": (49, 42, 49, 47, 47),
    "EndTxn 4, commit": (49, 42, 49, 90, 90),
    "EndTxn 5, commit": (49, 42, 49, 90, 90),
    "EndTxn 5, abort": (49, 42, 49, 90, 90),
    "TxnOffsetCommit 2": (49, 42, 49, 47, 47),
    "TxnOffsetCommit 4": (49, 42, 49, 47, 47),
    "TxnOffsetCommit 5": (49, 42, 49, 47, 47),
    "Produce 9": (49, 42, 49, 47, 47),
    "Produce 11": (49, 42, 49, 47, 47),
    "Produce 12": (49, 42, 49, 47, 47),
}
"""By request, in the order of WHO."""


@pytest.mark.parametrize("is_open", [False, True], ids=["at rest", "open"])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_client_that_is_not_the_producer_changes_nothing(
    request_name: str,
    is_open: bool,
    connection: Connection,
    connect: Connect,
    make_topic: MakeTopic,
    unique: Any,
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    coordinator(connection, group)
    producer = Producer(connect(), unique("tx"), NEW).init().init()
    assert producer.epoch > 0
    if is_open:
        producer.send(topic, b"mine")
    before = producer.describe()
    ends = [list_offset(connection, topic, number, -1)[1] for number in range(2)]
    found = []
    for who in WHO:
        false = Producer(connect(), *identity(who, producer, unique("never-seen"))[:1], NEW)
        _, false.id, false.epoch = identity(who, producer, "")
        found.append(REQUESTS[request_name](false, topic, group))
    assert tuple(found) == CODES[request_name]
    assert producer.describe() == before
    assert [list_offset(connection, topic, number, -1)[1] for number in range(2)] == ends
    assert fetched_offset(connection, group, topic) == (0, -1)
    if is_open:
        producer.finish(True)
        producer.wait_for("CompleteCommit")
        assert committed(connection, topic) == [b"mine"]


# (who) -> the code of InitProducerId without an open transaction, and with one.
BELIEFS = {
    "another producer": (PRODUCER_FENCED, PRODUCER_FENCED),
    "older epoch": (PRODUCER_FENCED, CONCURRENT),
    "newer epoch": (PRODUCER_FENCED, CONCURRENT),
}


@pytest.mark.parametrize("who", BELIEFS)
def test_a_producer_that_believes_wrong_things_gets_no_epoch(
    who: str, connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    """While a transaction is open, Apache Kafka checks only the producer id, aborts the transaction, and asks the
    client to retry."""
    topic = make_topic()
    producer = Producer(connect(), unique("tx"), NEW).init().init().init()
    # Two below: with the previous epoch, the client may just have lost the response.
    wrong = {"another producer": (10**6, 0), "older epoch": (0, -2), "newer epoch": (0, 1)}[who]
    belief = {"producer_id": producer.id + wrong[0], "epoch": producer.epoch + wrong[1]}
    before = producer.describe()
    at_rest = init_producer_id(connection, producer.transactional_id, **belief)
    assert (at_rest["ErrorCode"], at_rest["ProducerId"], at_rest["ProducerEpoch"]) == (
        BELIEFS[who][0],
        -1,
        -1,
    )
    assert producer.describe() == before
    producer.send(topic, b"mine")
    is_open = init_producer_id(connection, producer.transactional_id, **belief)
    assert is_open["ErrorCode"] == BELIEFS[who][1]
    if BELIEFS[who][1] == CONCURRENT:
        producer.wait_for("CompleteAbort")
        assert committed(connection, topic) == []
    else:
        assert producer.state() == "Ongoing"
        producer.finish(False)


def test_a_belief_about_an_id_that_was_never_seen_is_no_hindrance(
    connection: Connection, unique: Any
) -> None:
    name = unique("tx")
    find_coordinator(connection, name)
    reply: dict[str, Any] = {}

    def ask() -> bool:
        reply.update(init_producer_id(connection, name, producer_id=12, epoch=3))
        return reply["ErrorCode"] not in (14, 15, 16)

    wait_until(ask, "the coordinator serves")
    assert (reply["ErrorCode"], reply["ProducerEpoch"]) == (0, 0)
    assert reply["ProducerId"] != 12


@pytest.mark.needs_control
def test_the_brokers_own_bound_of_timeouts(make_broker: MakeBroker) -> None:
    broker = make_broker({"transaction.max.timeout.ms": "5000"})
    with Connection(broker.bootstrap) as connection:
        producer = Producer(connection, "tx", NEW).init(timeout_ms=5000)
        for timeout_ms, version in ((5001, 0), (5001, 5), (2**31 - 1, 5), (0, 1), (-1, 3), (-(2**31), 5)):
            reply = init_producer_id(connection, "tx", timeout_ms=timeout_ms, version=version)
            assert reply["ErrorCode"] == INVALID_TRANSACTION_TIMEOUT
            assert (reply["ProducerId"], reply["ProducerEpoch"]) == (-1, -1)
        assert producer.describe()["TransactionTimeoutMs"] == 5000
        # Without a transaction there is no timeout.
        assert init_producer_id(connection, None, timeout_ms=-1)["ErrorCode"] == 0


# --- batches that no transaction accepts


def produced(
    producer: Producer, parts: Sequence[tuple[str, int, BatchPlan | bytes]], version: int, name: str | None
) -> dict[tuple[str, int], int]:
    """One request with several partitions. Returns the code of each."""
    body = produce_body("", b"")
    body["TransactionalId"] = name
    body["TopicData"] = [
        {
            "Name": topic,
            "PartitionData": [
                {"Index": number, "Records": plan.encode() if isinstance(plan, BatchPlan) else plan}
                for of_topic, number, plan in parts
                if of_topic == topic
            ],
        }
        for topic in dict.fromkeys(topic for topic, _, _ in parts)
    ]
    reply = producer.connection.call("Produce", version, body)
    return {
        (topic["Name"], each["Index"]): each["ErrorCode"]
        for topic in reply["Responses"]
        for each in topic["PartitionResponses"]
    }


def ends(connection: Connection, topic: str, partitions: int) -> list[int]:
    return [list_offset(connection, topic, number, -1)[1] for number in range(partitions)]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_transactional_batch_without_the_id(
    version: int, connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    """No part of the request is accepted, not even the partitions without a transaction."""
    topic = make_topic(partitions=2)
    producer = Producer(connect(), unique("tx"), NEW).init()
    parts = [(topic, 0, producer.batch(topic, b"x")), (topic, 1, BatchPlan())]
    assert set(produced(producer, parts, version, None).values()) == {TRANSACTIONAL_ID_DENIED}
    assert ends(connection, topic, 2) == [0, 0]
    assert producer.state() == "Empty"


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize("other", ["producer", "epoch"])
def test_two_producers_in_one_request(
    other: str, version: int, connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    topic = make_topic(partitions=2)
    producer = Producer(connect(), unique("tx"), NEW).init()
    first, second = (producer.batch(topic, b"x", partition=number) for number in range(2))
    if other == "producer":
        second.producer_id += 1
    else:
        second.producer_epoch += 1
    codes = produced(producer, [(topic, 0, first), (topic, 1, second)], version, producer.transactional_id)
    assert set(codes.values()) == {INVALID_PRODUCER_ID_MAPPING}
    assert ends(connection, topic, 2) == [0, 0]
    assert producer.state() == "Empty"


def with_fields(plan: BatchPlan, **fields: Any) -> BatchPlan:
    for name, value in fields.items():
        setattr(plan, name, value)
    return plan


BAD_BATCHES: dict[str, tuple[dict[str, Any], int]] = {
    "no sequence": ({"base_sequence": -1}, INVALID_RECORD),
    "no sequence below": ({"base_sequence": -7}, INVALID_RECORD),
    "a gap in the sequence": ({"base_sequence": 5}, OUT_OF_ORDER),
    "a control record": (
        {"attributes": TRANSACTIONAL | CONTROL, "keys": [b"\0\0\0\1"], "values": [bytes(6)]},
        INVALID_RECORD,
    ),
    "a control record without a transaction": (
        {"attributes": CONTROL, "keys": [b"\0\0\0\0"], "values": [bytes(6)]},
        INVALID_RECORD,
    ),
    "outside the transaction": ({"attributes": 0, "base_sequence": 1}, INVALID_TXN_STATE),
    "a wrong crc": ({"crc": 1}, CORRUPT),
    "too few records": ({"record_count": 2}, INVALID_RECORD),
    "from the future": ({"base_timestamp_ms": 2**62}, 32),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_within_a_transaction(
    name: str, connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol
) -> None:
    """The batch is refused as a whole, earlier records stay, and the producer may reuse the refused sequence numbers."""
    fields, code = BAD_BATCHES[name]
    topic = make_topic()
    producer = make_producer()
    producer.send(topic, b"before")
    bad = with_fields(producer.batch(topic, b"bad"), **fields)
    found = produced(producer, [(topic, 0, bad)], protocol.produce, producer.transactional_id)
    assert found == {(topic, 0): code}
    assert ends(connection, topic, 1) == [1]
    assert producer.state() == "Ongoing"
    producer.send(topic, b"after")
    producer.finish(True)
    producer.wait_for("CompleteCommit")
    assert committed(connection, topic) == [b"before", b"after"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_one_request_of_good_and_bad_batches(
    commit: bool,
    connection: Connection,
    connect: Connect,
    make_producer: MakeProducer,
    make_topic: MakeTopic,
    protocol: Protocol,
) -> None:
    """Each partition's batch is accepted as a whole or not at all. The end applies to the accepted ones only."""
    topic, compacted = make_topic(partitions=4), make_topic(configs={"cleanup.policy": "compact"})
    producer = make_producer()
    good = [(topic, 0), (topic, 2)]
    if not protocol.adds:
        for name, number in [*good, (topic, 1), (compacted, 0)]:
            wait_until(lambda name=name, number=number: producer.add(name, number) == 0, "it is added")
    keyless = producer.batch(compacted, b"first", b"second")
    keyless.keys = [b"key", None]
    parts = [
        (topic, 0, producer.batch(topic, b"good 0")),
        (topic, 1, with_fields(producer.batch(topic, b"bad"), crc=7)),
        (topic, 2, producer.batch(topic, b"good 2")),
        (topic, 9, producer.batch(topic, b"nowhere")),
        (compacted, 0, keyless),
    ]
    if not protocol.adds:
        parts.append((topic, 3, producer.batch(topic, b"not added")))
    codes = produced(producer, parts, protocol.produce, producer.transactional_id)
    not_added = {} if protocol.adds else {(topic, 3): ABORTABLE}
    assert (
        codes
        == {
            (topic, 0): 0,
            (topic, 1): CORRUPT,
            (topic, 2): 0,
            (topic, 9): UNKNOWN_PARTITION,
            (compacted, 0): INVALID_RECORD,
        }
        | not_added
    )
    assert ends(connection, topic, 4) == [1, 0, 1, 0]
    assert ends(connection, compacted, 1) == [0]
    producer.finish(commit)
    producer.wait_for("CompleteCommit", "CompleteAbort")
    for number in range(4):
        found = fetch(connection, topic, 0, number, IsolationLevel=1)
        assert found["LastStableOffset"] == found["HighWatermark"]
    assert committed(connection, topic) == ([b"good 0"] if commit else [])
    assert committed(connection, compacted) == []


# --- compacted topics

BROKEN = {
    "a key past the end": (b"\x0e\0\0\0\x78abc", INVALID_RECORD),
    "a length too long": (b"\x18" + encode_record(0, b"k", b"abc")[1:], INVALID_RECORD),
    "bytes after the last": (encode_record(0, b"k", b"abc") + b"\0\0", INVALID_RECORD),
    "headers below none": (b"\x10\0\0\0\x02k\x02v\x01", INVALID_RECORD),
    "no key": (encode_record(0, None, b"abc"), INVALID_RECORD),
    "no key and no value": (encode_record(0, None, None), INVALID_RECORD),
}


# Kafka skips compressed records by their parts, and accepts one with a wrong length. kafkacompat refuses it.
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        (name, codec)
        for name in BROKEN
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        if (name, codec == "none") != ("a length too long", False)
    ],
)
def test_broken_batches_for_a_compacted_topic(
    name: str, codec: str, connection: Connection, make_topic: MakeTopic
) -> None:
    """A valid record in the batch of an invalid one is refused with it. A valid batch is accepted, and an empty key is
    a key."""
    records, code = BROKEN[name]
    topic = make_topic(configs={"cleanup.policy": "compact,delete"})
    plan = BatchPlan(values=[b""], records=records, codec=codec)
    assert produce(connection, topic, plan)["ErrorCode"] == code
    beside = encode_record(0, b"k", b"good") + with_delta(records)
    plan = BatchPlan(values=[b"", b""], records=beside, codec=codec)
    assert produce(connection, topic, plan)["ErrorCode"] == code
    assert ends(connection, topic, 1) == [0]
    sound = BatchPlan(values=[b"good", None], keys=[b"", b"tombstone"], codec=codec)
    assert produce(connection, topic, sound)["ErrorCode"] == 0
    assert ends(connection, topic, 1) == [2]


def with_delta(record: bytes) -> bytes:
    """The same record as the second one of its batch: the fourth byte is its offset delta."""
    return record[:3] + b"\x02" + record[4:]


def test_a_keyless_record_takes_no_sequence_and_leaves_the_transaction_open(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol
) -> None:
    topic = make_topic(configs={"cleanup.policy": "compact"})
    producer = make_producer()

    def send(*keys: bytes | None) -> int:
        if not protocol.adds:
            wait_until(lambda: producer.add(topic) == 0, "it is added")
        plan = producer.batch(topic, *[b"value"] * len(keys))
        plan.keys = list(keys)
        (code,) = produced(producer, [(topic, 0, plan)], protocol.produce, producer.transactional_id).values()
        if code == 0:
            producer.sequences[topic, 0] = producer.sequences.get((topic, 0), 0) + len(keys)
        return code

    assert send(b"a", None, b"b") == INVALID_RECORD
    assert send(b"a") == 0
    assert send(None) == INVALID_RECORD
    assert send(b"b", b"c") == 0
    assert ends(connection, topic, 1) == [3]
    producer.finish(True)
    producer.wait_for("CompleteCommit")
    assert committed(connection, topic) == [b"value"] * 3


# --- partitions and offsets of a transaction


def codes_in(topics: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    return {
        (topic["Name"], each["PartitionIndex"]): each["ErrorCode"]
        for topic in topics
        for each in topic["Partitions"]
    }


def added(producer: Producer, topics: list[dict[str, Any]], version: int = 3) -> dict[tuple[str, int], int]:
    body = {
        "V3AndBelowTransactionalId": producer.transactional_id,
        "V3AndBelowProducerId": producer.id,
        "V3AndBelowProducerEpoch": producer.epoch,
        "V3AndBelowTopics": topics,
    }
    reply = producer.connection.call("AddPartitionsToTxn", version, body)
    return {
        (topic["Name"], each["PartitionIndex"]): each["PartitionErrorCode"]
        for topic in reply["ResultsByTopicV3AndBelow"]
        for each in topic["ResultsByPartition"]
    }


def test_internal_topics_are_not_for_a_producers_transaction(
    connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    coordinator(connection, unique("group"))
    good = make_topic()
    producer = Producer(connect(), unique("tx"), OLD).init()
    for internal in ("__consumer_offsets", "__transaction_state"):
        topics = [{"Name": good, "Partitions": [0]}, {"Name": internal, "Partitions": [0]}]
        assert added(producer, topics) == {(good, 0): NOT_ATTEMPTED, (internal, 0): TOPIC_DENIED}
    assert producer.state() == "Empty"


def test_the_brokers_own_question_about_several_transactions(
    connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    """Each one is answered separately: a refused one does not affect the others."""
    topic = make_topic(partitions=2)
    good, fenced = (Producer(connect(), unique("tx"), OLD).init() for _ in range(2))
    wait_until(lambda: good.add(topic) == 0, "it is added")
    unknown = unique("never-seen")

    def asked(verify_only: bool) -> dict[str, dict[int, int]]:
        def of(name: str, producer: Producer, epoch: int) -> dict[str, Any]:
            return {
                "TransactionalId": name,
                "ProducerId": producer.id,
                "ProducerEpoch": epoch,
                "VerifyOnly": verify_only,
                "Topics": [{"Name": topic, "Partitions": [0, 1]}],
            }

        transactions = [
            of(good.transactional_id, good, good.epoch),
            of(fenced.transactional_id, fenced, fenced.epoch + 1),
            of(unknown, good, 0),
        ]
        reply = connection.call("AddPartitionsToTxn", 5, {"Transactions": transactions})
        assert reply["ErrorCode"] == 0
        return {
            each["TransactionalId"]: {
                one["PartitionIndex"]: one["PartitionErrorCode"]
                for of_topic in each["TopicResults"]
                for one in of_topic["ResultsByPartition"]
            }
            for each in reply["ResultsByTransaction"]
        }

    others = {
        fenced.transactional_id: {0: PRODUCER_FENCED, 1: PRODUCER_FENCED},
        unknown: {0: INVALID_PRODUCER_ID_MAPPING, 1: INVALID_PRODUCER_ID_MAPPING},
    }
    assert asked(True) == {good.transactional_id: {0: 0, 1: ABORTABLE}} | others
    assert good.describe()["Topics"] == [{"Topic": topic, "Partitions": [0]}]
    assert asked(False) == {good.transactional_id: {0: 0, 1: 0}} | others
    assert good.describe()["Topics"] == [{"Topic": topic, "Partitions": [0, 1]}]
    assert fenced.state() == "Empty"
    good.finish(False)


@pytest.mark.needs_control
def test_offsets_are_added_before_any_group_was_there(make_broker: MakeBroker) -> None:
    """The offsets topic does not exist yet: clients of the old protocol add offsets before they look for the group."""
    broker = make_broker()
    create_topic(broker.bootstrap, "t")
    with Connection(broker.bootstrap) as connection:
        producer = Producer(connection, "tx", OLD).init()
        assert add_offsets(producer, "group") == 0
        assert producer.state() == "Ongoing"
        coordinator(connection, "group")
        wait_until(lambda: commit_offsets(producer, "group", "t", 5) == 0, "the commit is taken")
        producer.finish(True)
        producer.wait_for("CompleteCommit")
        assert fetched_offset(connection, "group", "t") == (0, 5)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_that_are_taken_in_part(
    version: int, connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    """Every partition has its own code, and the accepted ones are part of the transaction."""
    topic, group = make_topic(partitions=3), unique("group")
    coordinator(connection, group)
    protocol = NEW if version == 5 else OLD
    producer = Producer(connect(), unique("tx"), protocol).init()
    if not protocol.adds:
        assert add_offsets(producer, group) == 0

    of_topic = [
        offset_to_commit(0, 7),
        offset_to_commit(1, 8, "m" * 4097),
        offset_to_commit(2, 9, "m" * 4096),
        offset_to_commit(9, 1),
    ]
    topics = [
        {"Name": topic, "Partitions": of_topic},
        {"Name": "no-such-topic", "Partitions": [offset_to_commit(0, 1)]},
    ]
    codes = codes_in(txn_offset_commit(producer, group, topics, version)["Topics"])
    assert codes == {
        (topic, 0): 0,
        (topic, 1): METADATA_TOO_LARGE,
        (topic, 2): 0,
        (topic, 9): UNKNOWN_PARTITION,
        ("no-such-topic", 0): UNKNOWN_PARTITION,
    }
    producer.finish(True)
    producer.wait_for("CompleteCommit")
    asked = {
        "GroupId": group,
        "Topics": [{"Name": topic, "PartitionIndexes": [0, 1, 2]}],
        "RequireStable": True,
    }
    (fetched,) = connection.call("OffsetFetch", 7, asked)["Topics"]
    found = {each["PartitionIndex"]: each["CommittedOffset"] for each in fetched["Partitions"]}
    assert found == {0: 7, 1: -1, 2: 9}


def test_offsets_of_a_group_without_a_name(
    connect: Connect, make_topic: MakeTopic, unique: Any, connection: Connection
) -> None:
    topic = make_topic()
    coordinator(connection, unique("group"))
    producer = Producer(connect(), unique("tx"), NEW).init()
    assert commit_offsets(producer, "", topic, 1) == INVALID_GROUP_ID
    assert producer.state() == "Empty"


# --- markers


def marked(
    connection: Connection,
    producer: tuple[int, int],
    topics: list[dict[str, Any]],
    *,
    coordinator_epoch: int = 0,
    commit: bool = False,
) -> dict[tuple[str, int], int]:
    marker = {
        "ProducerId": producer[0],
        "ProducerEpoch": producer[1],
        "TransactionResult": commit,
        "Topics": topics,
        "CoordinatorEpoch": coordinator_epoch,
    }
    (answer,) = connection.call("WriteTxnMarkers", 1, {"Markers": [marker]})["Markers"]
    assert answer["ProducerId"] == producer[0]
    return codes_in(answer["Topics"])


def test_markers_of_coordinators_that_are_none(
    connection: Connection, connect: Connect, make_topic: MakeTopic, unique: Any
) -> None:
    """A marker with an older epoch than the partition's is refused. Other markers end the open transactions, partition
    by partition."""
    topic = make_topic(partitions=2)
    producer = Producer(connect(), unique("tx"), NEW).init().init()
    for number in range(2):
        producer.send(topic, b"hangs", partition=number)
    here = [{"Name": topic, "PartitionIndexes": [0]}]
    who = producer.id, producer.epoch
    assert marked(connection, who, here, coordinator_epoch=9) == {(topic, 0): 0}
    assert ends(connection, topic, 2) == [2, 1]
    assert marked(connection, who, here, coordinator_epoch=8) == {(topic, 0): COORDINATOR_FENCED}
    fenced = producer.id, producer.epoch - 1
    assert marked(connection, fenced, here, coordinator_epoch=9) == {(topic, 0): INVALID_PRODUCER_EPOCH}
    everywhere = [
        {"Name": topic, "PartitionIndexes": [1, 7]},
        {"Name": "no-such-topic", "PartitionIndexes": [0]},
    ]
    assert marked(connection, who, everywhere) == {
        (topic, 1): 0,
        (topic, 7): UNKNOWN_PARTITION,
        ("no-such-topic", 0): UNKNOWN_PARTITION,
    }
    assert ends(connection, topic, 2) == [2, 2]
    # A marker for an unknown producer is written without effect.
    assert marked(connection, (10**12, 0), here, commit=True) == {(topic, 0): 0}
    found = fetch(connection, topic, 0, IsolationLevel=1)
    assert found["LastStableOffset"] == found["HighWatermark"] == 3
    assert committed(connection, topic) == []
    producer.finish(False)


def test_markers_without_a_producer(connection: Connection, make_topic: MakeTopic) -> None:
    """They fail and are not written, also where a partition of several is unknown."""
    topic = make_topic()
    several = [{"Name": topic, "PartitionIndexes": [0, 7]}]
    for who in ((-1, 0), (10**12, -1)):
        assert marked(connection, who, several) == {(topic, 0): -1, (topic, 7): -1}
        unknown = [{"Name": topic, "PartitionIndexes": [7]}]
        assert marked(connection, who, unknown) == {(topic, 7): UNKNOWN_PARTITION}
    assert ends(connection, topic, 1) == [0]


# --- queries


def test_questions_about_nothing(connection: Connection, unique: Any) -> None:
    find_coordinator(connection, unique("tx"))
    asked = {"TransactionalIds": ["", unique("never-seen")]}
    states = connection.call("DescribeTransactions", 0, asked)["TransactionStates"]
    assert [each["ErrorCode"] for each in states] == [INVALID_REQUEST, 105]
    reply = connection.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [""]})
    assert [each["ErrorCode"] for each in reply["Coordinators"]] == [0]
    assert connection.call("FindCoordinator", 3, {"KeyType": 9, "Key": "x"})["ErrorCode"] == INVALID_REQUEST
