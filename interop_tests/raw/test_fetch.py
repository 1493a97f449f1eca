"""Fetch, its sessions, ListOffsets, leader epochs, DeleteRecords."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from interop_tests.harness.raw_kafka import (
    ErrorCode,
    fetch,
    fetch_batches,
    fetch_body,
    list_offset,
    list_offset_result,
    metadata,
    produce,
    topic_id,
)
from interop_tests.harness.records import NOW_MS, BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
LONG_MS = 60_000
"""A fetch with this maximum wait outlasts the timeout of its connection."""


def fill(
    connection: Connection, topic: str, batches: int, values: int = 1, size: int = 10, partition: int = 0
) -> None:
    """Produce batches with `values` records, one second apart."""
    for number in range(batches):
        plan = BatchPlan(values=[bytes(size)] * values, base_timestamp_ms=NOW_MS + 1000 * number)
        assert produce(connection, topic, plan, partition)["ErrorCode"] == 0


@pytest.mark.parametrize("limits", [{"partition_max_bytes": 1}, {"MaxBytes": 1}, {"partition_max_bytes": 0}])
def test_one_whole_batch_whatever_the_limits(
    limits: dict[str, int], connection: Connection, topic: str
) -> None:
    fill(connection, topic, 2, size=5000)
    result = fetch(connection, topic, 0, **limits)
    batches = decode_batches(result["Records"])
    assert [batch.base_offset for batch in batches] == [0]
    assert len(result["Records"]) == batches[0].size, "one batch and not a byte more"


def test_limits_hold_after_the_first_batch(connection: Connection, topic: str) -> None:
    fill(connection, topic, 10, size=1000)
    size = fetch_batches(connection, topic)[0].size
    result = fetch(connection, topic, 0, partition_max_bytes=3 * size)
    assert len(decode_batches(result["Records"])) == 3
    assert len(result["Records"]) <= 3 * size
    result = fetch(connection, topic, 0, partition_max_bytes=3 * size + 10)
    assert len(decode_batches(result["Records"])) == 3, "a cut batch at the end does not count"


def test_only_the_first_partition_with_data_may_exceed(connection: Connection, make_topic: Any) -> None:
    topic = make_topic(3)
    for partition in (1, 2):
        fill(connection, topic, 2, size=5000, partition=partition)
    body = fetch_body(topic, 0, partition_max_bytes=100)
    (first,) = body["Topics"][0]["Partitions"]
    body["Topics"][0]["Partitions"] = [first | {"Partition": each} for each in range(3)]
    reply = connection.call("Fetch", 12, body)
    sizes = {
        each["PartitionIndex"]: len(decode_batches(each["Records"]))
        for each in reply["Responses"][0]["Partitions"]
    }
    assert sizes == {0: 0, 1: 1, 2: 0}


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_an_offset_inside_a_batch_brings_the_whole_batch(
    offset: int, connection: Connection, topic: str
) -> None:
    fill(connection, topic, 1, values=5)
    batches = decode_batches(fetch(connection, topic, offset)["Records"])
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(0, 4)]
    assert [each.offset for each in batches[0].records] == list(range(5))


def test_nothing_new_is_empty_and_not_null(connection: Connection, topic: str) -> None:
    fill(connection, topic, 1)
    result = fetch(connection, topic, 1, MaxWaitMs=0)
    assert (result["Records"], result["AbortedTransactions"]) == (b"", None)
    result = fetch(connection, topic, 0, IsolationLevel=1)
    assert result["AbortedTransactions"] == []
    assert (result["LastStableOffset"], result["HighWatermark"], result["LogStartOffset"]) == (1, 1, 0)
    assert result["PreferredReadReplica"] == -1


def test_out_of_range_exactly_outside_the_log(connection: Connection, topic: str) -> None:
    fill(connection, topic, 5)
    assert fetch(connection, topic, 5, MaxWaitMs=0)["ErrorCode"] == 0
    for offset in (6, 1000, -1, -2):
        result = fetch(connection, topic, offset, MaxWaitMs=0)
        assert result["ErrorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not result["Records"]
    delete_records(connection, topic, 3)
    assert fetch(connection, topic, 2, MaxWaitMs=0)["ErrorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(connection, topic, 3, MaxWaitMs=0)["ErrorCode"] == 0


def test_a_long_poll_ends_at_max_wait(connection: Connection, topic: str) -> None:
    started = time.monotonic()
    result = fetch(connection, topic, 0, MaxWaitMs=600)
    assert time.monotonic() - started > 0.5
    assert (result["ErrorCode"], result["Records"]) == (0, b"")


def test_a_long_poll_ends_with_the_first_record(connection: Connection, connect: Any, topic: str) -> None:
    number = connection.send("Fetch", 12, fetch_body(topic, 0, MaxWaitMs=LONG_MS))
    assert connection.is_silent(0.2)
    produce(connect(), topic, BatchPlan(values=[b"late"]))
    reply = connection.receive("Fetch", 12, number)
    (result,) = reply["Responses"][0]["Partitions"]
    assert [each.value for each in decode_batches(result["Records"])[0].records] == [b"late"]


def test_min_bytes_holds_a_fetch_back(connection: Connection, connect: Any, topic: str) -> None:
    size = len(BatchPlan(values=[bytes(1000)]).encode())
    number = connection.send("Fetch", 12, fetch_body(topic, 0, MaxWaitMs=LONG_MS, MinBytes=2 * size))
    produce(connect(), topic, BatchPlan(values=[bytes(1000)]))
    assert connection.is_silent(0.3), "one batch is not enough"
    produce(connect(), topic, BatchPlan(values=[bytes(1000)]))
    (result,) = connection.receive("Fetch", 12, number)["Responses"][0]["Partitions"]
    assert len(decode_batches(result["Records"])) == 2


def test_an_error_ends_a_long_poll_at_once(connection: Connection, make_topic: Any) -> None:
    topic = make_topic(2)
    body = fetch_body(topic, 0, MaxWaitMs=LONG_MS)
    (first,) = body["Topics"][0]["Partitions"]
    body["Topics"][0]["Partitions"].append(first | {"Partition": 1, "FetchOffset": 1000})
    reply = connection.call("Fetch", 12, body)
    errors = {each["PartitionIndex"]: each["ErrorCode"] for each in reply["Responses"][0]["Partitions"]}
    assert errors == {0: 0, 1: ErrorCode.OFFSET_OUT_OF_RANGE}


def test_an_unknown_topic_is_answered_beside_the_others(
    connection: Connection, topic: str, unique: Any
) -> None:
    fill(connection, topic, 1)
    body = fetch_body(topic, 0)
    body["Topics"] += fetch_body(unique("nowhere"), 0)["Topics"]
    reply = connection.call("Fetch", 12, body)
    errors = {each["Topic"]: each["Partitions"][0]["ErrorCode"] for each in reply["Responses"]}
    assert errors[topic] == 0
    assert sorted(errors.values()) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def session(
    connection: Connection, topics: list[dict[str, Any]], number: int, epoch: int, **more: Any
) -> Any:
    body = {
        "ReplicaId": -1,
        "MaxWaitMs": 0,
        "MinBytes": 1,
        "MaxBytes": 1 << 20,
        "IsolationLevel": 0,
        "SessionId": number,
        "SessionEpoch": epoch,
        "Topics": topics,
        "ForgottenTopicsData": [],
        "RackId": "",
    }
    return connection.call("Fetch", 12, body | more)


def test_sessions_bring_only_what_changed(connection: Connection, make_topic: Any) -> None:
    topic = make_topic(2)
    fill(connection, topic, 1)
    wanted = fetch_body(topic, 0)["Topics"]
    wanted[0]["Partitions"].append(wanted[0]["Partitions"][0] | {"Partition": 1})
    opened = session(connection, wanted, 0, 0)
    number = opened["SessionId"]
    assert number > 0
    assert len(opened["Responses"][0]["Partitions"]) == 2
    moved = fetch_body(topic, 1)["Topics"]
    nothing = session(connection, moved, number, 1)
    assert (nothing["SessionId"], nothing["Responses"], nothing["ErrorCode"]) == (number, [], 0)
    fill(connection, topic, 1, partition=1)
    changed = session(connection, [], number, 2)
    (of_topic,) = changed["Responses"]
    (result,) = of_topic["Partitions"]
    assert result["PartitionIndex"] == 1
    assert decode_batches(result["Records"])[0].base_offset == 0
    forgotten = [{"Topic": topic, "Partitions": [1]}]
    assert session(connection, [], number, 3, ForgottenTopicsData=forgotten)["Responses"] == []
    fill(connection, topic, 1, partition=1)
    assert session(connection, [], number, 4)["Responses"] == [], "what was forgotten stays away"
    again = session(connection, wanted, number, -1)
    assert (again["SessionId"], again["ErrorCode"]) == (0, 0)
    gone = session(connection, [], number, 5)
    assert gone["ErrorCode"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_a_session_there_is_no_id(connection: Connection, topic: str) -> None:
    assert session(connection, fetch_body(topic, 0)["Topics"], 0, -1)["SessionId"] == 0


def test_session_errors_are_top_level(connection: Connection, topic: str) -> None:
    unknown = session(connection, [], 123456789, 1)
    assert unknown["ErrorCode"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (unknown["SessionId"], unknown["Responses"]) == (0, [])
    number = session(connection, fetch_body(topic, 0)["Topics"], 0, 0)["SessionId"]
    wrong = session(connection, [], number, 7)
    assert wrong["ErrorCode"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (wrong["SessionId"], wrong["Responses"]) == (0, [])


def test_unknown_topic_ids_and_forgetting_strangers(connection: Connection, topic: str) -> None:
    def by_id(wanted: uuid.UUID) -> list[dict[str, Any]]:
        (asked,) = fetch_body(topic, 0)["Topics"]
        return [{"TopicId": wanted, "Partitions": asked["Partitions"]}]

    body = fetch_body(topic, 0, MaxWaitMs=0) | {"Topics": by_id(uuid.uuid4())}
    reply = connection.call("Fetch", 13, body)
    assert reply["ErrorCode"] == 0
    assert reply["Responses"][0]["Partitions"][0]["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_ID
    body |= {"Topics": by_id(topic_id(connection, topic)), "SessionId": 0, "SessionEpoch": 0}
    number = connection.call("Fetch", 13, body)["SessionId"]
    body |= {"Topics": [], "SessionId": number, "SessionEpoch": 1}
    body["ForgottenTopicsData"] = [{"TopicId": uuid.uuid4(), "Partitions": [0, 5]}]
    assert connection.call("Fetch", 13, body)["ErrorCode"] == 0


def test_leader_epochs_of_a_fetch(connection: Connection, topic: str) -> None:
    fill(connection, topic, 1)
    epoch = metadata(connection, topic)["Partitions"][0]["LeaderEpoch"]
    for current, expected in (
        (-1, 0),
        (epoch, 0),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        result = fetch(connection, topic, 0, MaxWaitMs=0, current_leader_epoch=current)
        assert result["ErrorCode"] == expected
        error = list_offset(connection, topic, 0, LATEST, current_leader_epoch=current)[0]
        assert error == expected
        assert epoch_end(connection, topic, epoch, current)["ErrorCode"] == expected


def test_the_last_fetched_epoch_is_looked_at(connection: Connection, topic: str) -> None:
    """The epoch of the log is accepted. An epoch that never existed is out of range. Divergence needs a restart."""
    fill(connection, topic, 3)
    epoch = metadata(connection, topic)["Partitions"][0]["LeaderEpoch"]
    result = fetch(connection, topic, 2, MaxWaitMs=0, last_fetched_epoch=epoch)
    assert result["ErrorCode"] == 0
    assert "DivergingEpoch" not in result
    result = fetch(connection, topic, 2, MaxWaitMs=0, last_fetched_epoch=epoch + 5)
    assert result["ErrorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not result["Records"]


def epoch_end(
    connection: Connection, topic: str, epoch: int, current: int = -1, version: int = 4
) -> dict[str, Any]:
    asked = {"Partition": 0, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}
    body = {"ReplicaId": -1, "Topics": [{"Topic": topic, "Partitions": [asked]}]}
    (of_topic,) = connection.call("OffsetForLeaderEpoch", version, body)["Topics"]
    (result,) = of_topic["Partitions"]
    return result


@pytest.mark.parametrize("version", [2, 3, 4])
def test_epochs_and_their_ends(version: int, connection: Connection, topic: str) -> None:
    """An unknown epoch is answered with -1/-1 and without an error, so that no client takes it for a truncation."""
    fill(connection, topic, 4)
    epoch = metadata(connection, topic)["Partitions"][0]["LeaderEpoch"]
    result = epoch_end(connection, topic, epoch, version=version)
    assert (result["ErrorCode"], result["LeaderEpoch"], result["EndOffset"]) == (0, epoch, 4)
    result = epoch_end(connection, topic, epoch + 10, version=version)
    assert (result["ErrorCode"], result["LeaderEpoch"], result["EndOffset"]) == (0, -1, -1)
    result = epoch_end(connection, topic, -1, version=version)
    assert (result["ErrorCode"], result["LeaderEpoch"], result["EndOffset"]) == (0, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("isolation", [0, 1])
def test_list_offsets_at_every_version(
    version: int, isolation: int, connection: Connection, topic: str
) -> None:
    fill(connection, topic, 5, values=2)

    def at(timestamp: int) -> tuple[int, int, int]:
        return list_offset(connection, topic, 0, timestamp, version, isolation)

    assert at(LATEST) == (0, 10, -1)
    assert at(EARLIEST) == (0, 0, -1)
    assert at(0) == (0, 0, NOW_MS)
    assert at(NOW_MS + 1000) == (0, 2, NOW_MS + 1000)
    assert at(NOW_MS + 1001) == (0, 4, NOW_MS + 2000)
    assert at(NOW_MS + 4000) == (0, 8, NOW_MS + 4000)
    assert at(NOW_MS + 4001) == (0, -1, -1)


def test_the_epoch_is_the_records_and_minus_one_without_one(connection: Connection, topic: str) -> None:
    fill(connection, topic, 2)
    epoch = metadata(connection, topic)["Partitions"][0]["LeaderEpoch"]
    assert list_offset_result(connection, topic, 0, NOW_MS)["LeaderEpoch"] == epoch
    assert list_offset_result(connection, topic, 0, LATEST)["LeaderEpoch"] == epoch
    assert list_offset_result(connection, topic, 0, NOW_MS + 10**9)["LeaderEpoch"] == -1


def test_a_time_within_a_batch_finds_the_record(connection: Connection, topic: str) -> None:
    """The first record at or after the time, in or out of order, compressed or not."""
    for codec in ("none", "gzip", "zstd"):
        plan = BatchPlan(values=[b"x"] * 4, timestamp_deltas=[0, 50, 20, 90], codec=codec)
        produce(connection, topic, plan)
    assert list_offset(connection, topic, 0, NOW_MS + 10)[1:] == (1, NOW_MS + 50)
    assert list_offset(connection, topic, 0, NOW_MS + 60)[1:] == (3, NOW_MS + 90)


def test_an_empty_topic(connection: Connection, topic: str) -> None:
    assert list_offset(connection, topic, 0, LATEST) == (0, 0, -1)
    assert list_offset(connection, topic, 0, EARLIEST) == (0, 0, -1)
    assert list_offset(connection, topic, 0, 0) == (0, -1, -1)
    assert list_offset(connection, topic, 0, MAX_TIMESTAMP) == (0, -1, -1)


def test_the_largest_of_no_timestamps_is_that_of_the_first_record(connection: Connection, topic: str) -> None:
    for _ in range(3):
        produce(connection, topic, BatchPlan(values=[b"a", b"b"], base_timestamp_ms=-1))
    assert list_offset(connection, topic, 0, MAX_TIMESTAMP) == (0, 0, -1)
    assert list_offset(connection, topic, 0, 0) == (0, -1, -1)
    produce(connection, topic, BatchPlan(base_timestamp_ms=NOW_MS))
    assert list_offset(connection, topic, 0, MAX_TIMESTAMP) == (0, 6, NOW_MS)


def test_special_timestamps_by_version(connection: Connection, topic: str) -> None:
    for delta in (5, 9, 7):
        produce(connection, topic, BatchPlan(base_timestamp_ms=NOW_MS + delta))
    assert list_offset(connection, topic, 0, MAX_TIMESTAMP, 7) == (0, 1, NOW_MS + 9)
    assert list_offset(connection, topic, 0, EARLIEST_LOCAL, 8) == (0, 0, -1)
    assert list_offset(connection, topic, 0, LATEST_TIERED, 9)[:2] == (0, -1)
    for timestamp, oldest in ((MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 11)):
        assert list_offset(connection, topic, 0, timestamp, oldest - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
        assert list_offset(connection, topic, 0, timestamp, oldest)[0] == 0


def test_a_partition_twice_is_refused(connection: Connection, topic: str) -> None:
    asked = [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": LATEST}] * 2
    body = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": asked}]}
    reply = connection.call("ListOffsets", 7, body)
    results = [each["ErrorCode"] for of_topic in reply["Topics"] for each in of_topic["Partitions"]]
    assert set(results) == {ErrorCode.INVALID_REQUEST}


def test_other_isolation_levels_are_an_error_and_no_more(connection: Connection, topic: str) -> None:
    reply = connection.call("Fetch", 12, fetch_body(topic, 0, IsolationLevel=7, MaxWaitMs=0))
    errors = [each["ErrorCode"] for of_topic in reply["Responses"] for each in of_topic["Partitions"]]
    assert set(errors) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert list_offset(connection, topic, 0, LATEST, isolation=7)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list_offset(connection, topic, 0, LATEST)[0] == 0


def delete_records(connection: Connection, topic: str, offset: int, version: int = 2) -> tuple[int, int]:
    asked = [{"PartitionIndex": 0, "Offset": offset}]
    body = {"Topics": [{"Name": topic, "Partitions": asked}], "TimeoutMs": 10_000}
    (of_topic,) = connection.call("DeleteRecords", version, body)["Topics"]
    (result,) = of_topic["Partitions"]
    return result["ErrorCode"], result["LowWatermark"]


@pytest.mark.parametrize("version", range(3))
def test_delete_records(version: int, connection: Connection, topic: str) -> None:
    fill(connection, topic, 6)
    assert delete_records(connection, topic, 2, version) == (0, 2)
    assert list_offset(connection, topic, 0, EARLIEST)[1] == 2
    assert list_offset(connection, topic, 0, 0)[1] == 2, "time lookups keep to the log as it is now"
    assert delete_records(connection, topic, 7, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(connection, topic, 1, version) == (0, 2), "the start never goes back"
    assert delete_records(connection, topic, -1, version) == (0, 6)
    assert list_offset(connection, topic, 0, EARLIEST)[1] == 6
    produce(connection, topic, BatchPlan())
    assert [batch.base_offset for batch in fetch_batches(connection, topic, 6)] == [6]


def test_delete_records_of_a_compacted_topic(connection: Connection, make_topic: Any) -> None:
    compacted = make_topic(configs={"cleanup.policy": "compact"})
    assert delete_records(connection, compacted, 0) == (ErrorCode.POLICY_VIOLATION, -1)
    both = make_topic(configs={"cleanup.policy": "compact,delete"})
    produce(connection, both, BatchPlan(keys=[b"k"]))
    assert delete_records(connection, both, 1) == (0, 1)


def test_a_changed_cleanup_policy_leaves_the_topic_readable(connection: Connection, topic: str) -> None:
    produce(connection, topic, BatchPlan(values=[b"before"], keys=[b"k"]))
    change = {"Name": "cleanup.policy", "ConfigOperation": 0, "Value": "compact"}
    resource = {"ResourceType": 2, "ResourceName": topic, "Configs": [change]}
    reply = connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
    assert [each["ErrorCode"] for each in reply["Responses"]] == [0]
    wait_until(
        lambda: produce(connection, topic, BatchPlan())["ErrorCode"] == ErrorCode.INVALID_RECORD,
        "keys are required",
    )
    assert fetch_batches(connection, topic)[0].records[0].value == b"before"
