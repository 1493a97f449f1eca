"""Records of streams groups compared byte for byte with those that Apache Kafka 4.4.0's own classes write."""

from __future__ import annotations

import pytest

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.group.records import (
    STREAMS_MESSAGES,
    StreamsGroupRecord,
    decode_modern_record,
    decode_record,
    encode_record,
    streams_current_assignment_record,
    streams_epoch_record,
    streams_group_tombstones,
    streams_member_record,
    streams_member_tombstones,
    streams_target_epoch_record,
    streams_target_record,
    streams_topology_record,
)
from kafkacompat.group.streams.streams_group_member import Endpoint, MemberState, StreamsGroupMember
from kafkacompat.group.streams.streams_topology import (
    CopartitionGroup,
    StreamsTopology,
    Subtopology,
    TopicInfo,
    topology_of,
)
from kafkacompat.group.streams.tasks_tuple import (
    TasksTuple,
    TasksTupleWithEpochs,
    tasks_of,
    tasks_with_epochs_of,
)

GROUP = "0001 67"
MEMBER = "0001 67 0001 6d"
CONFIGS = {"num.standby.replicas": "1", "rack.aware.assignment.tags": "zone,cluster"}
PLAIN = StreamsGroupMember("m")
TOLD = StreamsGroupMember(
    "m",
    member_epoch=4,
    previous_member_epoch=3,
    state=MemberState.UNREVOKED_TASKS,
    instance_id="i",
    rack_id="r",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=300_000,
    topology_epoch=2,
    process_id="p",
    user_endpoint=Endpoint("h", 50_000),
    client_tags={"zone": "a", "cluster": "c1"},
    assigned=TasksTupleWithEpochs(
        active={"0": {1: 4, 0: 3}}, standby={"1": frozenset({1, 0})}, warmup={"2": frozenset({5})}
    ),
    pending_revocation=TasksTupleWithEpochs(
        active={"1": {2: 2}}, standby={"0": frozenset({3})}, warmup={"0": frozenset({4})}
    ),
)
TARGET = TasksTuple(
    active={"1": frozenset({2, 0}), "0": frozenset({1})},
    standby={"1": frozenset({1})},
    warmup={"2": frozenset({5})},
)
TOPOLOGY = StreamsTopology(
    2,
    {
        "0": Subtopology(
            "0",
            source_topics=("a", "b"),
            repartition_sink_topics=("r",),
            copartition_groups=(CopartitionGroup(source_topics=(0, 1)),),
        ),
        "1": Subtopology(
            "1",
            source_topic_regex=("x.*",),
            repartition_source_topics=(TopicInfo("r", 3, 1, (("cleanup.policy", "delete"),)),),
            state_changelog_topics=(TopicInfo("l"),),
            copartition_groups=(CopartitionGroup(source_topic_regex=(0,), repartition_source_topics=(0,)),),
        ),
    },
)

BYTES = [
    (
        streams_epoch_record("g", 3, -7, 2, CONFIGS),
        f"0011 {GROUP}",
        "0000 00000003 fffffffffffffff9 02 00 04 00000002 01 42 03 156e756d2e7374616e6462792e7265706c69636173 02 31 00"
        " 1b7261636b2e61776172652e61737369676e6d656e742e74616773 0d7a6f6e652c636c7573746572 00",
    ),
    (streams_epoch_record("g", 1, 0, -1, {}), f"0011 {GROUP}", "0000 00000001 0000000000000000 00"),
    (
        streams_epoch_record("g", 3, -7, 2, {}, 2, 1),
        f"0011 {GROUP}",
        "0000 00000003 fffffffffffffff9 03 00 04 00000002 02 04 00000002 03 04 00000001",
    ),
    (
        streams_target_epoch_record("g", 3, 0x1A1FBEA1785),
        f"0014 {GROUP}",
        "0000 00000003 01 00 08 000001a1fbea1785",
    ),
    (
        streams_target_record("g", "m", TARGET),
        f"0015 {MEMBER}",
        "0000 03 0230 02 00000001 00 0231 03 00000000 00000002 00 02 0231 02 00000001 00 02 0232 02 00000005 00 00",
    ),
    (
        streams_member_record("g", TOLD),
        f"0013 {MEMBER}",
        "0000 0269 0272 0263 0b2f3132372e302e302e31 000493e0 00000002 0270 01 0268 c350 00"
        " 03 08636c7573746572 036331 00 057a6f6e65 0261 00 00",
    ),
    (streams_member_record("g", PLAIN), f"0013 {MEMBER}", "0000 00 00 01 01 ffffffff ffffffff 01 ff 01 00"),
    (
        streams_current_assignment_record("g", TOLD),
        f"0016 {MEMBER}",
        "0000 00000004 00000003 02"
        " 02 0230 03 00000000 00000001 01 00 09 03 00000003 00000004"
        " 02 0231 03 00000000 00000001 00"
        " 02 0232 02 00000005 00"
        " 02 0231 02 00000002 01 00 05 02 00000002"
        " 02 0230 02 00000003 00"
        " 02 0230 02 00000004 00 00",
    ),
    (
        streams_current_assignment_record("g", PLAIN),
        f"0016 {MEMBER}",
        "0000 00000000 00000000 01 01 01 01 01 01 01 00",
    ),
    (
        streams_topology_record("g", TOPOLOGY),
        f"0017 {GROUP}",
        "0000 00000002 03"
        " 0230 03 0261 0262 01 01 02 0272 01 02 03 0000 0001 01 01 00 00"
        " 0231 01 02 04782e2a 02 026c 00000000 0000 01 00 01"
        " 02 0272 00000003 0001 02 0f636c65616e75702e706f6c696379 0764656c657465 00 00"
        " 02 01 02 0000 02 0000 00 00 00",
    ),
]


def of_streams(key: bytes, value: bytes | None) -> StreamsGroupRecord:
    return decode_modern_record(
        StreamsGroupRecord, STREAMS_MESSAGES, int.from_bytes(key[:2], "big"), key, value
    )


@pytest.mark.parametrize(("record", "key", "value"), BYTES)
def test_records_are_written_as_kafka_writes_them(record: StreamsGroupRecord, key: str, value: str) -> None:
    assert [None if part is None else part.hex() for part in encode_record(record)] == [
        key.replace(" ", ""),
        value.replace(" ", ""),
    ]


@pytest.mark.parametrize(("record", "key", "value"), BYTES)
def test_records_are_read_as_kafka_wrote_them(record: StreamsGroupRecord, key: str, value: str) -> None:
    assert of_streams(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_a_topology_is_the_same_after_its_record() -> None:
    assert topology_of(streams_topology_record("g", TOPOLOGY).value) == TOPOLOGY


def test_tasks_are_the_same_after_their_records() -> None:
    target = streams_target_record("g", "m", TARGET).value
    assert (
        TasksTuple(
            tasks_of(target.active_tasks), tasks_of(target.standby_tasks), tasks_of(target.warmup_tasks)
        )
        == TARGET
    )
    current = streams_current_assignment_record("g", TOLD).value
    assert tasks_with_epochs_of(current.active_tasks, 9) == TOLD.assigned.active
    assert tasks_of(current.standby_tasks_pending_revocation) == TOLD.pending_revocation.standby


@pytest.mark.parametrize("epochs", [None, [], [1], [1, 2, 3]])
def test_without_epochs_that_fit_a_task_has_the_epoch_of_its_member(epochs: list[int] | None) -> None:
    value = streams_current_assignment_record("g", TOLD).value
    value.active_tasks[0].assignment_epochs = epochs
    assert tasks_with_epochs_of(value.active_tasks, 9) == {"0": {0: 9, 1: 9}}


def test_a_subtopology_is_told_once() -> None:
    value = streams_topology_record("g", TOPOLOGY).value
    value.subtopologies.append(value.subtopologies[0])
    with pytest.raises(ValueError, match="'0' is there twice"):
        topology_of(value)


def test_a_topology_has_an_epoch() -> None:
    value = streams_topology_record("g", TOPOLOGY).value
    value.epoch = -1
    with pytest.raises(ValueError, match="epoch is -1"):
        topology_of(value)


def test_tombstones_come_in_the_order_in_which_kafka_can_read_them() -> None:
    def types(records: object) -> list[tuple[int, str]]:
        return [(record.key.API_KEY, getattr(record.key, "member_id", "")) for record in records]  # type: ignore[attr-defined]

    assert types(streams_member_tombstones("g", "m")) == [(22, "m"), (21, "m"), (19, "m")]
    assert types(streams_group_tombstones("g", ["m", "n"])) == [
        (22, "m"),
        (22, "n"),
        (21, "m"),
        (21, "n"),
        (20, ""),
        (19, "m"),
        (19, "n"),
        (17, ""),
        (23, ""),
    ]


def test_a_record_of_type_18_is_passed_over_as_kafka_does() -> None:
    assert decode_record(bytes.fromhex("0012 0001 67"), b"\0\0\0") is None


def test_another_version_of_a_value_fails_the_load() -> None:
    with pytest.raises(LoadFailure):
        of_streams(bytes.fromhex(f"0011 {GROUP}"), bytes.fromhex("0001 00000001 0000000000000000 00"))
