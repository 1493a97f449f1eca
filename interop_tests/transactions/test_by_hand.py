"""Transactions request by request, in the old protocol and the new one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import fetch, list_offset, produce, produce_body
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import (
    CONCURRENT,
    CONTROL,
    NEW,
    OLD,
    TRANSACTIONAL,
    Producer,
    Protocol,
    find_coordinator,
    init_producer_id,
)

MakeProducer = Callable[..., Producer]
MakeTopic = Callable[..., str]

COORDINATOR_LOADING = 14
INVALID_REQUEST = 42
OUT_OF_ORDER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
UNSTABLE_OFFSET_COMMIT = 88
INVALID_RECORD = 87
PRODUCER_FENCED = 90
ID_NOT_FOUND = 105
ABORTABLE = 120


def read(
    connection: Connection, topic: str, isolation: int, offset: int = 0, **options: Any
) -> dict[str, Any]:
    return fetch(connection, topic, offset, IsolationLevel=isolation, **options)


def committed(connection: Connection, topic: str) -> list[bytes | None]:
    """The records of partition 0 for a read_committed consumer."""
    result = read(connection, topic, 1)
    aborted = [(each["ProducerId"], each["FirstOffset"]) for each in result["AbortedTransactions"]]
    assert aborted == sorted(aborted, key=lambda each: each[1])
    dropped: set[int] = set()
    values: list[bytes | None] = []
    for batch in decode_batches(result["Records"], True):
        dropped |= {producer for producer, first in aborted if first <= batch.base_offset}
        if batch.attributes & CONTROL:
            if batch.records[0].key == b"\0\0\0\0":
                dropped.discard(batch.producer_id)
                aborted = [
                    (producer, first)
                    for producer, first in aborted
                    if producer != batch.producer_id or first > batch.base_offset
                ]
        elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in dropped):
            values += [record.value for record in batch.records]
    return values


def test_a_coordinator_is_found_and_answers_retriable_codes_only(connection: Connection, unique: Any) -> None:
    name = unique("tx")
    found = find_coordinator(connection, name)
    assert found["Port"] > 0
    seen = set()

    def initialised() -> bool:
        reply = init_producer_id(connection, name)
        seen.add(reply["ErrorCode"])
        return bool(reply["ErrorCode"] == 0)

    wait_until(initialised, "the id is initialised")
    assert seen <= {0, COORDINATOR_LOADING, 15, 16}


def test_the_feature_is_told_and_every_version_is_served(connection: Connection) -> None:
    reply = connection.call("ApiVersions", 4, {"ClientSoftwareName": "interop", "ClientSoftwareVersion": "1"})
    finalized = {each["Name"]: each["MaxVersionLevel"] for each in reply["FinalizedFeatures"]}
    supported = {
        each["Name"]: (each["MinVersion"], each["MaxVersion"]) for each in reply["SupportedFeatures"]
    }
    assert finalized["transaction.version"] == 2
    assert supported["transaction.version"] == (0, 2)
    ranges = {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in reply["ApiKeys"]}
    assert {key: ranges[key] for key in (24, 25, 26, 27, 28, 65, 66)} == {
        24: (0, 5),
        25: (0, 4),
        26: (0, 5),
        27: (1, 2),
        28: (0, 6),
        65: (0, 0),
        66: (0, 2),
    }


def test_committed_and_aborted(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = make_producer()
    for number, commit in enumerate([True, False, True, False]):
        producer.send(topic, b"%d-a" % number, b"%d-b" % number)
        producer.finish(commit)
    producer.wait_for("CompleteAbort")
    assert committed(connection, topic) == [b"0-a", b"0-b", b"2-a", b"2-b"]
    assert list_offset(connection, topic, 0, -1)[1] == 12


def test_read_committed_stops_at_an_open_transaction_and_tells_what_was_aborted(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer, other = make_producer(), make_producer()
    producer.send(topic, b"aborted")
    producer.finish(False)
    producer.wait_for("CompleteAbort")
    other.send(topic, b"open")
    produce(connection, topic, BatchPlan([b"plain"], base_timestamp_ms=time.time_ns() // 1_000_000))
    seen = read(connection, topic, 1)
    assert (seen["LastStableOffset"], seen["HighWatermark"]) == (2, 4)
    assert [batch.base_offset for batch in decode_batches(seen["Records"])] == [0, 1]
    assert seen["AbortedTransactions"] == [{"ProducerId": producer.id, "FirstOffset": 0}]
    unfiltered = read(connection, topic, 0)
    assert unfiltered["AbortedTransactions"] is None
    assert len(decode_batches(unfiltered["Records"])) == 4
    assert list_offset(connection, topic, 0, -1, isolation=1)[1] == 2
    assert list_offset(connection, topic, 0, -1, isolation=0)[1] == 4
    other.finish(True)
    other.wait_for("CompleteCommit")
    assert read(connection, topic, 1)["LastStableOffset"] == 5


def test_a_parked_read_committed_fetch_wakes_for_the_marker_and_not_before(
    connect: Callable[..., Connection], make_producer: MakeProducer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = make_producer()
    producer.send(topic, b"x" * 500)
    waiting = connect()
    body = {
        "ReplicaId": -1,
        "MaxWaitMs": 60_000,
        "MinBytes": 1,
        "MaxBytes": 1 << 20,
        "IsolationLevel": 1,
        "SessionId": 0,
        "SessionEpoch": -1,
        "Topics": [
            {
                "Topic": topic,
                "Partitions": [
                    {
                        "Partition": 0,
                        "CurrentLeaderEpoch": -1,
                        "FetchOffset": 0,
                        "LastFetchedEpoch": -1,
                        "LogStartOffset": -1,
                        "PartitionMaxBytes": 1 << 20,
                    }
                ],
            }
        ],
        "ForgottenTopicsData": [],
        "RackId": "",
    }
    sent = waiting.send("Fetch", 12, body)
    assert waiting.is_silent(1.0)
    producer.send(topic, b"y" * 500)
    assert waiting.is_silent(0.5)
    producer.finish(True)
    # It would wait for longer than the connection's timeout.
    reply = waiting.receive("Fetch", 12, sent)
    assert reply["Responses"][0]["Partitions"][0]["Records"]


def test_markers_carry_kafkas_bytes(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol
) -> None:
    topic = make_topic()
    producer = make_producer()
    epoch = producer.epoch
    producer.send(topic, b"data")
    producer.finish(True)
    producer.wait_for("CompleteCommit")
    data, marker = decode_batches(read(connection, topic, 0)["Records"], True)
    assert (data.producer_epoch, data.attributes) == (epoch, TRANSACTIONAL)
    assert marker.producer_epoch == epoch + (1 if protocol.adds else 0)
    assert (marker.attributes, marker.base_sequence) == (TRANSACTIONAL | CONTROL, -1)
    (record,) = marker.records
    assert record.key == b"\0\0\0\1"
    assert record.value is not None
    assert record.value[:2] == b"\0\0"
    assert len(record.value) == 6


def test_a_new_epoch_each_transaction(
    connection: Connection, connect: Callable[..., Connection], unique: Any, make_topic: MakeTopic
) -> None:
    """A batch that arrives after its transaction has ended cannot start the next one."""
    topic = make_topic()
    producer = Producer(connect(), unique("tx"), NEW).init()
    producer.send(topic, b"first")
    late = Producer(connect(), producer.transactional_id, NEW)
    late.id, late.epoch, late.sequences = producer.id, producer.epoch, dict(producer.sequences)
    epoch = producer.epoch
    producer.finish(True)
    assert (producer.epoch, producer.id) == (epoch + 1, late.id)
    producer.wait_for("CompleteCommit")
    assert late.produce(topic, b"late")["ErrorCode"] == INVALID_PRODUCER_EPOCH
    assert list_offset(connection, topic, 0, -1)[1] == 2


def test_the_timeout_is_checked(connection: Connection, unique: Any) -> None:
    name = unique("tx")
    find_coordinator(connection, name)
    for timeout_ms in (0, -1, 900_001):
        reply = init_producer_id(connection, name, timeout_ms=timeout_ms)
        assert reply["ErrorCode"] == INVALID_TRANSACTION_TIMEOUT


def test_init_refusals(connection: Connection, unique: Any, make_producer: MakeProducer) -> None:
    assert init_producer_id(connection, "")["ErrorCode"] == INVALID_REQUEST
    producer = make_producer()
    name = producer.transactional_id
    ask = init_producer_id
    assert ask(connection, name, producer_id=producer.id)["ErrorCode"] == INVALID_REQUEST
    assert ask(connection, name, epoch=0)["ErrorCode"] == INVALID_REQUEST
    assert ask(connection, name, producer_id=producer.id + 1, epoch=0)["ErrorCode"] == PRODUCER_FENCED
    assert ask(connection, name, producer_id=producer.id, epoch=9)["ErrorCode"] == PRODUCER_FENCED
    old = ask(connection, name, producer_id=producer.id, epoch=9, version=3)
    assert old["ErrorCode"] == INVALID_PRODUCER_EPOCH


def test_kip_360_a_producer_that_knows_its_epoch_goes_on_with_the_next(
    connection: Connection, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    name, start = producer.transactional_id, producer.epoch
    first = init_producer_id(connection, name, producer_id=producer.id, epoch=start)
    assert (first["ErrorCode"], first["ProducerEpoch"]) == (0, start + 1)
    # The same request again, because its response was lost: the same response.
    again = init_producer_id(connection, name, producer_id=producer.id, epoch=start)
    assert (again["ErrorCode"], again["ProducerEpoch"]) == (0, start + 1)
    unaware = init_producer_id(connection, name)
    assert unaware["ProducerEpoch"] == start + 2
    fenced = init_producer_id(connection, name, producer_id=producer.id, epoch=start)
    assert fenced["ErrorCode"] == PRODUCER_FENCED


def test_a_zombie_is_fenced(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol
) -> None:
    topic = make_topic()
    zombie = make_producer()
    zombie.send(topic, b"zombie's")
    epoch = zombie.epoch
    heir = make_producer(zombie.transactional_id)
    assert heir.id == zombie.id
    # Fencing aborts with the next epoch, and the new producer's epoch is one higher.
    assert heir.epoch == epoch + 2
    assert zombie.produce(topic, b"more")["ErrorCode"] == INVALID_PRODUCER_EPOCH
    assert zombie.add(topic) == PRODUCER_FENCED
    assert zombie.add(topic, version=1) == INVALID_PRODUCER_EPOCH
    assert zombie.end(True)["ErrorCode"] == PRODUCER_FENCED
    assert zombie.end(True, version=1)["ErrorCode"] == INVALID_PRODUCER_EPOCH
    heir.send(topic, b"heir's")
    heir.finish(True)
    heir.wait_for("CompleteCommit")
    assert committed(connection, topic) == [b"heir's"]


def test_an_end_again(make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol) -> None:
    """The same end again gets the same response. The opposite one is refused."""
    topic = make_topic()
    producer = make_producer()
    producer.send(topic, b"a")
    first = producer.end(True)
    assert first["ErrorCode"] == 0
    producer.wait_for("CompleteCommit")
    again = producer.end(True)
    assert again == first
    assert producer.end(False)["ErrorCode"] == INVALID_TXN_STATE
    if protocol.adds:
        assert (first["ProducerId"], first["ProducerEpoch"]) == (producer.id, producer.epoch + 1)


def test_an_empty_transaction(make_producer: MakeProducer, protocol: Protocol) -> None:
    """In the new protocol an abort without a transaction returns a new epoch. The other requests are refused."""
    producer = make_producer()
    assert producer.end(True)["ErrorCode"] == INVALID_TXN_STATE
    reply = producer.end(False)
    if protocol.adds:
        assert (reply["ErrorCode"], reply["ProducerEpoch"]) == (0, producer.epoch + 1)
        producer.wait_for("CompleteAbort")
    else:
        assert reply["ErrorCode"] == INVALID_TXN_STATE


def test_ends_of_others(connection: Connection, make_producer: MakeProducer, unique: Any) -> None:
    producer = make_producer()
    real = producer.id, producer.epoch
    producer.id += 1
    assert producer.end(False)["ErrorCode"] == INVALID_PRODUCER_ID_MAPPING
    producer.id, producer.epoch = real[0], real[1] + 1
    assert producer.end(False)["ErrorCode"] == PRODUCER_FENCED
    producer.transactional_id = unique("never-seen")
    find_coordinator(connection, producer.transactional_id)
    assert producer.end(False)["ErrorCode"] == INVALID_PRODUCER_ID_MAPPING
    producer.transactional_id = ""
    assert producer.end(False)["ErrorCode"] == INVALID_REQUEST


def test_adding_partitions_that_do_not_exist(make_producer: MakeProducer, make_topic: MakeTopic) -> None:
    producer = make_producer()
    good = make_topic()
    reply = producer.connection.call(
        "AddPartitionsToTxn",
        3,
        {
            "V3AndBelowTransactionalId": producer.transactional_id,
            "V3AndBelowProducerId": producer.id,
            "V3AndBelowProducerEpoch": producer.epoch,
            "V3AndBelowTopics": [
                {"Name": good, "Partitions": [0, 7]},
                {"Name": "no-such-topic", "Partitions": [0]},
            ],
        },
    )
    codes = {
        (topic["Name"], each["PartitionIndex"]): each["PartitionErrorCode"]
        for topic in reply["ResultsByTopicV3AndBelow"]
        for each in topic["ResultsByPartition"]
    }
    assert codes == {(good, 0): 55, (good, 7): 3, ("no-such-topic", 0): 3}
    assert producer.state() == "Empty"


@pytest.mark.parametrize(("version", "code"), [(9, INVALID_TXN_STATE), (11, ABORTABLE)])
def test_a_partition_that_was_not_added_is_not_written(
    version: int, code: int, connect: Callable[..., Connection], unique: Any, make_topic: MakeTopic
) -> None:
    producer = Producer(connect(), unique("tx"), OLD).init()
    topic = make_topic()
    assert producer.produce(topic, b"x", version=version)["ErrorCode"] == code
    assert list_offset(producer.connection, topic, 0, -1)[1] == 0


def test_writes_that_clients_may_not_make(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = make_producer()
    producer.send(topic, b"a")
    body = produce_body(topic, producer.batch(topic, b"outside", attributes=0))
    (outside,) = connection.call("Produce", 9, body)["Responses"][0]["PartitionResponses"]
    assert outside["ErrorCode"] == INVALID_TXN_STATE
    marker = producer.batch(topic, b"\0\0\0\0\0\0", attributes=TRANSACTIONAL | CONTROL)
    marker.keys = [b"\0\0\0\1"]
    body = produce_body(topic, marker)
    body["TransactionalId"] = producer.transactional_id
    version = producer.protocol.produce
    (control,) = connection.call("Produce", version, body)["Responses"][0]["PartitionResponses"]
    assert control["ErrorCode"] == INVALID_RECORD
    assert list_offset(connection, topic, 0, -1)[1] == 1
    producer.finish(False)


def test_an_old_transaction_times_out(make_broker: Any, unique: Any, protocol: Protocol) -> None:
    broker = make_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    from interop_tests.harness.raw_kafka import create_topic

    create_topic(broker.bootstrap, "t")
    with Connection(broker.bootstrap) as connection:
        producer = Producer(connection, unique("tx"), protocol).init(timeout_ms=2000)
        producer.send("t", b"forgotten")
        epoch = producer.epoch
        producer.wait_for("CompleteAbort")
        assert producer.describe()["ProducerEpoch"] == epoch + 1
        assert committed(connection, "t") == []
        assert read(connection, "t", 1)["LastStableOffset"] == 2
        assert producer.produce("t", b"more")["ErrorCode"] == INVALID_PRODUCER_EPOCH
        assert producer.end(True)["ErrorCode"] == (INVALID_TXN_STATE if protocol.adds else PRODUCER_FENCED)


test_an_old_transaction_times_out.pytestmark = [pytest.mark.needs_control]  # type: ignore[attr-defined]


def test_describe_and_list(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    producer = make_producer()
    assert producer.describe() | {"ProducerId": 0, "ProducerEpoch": 0} == {
        "ErrorCode": 0,
        "TransactionalId": producer.transactional_id,
        "TransactionState": "Empty",
        "TransactionTimeoutMs": 60_000,
        "TransactionStartTimeMs": -1,
        "ProducerId": 0,
        "ProducerEpoch": 0,
        "Topics": [],
    }
    producer.send(topic, b"a", partition=1)
    open_now = producer.describe()
    assert open_now["TransactionState"] == "Ongoing"
    assert open_now["TransactionStartTimeMs"] > 0
    assert open_now["Topics"] == [{"Topic": topic, "Partitions": [1]}]

    def listed(**filters: Any) -> list[str]:
        body = {
            "StateFilters": [],
            "ProducerIdFilters": [],
            "DurationFilter": -1,
            "TransactionalIdPattern": None,
        }
        reply = connection.call("ListTransactions", 2, body | filters)
        assert reply["ErrorCode"] == 0
        return [
            each["TransactionalId"]
            for each in reply["TransactionStates"]
            if each["TransactionalId"] == producer.transactional_id
        ]

    mine = [producer.transactional_id]
    assert listed() == mine
    assert listed(StateFilters=["Ongoing"]) == mine
    assert listed(StateFilters=["CompleteCommit"]) == []
    assert listed(StateFilters=["Nonsense"]) == []
    assert listed(ProducerIdFilters=[producer.id]) == mine
    assert listed(ProducerIdFilters=[producer.id + 1]) == []
    assert listed(DurationFilter=3_600_000) == []
    wait_until(lambda: listed(DurationFilter=0) == mine, "it has been open for some time")
    assert listed(TransactionalIdPattern="tx-.*") == mine
    assert listed(TransactionalIdPattern="x-.*") == []
    assert listed(TransactionalIdPattern="(?i)TX-.*", StateFilters=["Ongoing"], DurationFilter=0) == mine
    # A regular expression matcher with backtracking would take years.
    assert listed(TransactionalIdPattern="(.*)" * 30 + "/") == []
    both = {
        "StateFilters": ["Ongoing", "Nonsense"],
        "ProducerIdFilters": [],
        "DurationFilter": -1,
        "TransactionalIdPattern": "",
    }
    reply = connection.call("ListTransactions", 2, both)
    assert (reply["ErrorCode"], reply["UnknownStateFilters"]) == (0, ["Nonsense"])
    found = {each["TransactionalId"]: each for each in reply["TransactionStates"]}
    assert {each["TransactionState"] for each in found.values()} == {"Ongoing"}
    assert found[producer.transactional_id]["ProducerId"] == producer.id
    unknown = connection.call(
        "ListTransactions",
        2,
        {
            "StateFilters": ["Nonsense"],
            "ProducerIdFilters": [],
            "DurationFilter": -1,
            "TransactionalIdPattern": "(",
        },
    )
    assert unknown["ErrorCode"] == 128
    (absent,) = connection.call("DescribeTransactions", 0, {"TransactionalIds": ["no-such-id"]})[
        "TransactionStates"
    ]
    assert absent["ErrorCode"] == ID_NOT_FOUND
    producer.finish(False)


def test_describe_producers(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol
) -> None:
    """While its transaction is open, and after the marker, which has the next epoch in the new protocol."""
    topic = make_topic()
    producer = make_producer()
    began_ms = time.time_ns() // 1_000_000

    def described() -> dict[str, Any]:
        body = {"Topics": [{"Name": topic, "PartitionIndexes": [0]}]}
        ((partition,),) = (
            each["Partitions"] for each in connection.call("DescribeProducers", 0, body)["Topics"]
        )
        assert partition["ErrorCode"] == 0
        (found,) = partition["ActiveProducers"]
        assert found["ProducerId"] == producer.id
        assert began_ms <= found["LastTimestamp"] <= time.time_ns() // 1_000_000
        return {name: found[name] for name in ("ProducerEpoch", "LastSequence", "CurrentTxnStartOffset")} | {
            "knows its coordinator": found["CoordinatorEpoch"] >= 0
        }

    epoch = producer.epoch
    produce(connection, topic, BatchPlan([b"plain"], base_timestamp_ms=began_ms))
    producer.send(topic, b"a", b"b")
    producer.send(topic, b"c")
    assert described() == {
        "ProducerEpoch": epoch,
        "LastSequence": 2,
        "CurrentTxnStartOffset": 1,
        "knows its coordinator": False,
    }
    producer.finish(True)
    producer.wait_for("CompleteCommit")
    assert described() == {
        "ProducerEpoch": epoch + 1 if protocol.adds else epoch,
        "LastSequence": -1 if protocol.adds else 2,
        "CurrentTxnStartOffset": -1,
        "knows its coordinator": True,
    }
    for name, code in (("no-such-topic", 3), ("not/legal", 17)):
        body = {"Topics": [{"Name": name, "PartitionIndexes": [0]}]}
        (refused,) = connection.call("DescribeProducers", 0, body)["Topics"]
        assert refused["Partitions"][0]["ErrorCode"] == code


def commit_offsets(
    producer: Producer, group: str, topic: str, offset: int, *, partition: int = 0, **member: Any
) -> int:
    """TxnOffsetCommit. Returns the partition's error."""
    topics = [{"Name": topic, "Partitions": [offset_to_commit(partition, offset, "m")]}]
    reply = txn_offset_commit(producer, group, topics, producer.protocol.offsets, **member)
    return int(reply["Topics"][0]["Partitions"][0]["ErrorCode"])


def offset_to_commit(partition: int, offset: int, metadata: str | None = None) -> dict[str, Any]:
    return {
        "PartitionIndex": partition,
        "CommittedOffset": offset,
        "CommittedLeaderEpoch": -1,
        "CommittedMetadata": metadata,
    }


def txn_offset_commit(
    producer: Producer, group: str, topics: list[dict[str, Any]], version: int, **member: Any
) -> dict[str, Any]:
    """TxnOffsetCommit. Returns its response. `member` replaces the fields with those names."""
    body = {
        "TransactionalId": producer.transactional_id,
        "GroupId": group,
        "ProducerId": producer.id,
        "ProducerEpoch": producer.epoch,
        "GenerationId": -1,
        "MemberId": "",
        "GroupInstanceId": None,
        "Topics": topics,
    }
    return producer.connection.call("TxnOffsetCommit", version, body | member)


def add_offsets(producer: Producer, group: str, version: int = 3) -> int:
    body = {
        "TransactionalId": producer.transactional_id,
        "ProducerId": producer.id,
        "ProducerEpoch": producer.epoch,
        "GroupId": group,
    }
    return int(producer.connection.call("AddOffsetsToTxn", version, body)["ErrorCode"])


def fetched_offset(connection: Connection, group: str, topic: str, stable: bool = True) -> tuple[int, int]:
    reply = connection.call(
        "OffsetFetch",
        7,
        {"GroupId": group, "Topics": [{"Name": topic, "PartitionIndexes": [0]}], "RequireStable": stable},
    )
    (found,) = reply["Topics"][0]["Partitions"]
    return found["ErrorCode"], found["CommittedOffset"]


def test_offsets_count_with_their_transaction(
    connection: Connection,
    make_producer: MakeProducer,
    make_topic: MakeTopic,
    unique: Any,
    protocol: Protocol,
) -> None:
    topic, group = make_topic(), unique("group")
    coordinator(connection, group)
    producer = make_producer()
    for offset, commit, then in ((3, True, 3), (5, False, 3), (7, True, 7)):
        if not protocol.adds:
            wait_until(lambda: add_offsets(producer, group) == 0, "the offsets are added")
        wait_until(
            lambda at=offset: commit_offsets(producer, group, topic, at) == 0, "the commit is taken", 10
        )
        assert fetched_offset(connection, group, topic)[0] == UNSTABLE_OFFSET_COMMIT
        producer.finish(commit)
        producer.wait_for("CompleteCommit" if commit else "CompleteAbort")
        assert fetched_offset(connection, group, topic) == (0, then)


def test_transactional_commits_that_are_refused(
    connection: Connection,
    make_producer: MakeProducer,
    make_topic: MakeTopic,
    unique: Any,
    protocol: Protocol,
) -> None:
    topic, group = make_topic(), unique("group")
    coordinator(connection, group)
    producer = make_producer()
    assert commit_offsets(producer, group, "no-such-topic", 1) == 3
    assert commit_offsets(producer, group, topic, 1, partition=9) == 3
    if not protocol.adds:
        assert commit_offsets(producer, group, topic, 1) == ABORTABLE
        assert add_offsets(producer, group) == 0
    assert commit_offsets(producer, group, topic, 1, GenerationId=3, MemberId="who") == 22
    producer.epoch += 1
    assert commit_offsets(producer, group, topic, 1) == INVALID_PRODUCER_EPOCH


def test_everything_survives_a_restart(make_broker: Any, unique: Any, protocol: Protocol) -> None:
    from interop_tests.harness.raw_kafka import create_topic

    broker = make_broker({})
    create_topic(broker.bootstrap, "t")
    with Connection(broker.bootstrap) as connection:
        producer = Producer(connection, unique("tx"), protocol).init()
        producer.send("t", b"committed")
        producer.finish(True)
        producer.wait_for("CompleteCommit")
        producer.send("t", b"open")
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        producer.connection = connection
        find_coordinator(connection, producer.transactional_id)
        producer.wait_for("Ongoing")
        # Records that a kill left are read after they are durable.
        wait_until(lambda: list_offset(connection, "t", 0, -1)[0] == 0, "the partition is served")
        assert read(connection, "t", 1)["LastStableOffset"] == 2
        producer.send("t", b"still open")
        producer.finish(True)
        producer.wait_for("CompleteCommit")
        assert committed(connection, "t") == [b"committed", b"open", b"still open"]


test_everything_survives_a_restart.pytestmark = [pytest.mark.needs_control]  # type: ignore[attr-defined]


def test_markers_of_a_tool(
    connection: Connection, make_producer: MakeProducer, make_topic: MakeTopic, protocol: Protocol
) -> None:
    """WriteTxnMarkers ends a hanging transaction in one partition. Older epochs are refused."""
    topic = make_topic()
    producer = make_producer()
    producer.send(topic, b"hangs")

    def mark(epoch: int, partition: int = 0) -> int:
        body = {
            "Markers": [
                {
                    "ProducerId": producer.id,
                    "ProducerEpoch": epoch,
                    "TransactionResult": False,
                    "Topics": [{"Name": topic, "PartitionIndexes": [partition]}],
                    "CoordinatorEpoch": 0,
                }
            ]
        }
        (marker,) = connection.call("WriteTxnMarkers", 1, body)["Markers"]
        return int(marker["Topics"][0]["Partitions"][0]["ErrorCode"])

    assert mark(producer.epoch, 5) == 3
    assert mark(producer.epoch) == 0
    assert read(connection, topic, 1)["LastStableOffset"] == 2
    assert committed(connection, topic) == []
    if producer.epoch > 0:
        assert mark(producer.epoch - 1) == INVALID_PRODUCER_EPOCH


def test_a_concurrent_transaction_is_told_or_waited_for(
    make_producer: MakeProducer, make_topic: MakeTopic
) -> None:
    """Directly after an end only CONCURRENT_TRANSACTIONS or success is permitted."""
    topic = make_topic()
    producer = make_producer()
    for _ in range(20):
        producer.send(topic, b"x")
        producer.finish(True)
        assert init_producer_id(producer.connection, producer.transactional_id)["ErrorCode"] in (
            0,
            CONCURRENT,
        )
        producer.init()
