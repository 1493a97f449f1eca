"""Shards: loading Kafka's logs, gained and lost leadership, refusals, timers."""

from __future__ import annotations

import base64
import errno
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api.delete_groups import HANDLER as DELETE
from kafkacompat.api.find_coordinator import HANDLER as FIND
from kafkacompat.api.list_groups import HANDLER as LIST
from kafkacompat.coordinator._tests.clients import (
    beat,
    commit,
    fetch,
    form_group,
    join,
    member_id_of,
    sync,
)
from kafkacompat.coordinator._tests.kit import KeptLog, LeadingCoordinator, Partitions, image_of, topic_image
from kafkacompat.coordinator.shard import ShardState, ShardTimers
from kafkacompat.group._tests.test_offsets import delete_offsets, describe, listed
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_coordinator import CoordinatorSettings
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.group.records import OffsetAndMetadata, OffsetRecord, decode_record, encode_record
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition, partition_for_key
from kafkacompat.records.batch import build_batch, iterate_batches
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest

NAME = TopicPartition(OFFSETS_TOPIC, 0)
Pair = tuple[bytes, bytes | None]


def pair(offset: int | None, *, topic: str = "t", partition: int = 0, group: str = "g") -> Pair:
    value = None if offset is None else OffsetAndMetadata(offset=offset, commit_timestamp=1_000)
    return encode_record(OffsetRecord(group, topic, partition, value))


def batch(*pairs: Pair, producer: int = -1, compression: int = 0) -> bytearray:
    records = [Record(index, 1_000, key, value) for index, (key, value) in enumerate(pairs)]
    return build_batch(
        records,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
        compression=compression,
    )


def marker(producer: int, committed: bool) -> bytearray:
    return build_end_transaction_marker(
        committed=committed, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp_ms=1_000
    )


def world_of(*batches: bytearray) -> LeadingCoordinator:
    """A coordinator started over a log with these batches."""
    partitions = Partitions()
    log = partitions.log_of(NAME)
    for each in batches:
        log.append(each)
    log.set_high_watermark(log.log_end_offset)
    return LeadingCoordinator(partitions=partitions)


# Transactional commits in logs written by Kafka.


def test_offsets_of_an_open_transaction_are_not_seen() -> None:
    world = world_of(batch(pair(1)), batch(pair(5), pair(6, partition=1), producer=9))
    assert fetch(world).committed_offset == 1
    assert (fetch(world, stable=True).error_code, fetch(world, stable=True).committed_offset) == (
        E.UNSTABLE_OFFSET_COMMIT,
        -1,
    )
    assert fetch(world, partition=1).committed_offset == -1
    assert fetch(world, partition=2, stable=True).error_code == 0


@pytest.mark.parametrize(("committed", "offset"), [(True, 5), (False, 1)])
def test_the_marker_decides(committed: bool, offset: int) -> None:
    world = world_of(batch(pair(1)), batch(pair(5), producer=9), marker(9, committed))
    assert fetch(world, stable=True).committed_offset == offset


def test_the_commit_that_stands_later_in_the_log_wins() -> None:
    world = world_of(batch(pair(5), producer=9), batch(pair(7)), marker(9, True))
    assert fetch(world, stable=True).committed_offset == 7
    both = world_of(
        batch(pair(5), producer=9), batch(pair(6), producer=10), marker(10, True), marker(9, True)
    )
    assert fetch(both).committed_offset == 6


def test_a_tombstone_also_removes_what_is_pending() -> None:
    world = world_of(batch(pair(5), producer=9), batch(pair(None)), marker(9, True))
    assert fetch(world, stable=True).committed_offset == -1
    open_one = world_of(batch(pair(5), producer=9))
    assert delete_offsets(open_one, "t").topics[0].partitions[0].error_code == 0
    assert fetch(open_one, stable=True).error_code == 0


def test_an_open_transaction_keeps_its_group() -> None:
    world = world_of(batch(pair(5), producer=9))
    world.time.advance(600_000 * 3)
    assert [each.group_id for each in listed(world)] == ["g"]


def test_an_offset_past_its_retention_stays_while_a_transaction_writes_another() -> None:
    """Its tombstone would remove both, and the transaction's offset may still be committed."""
    week_ms = 7 * 86_400_000
    world = world_of(batch(pair(1)), batch(pair(5), producer=9))
    world.time.advance(week_ms + 1_200_000)
    world.log().append(marker(9, True))
    world.log().set_high_watermark(world.log().log_end_offset)
    world.restart()
    assert fetch(world).committed_offset == 5


# Groups of other kinds, and what cannot be read.


def key(record_type: int, group: str = "k", member: str | None = None) -> bytes:
    body = record_type.to_bytes(2, "big") + len(group).to_bytes(2, "big") + group.encode()
    return body if member is None else body + len(member).to_bytes(2, "big") + member.encode()


def deleted(world: LeadingCoordinator, group: str) -> int:
    return int(world.call(DELETE, DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)


def test_a_share_group_takes_no_commits() -> None:
    world = world_of(batch((key(11), bytes(15))))
    assert commit(world, 4, group="k") == E.GROUP_ID_NOT_FOUND


def test_unknown_types_are_passed_over_and_said(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(batch((b"\0\x63whatever", b"x"), pair(4)))
    assert fetch(world).committed_offset == 4
    assert "unknown type 99" in caplog.text


@pytest.mark.parametrize(
    "bad",
    [
        batch((b"\0\1\0", b"\0\0")),
        batch((pair(1)[0], b"\0\x63")),
        batch((key(17), b"\0\0"), (key(11), b"\0\0")),
        batch((key(3), b"\0\0")),
        batch((b"", b"")),
        build_batch([Record(0, 1_000, None, b"x")]),
    ],
)
def test_what_cannot_be_read_fails_the_shard_and_keeps_the_log(
    bad: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(batch(pair(1)), bad)
    end = world.log().log_end_offset
    assert commit(world, 2) == E.NOT_COORDINATOR
    assert listed(world) == []
    assert world.log().log_end_offset == end
    assert "cannot be loaded" in caplog.text


def test_a_flipped_bit_fails_the_shard() -> None:
    log = KeptLog()
    log.append(batch(pair(1)))
    log.flip_last_byte()
    partitions = Partitions()
    partitions.logs[NAME] = log
    assert commit(LeadingCoordinator(partitions=partitions), 2) == E.NOT_COORDINATOR


@pytest.mark.parametrize("compression", range(5))
def test_compressed_batches_are_loaded(compression: int) -> None:
    assert (
        fetch(
            world_of(batch(pair(4), pair(5, partition=1), compression=compression)), partition=1
        ).committed_offset
        == 5
    )


# Loading and leadership


def loading_world() -> LeadingCoordinator:
    world = world_of(*[batch(pair(index)) for index in range(50)])
    world.coordinator.stop()
    world.coordinator = world._make()
    world.coordinator.on_image(image_of([], offset=-1), world.image)
    return world


def test_a_join_is_told_what_is_wrong_with_it_before_who_coordinates_its_group() -> None:
    """As in Kafka, only that refusal names the member."""
    world = loading_world()
    wrong = join(world, "m", session=1)
    assert (wrong.error_code, wrong.member_id) == (E.INVALID_SESSION_TIMEOUT, "m")
    early = join(world, "m")
    assert (early.error_code, early.member_id) == (E.COORDINATOR_LOAD_IN_PROGRESS, "")


def test_requests_while_a_shard_loads() -> None:
    world = loading_world()
    assert commit(world, 1) == E.COORDINATOR_LOAD_IN_PROGRESS
    answer = world.call(LIST, ListGroupsRequest(), 5)
    assert (answer.error_code, answer.groups) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert join(world).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert beat(world, "m", 1) == E.NONE
    world.time.advance(0)
    assert fetch(world).committed_offset == 49


def test_a_log_that_changes_places_while_it_is_loaded_is_read_on_where_it_lies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its move to another directory ends at that moment."""
    world = loading_world()
    (shard,) = world.coordinator._shards
    old, moved = world.log(), KeptLog()
    for each in old.batches:
        moved.append(each)
    moved.set_high_watermark(moved.log_end_offset)

    def gone(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "renamed")

    monkeypatch.setattr(old, "read", gone)
    world.partitions.logs[TopicPartition(OFFSETS_TOPIC, 0)] = moved
    world.time.advance(0)
    assert shard.state is ShardState.ACTIVE
    assert fetch(world).committed_offset == 49


def test_a_topic_deleted_while_a_shard_loads_loses_its_offsets() -> None:
    world = loading_world()
    world.publish([world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]])
    world.time.advance(0)
    assert fetch(world).committed_offset == -1


def test_a_load_takes_as_many_steps_as_its_bound_asks_for() -> None:
    world = loading_world()
    (shard,) = world.coordinator._shards
    assert shard.loader is not None
    shard.loader.step_bytes = 200
    assert shard.state is ShardState.LOADING
    before, kept = world.log().reads, world.kept
    world.time.advance(0)
    assert world.log().reads - before == 50
    assert world.kept - kept == 50  # before the garbage collector examines all of it
    assert shard.state is ShardState.ACTIVE
    assert fetch(world).committed_offset == 49


def test_members_get_a_whole_session_after_a_restart() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2, session=10_000)
    world.time.advance(9_000)
    world.restart()
    world.time.advance(9_000)
    assert beat(world, first, 1) == E.NONE
    assert sync(world, first, 1).assignment == b"a0"
    world.time.advance(1_000)
    assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS
    assert beat(world, second, 1) == E.UNKNOWN_MEMBER_ID


def test_a_group_that_is_too_large_after_a_restart_starts_over() -> None:
    world = LeadingCoordinator()
    first, _ = form_group(world, 2)
    world.settings = type(world.settings)(group=GroupSettings(max_size=1))
    world.restart()
    assert beat(world, first, 1) == E.REBALANCE_IN_PROGRESS


def test_losing_leadership_answers_all_who_wait() -> None:
    world = LeadingCoordinator()
    ids = [member_id_of(world) for _ in range(2)]
    waiting = [join(world, each) for each in ids]
    moved = [topic_image(OFFSETS_TOPIC, 1, leader=2), world.image.topics["t"]]
    world.publish(moved)
    assert [each.result().error_code for each in waiting] == [E.NOT_COORDINATOR] * 2
    for answer in (commit(world, 1), beat(world, ids[0], 1), join(world).error_code):
        assert answer == E.NOT_COORDINATOR
    assert len(world.time.pending()) == 1
    world.publish([topic_image(OFFSETS_TOPIC, 1), *moved[1:]])
    world.time.advance(0)
    assert commit(world, 1) == E.NONE


def test_losing_leadership_answers_those_who_wait_for_a_plan_and_for_the_log() -> None:
    world = LeadingCoordinator()
    ids = [member_id_of(world) for _ in range(2)]
    waiting = [join(world, each) for each in ids]
    world.time.advance(6_000)
    follower = sync(world, ids[1], 1)
    world.partitions.held = True
    leader = sync(world, ids[0], 1, {})
    committing = commit(world, 1, group="other")
    assert waiting[0].done
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=2)])
    assert [follower.result().error_code, leader.result().error_code] == [E.NOT_COORDINATOR] * 2
    world.partitions.release(E.NOT_LEADER_OR_FOLLOWER)
    assert committing.result().topics[0].partitions[0].error_code == E.NOT_COORDINATOR


def test_a_group_that_cannot_be_written_does_not_exist() -> None:
    world = LeadingCoordinator()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    answer = join(world)
    assert (answer.error_code, answer.member_id) == (E.COORDINATOR_NOT_AVAILABLE, "")
    assert join(world, version=3).error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    assert listed(world) == []
    assert len(world.time.pending()) == 1


def test_a_log_that_is_not_there_yet_is_found_at_the_next_request() -> None:
    partitions = Partitions()
    partitions.led = False
    world = LeadingCoordinator(partitions=partitions)
    assert commit(world, 1) == E.NOT_COORDINATOR
    partitions.led = True
    assert commit(world, 1) == E.NONE


def test_nothing_is_served_before_the_start_and_after_the_stop() -> None:
    world = LeadingCoordinator()
    waiting = join(world, member_id_of(world))
    world.coordinator.stop()
    assert waiting.result().error_code == E.NOT_COORDINATOR
    assert not world.coordinator.is_active()
    assert commit(world, 1) == E.COORDINATOR_NOT_AVAILABLE
    assert beat(world, "m", 1) == E.COORDINATOR_NOT_AVAILABLE
    assert world.call(LIST, ListGroupsRequest(), 5).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert len(world.time.pending()) == 0


def test_empty_partitions_cost_little() -> None:
    world = LeadingCoordinator(count=50)
    shards = list(world.coordinator._shards)
    assert len(shards) == 50
    assert all(shard.state is ShardState.ACTIVE for shard in shards)
    assert len(world.time.pending()) == 1
    assert sum(sys.getsizeof(shard) for shard in shards) < 50_000


def test_shards_of_a_topic_made_just_now_do_not_ask_for_their_logs() -> None:
    world = LeadingCoordinator(count=50)
    world.publish([world.image.topics["t"]])
    world.partitions.logs.clear()
    world.publish([world.image.topics["t"], topic_image(OFFSETS_TOPIC, 50)])
    assert world.partitions.logs == {}
    assert commit(world, 1) == E.NONE
    assert list(world.partitions.logs) == [
        TopicPartition(OFFSETS_TOPIC, world.coordinator.partition_for("g"))
    ]


def test_every_operation_is_one_batch() -> None:
    world = LeadingCoordinator()
    form_group(world, 3)
    assert len(world.log().batches) == 2


# FindCoordinator


def find(world: LeadingCoordinator, *keys: str, kind: int = 0, version: int = 6) -> Any:
    request = FindCoordinatorRequest(key_type=kind)
    if version < 4:
        (request.key,) = keys
    else:
        request.coordinator_keys = list(keys)
    return world.call_to_the_end(FIND, request, version)


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(version: int) -> None:
    answer = find(LeadingCoordinator(), "g", version=version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "broker.example", 9092)
    assert found.error_message == ("NONE" if version < 4 else "")


def test_the_offsets_topic_is_asked_for_on_first_use() -> None:
    world = LeadingCoordinator()
    world.publish([world.image.topics["t"]])
    (answer,) = find(world, "g").coordinators
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (
        E.COORDINATOR_NOT_AVAILABLE,
        -1,
        "",
        -1,
    )
    old = find(world, "g", version=0)
    assert (old.error_code, old.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)
    assert world.auto_create.asked == [OFFSETS_TOPIC] * 2


def test_a_coordinator_without_a_leader_or_endpoint_is_not_named() -> None:
    world = LeadingCoordinator()
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=-1)])
    assert find(world, "g").coordinators[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=5)])
    assert find(world, "g").coordinators[0].error_code == E.COORDINATOR_NOT_AVAILABLE


def test_a_coordinator_on_a_broker_that_is_fenced_is_not_named() -> None:
    """The metadata may name such a broker for another moment, and a client sent to it would find no coordinator."""
    world = LeadingCoordinator()
    assert find(world, "g").coordinators[0].node_id == 1
    brokers = {1: replace(world.image.brokers[1], fenced=True)}
    world.image = replace(world.image, brokers=brokers)
    (answer,) = find(world, "g").coordinators
    assert (answer.error_code, answer.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("kind", [2, 3, -1])
def test_other_kinds_of_coordinators_are_refused(kind: int) -> None:
    (answer,) = find(LeadingCoordinator(), "x", kind=kind).coordinators
    assert (answer.error_code, answer.node_id, answer.key) == (E.INVALID_REQUEST, -1, "x")


def test_groups_lie_where_kafka_puts_them() -> None:
    world = LeadingCoordinator(count=50)
    commit(world, 1, group="facts-classic")
    assert world.log(46).log_end_offset == 1
    assert world.coordinator.partition_for("facts-consumer") == 20
    assert partition_for_key("facts-txg", 50) == 15


# Timers and settings


def test_a_timer_put_off_rings_once_at_the_later_time() -> None:
    time = HandTime()
    rung: list[tuple[int, int]] = []
    timers = ShardTimers(time, time, lambda operation: operation(time.ms))
    for delay in (100, 250, 200):
        timers.schedule(("a",), delay, lambda at: rung.append((0, at)))
    timers.schedule(("b",), 50, lambda at: rung.append((1, at)))
    timers.schedule(("b",), 20, lambda at: rung.append((2, at)))
    timers.schedule(("c",), 10, lambda at: rung.append((3, at)))
    timers.cancel(("c",))
    time.advance(1_000)
    assert rung == [(2, 20), (0, 200)]
    assert len(timers) == 0


def test_settings_have_kafkas_names() -> None:
    asked: dict[str, int] = {}

    class Numbers:
        def get_int(self, name: str) -> int:
            return asked.setdefault(name, 2 + len(asked))

        def get_list(self, name: str) -> tuple[str, ...]:
            return {"group.consumer.assignors": ("range",), "group.share.assignors": ("simple",)}[name]

        def get_string(self, name: str) -> str:
            return {"group.consumer.migration.policy": "Upgrade"}[name]

    settings = CoordinatorSettings.from_config(Numbers())  # type: ignore[arg-type]  # as much of it as is used
    consumer = settings.group.consumer
    assert consumer.max_size == asked["group.consumer.max.size"]
    assert (consumer.assignors, consumer.allows_upgrade, consumer.allows_downgrade) == (
        ("range",),
        True,
        False,
    )
    assert settings.group.offsets_retention_ms == asked["offsets.retention.minutes"] * 60_000
    assert settings.group.max_size == asked["group.max.size"]
    assert settings.load_step_bytes == asked["offsets.load.buffer.size"]


# Logs of an Apache Kafka 4.3.0 node, each one partition of its offsets topic.


def captured(name: str) -> LeadingCoordinator:
    data = base64.b64decode((Path(__file__).parent / "golden" / f"{name}.base64").read_text())
    return world_of(
        *[bytearray(data[each.position : each.position + each.size]) for each in iterate_batches(data)]
    )


def test_a_classic_group_of_kafkas_goes_on_where_it_was() -> None:
    world = captured("static_members")
    (group,) = describe(world, "s")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    members = {each.group_instance_id: each for each in group.members}
    assert {name: each.member_assignment for name, each in members.items()} == {"one": b"S1", "two": b"S2"}
    assert members["one"].client_host == "/127.0.0.1"
    assert beat(world, members["one"].member_id, 2, group="s", instance="one") == E.NONE
    back = join(world, group="s", instance="two")
    assert (back.generation_id, back.leader, back.error_code) == (2, members["one"].member_id, 0)


def test_a_consumer_group_of_kafkas_goes_on_where_it_was() -> None:
    world = captured("consumer_group")
    asked = [fetch(world, group="kip848", partition=index) for index in range(3)]
    stored = world.coordinator._shards.shard_for("kip848").machine
    assert isinstance(stored, GroupMetadataManager)
    assert stored.groups["kip848"].is_empty()
    assert sum(each.offset for each in stored.offsets.of_group("kip848")["t"].values()) == 3
    # This test's topic has another id than the topic of the committed offsets.
    assert [each.committed_offset for each in asked] == [-1, -1, -1]
    assert [(each.group_id, each.group_type, each.group_state) for each in listed(world)] == [
        ("kip848", "consumer", "Empty")
    ]
    assert deleted(world, "kip848") == E.NONE
    assert listed(world) == []


def test_a_share_group_of_kafkas_goes_on_where_it_was() -> None:
    world = captured("share_group")
    end = world.log().log_end_offset
    assert [(each.group_id, each.group_type, each.group_state) for each in listed(world)] == [
        ("sharers", "share", "Empty")
    ]
    assert join(world, group="sharers").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    world.time.advance(86_400_000 * 30)
    assert world.log().log_end_offset == end


def test_the_records_of_kafkas_share_group_are_written_as_kafka_wrote_them() -> None:
    world = captured("share_group")
    pairs = [
        (record.key, record.value)
        for batch_ in world.log().batches
        for header in iterate_batches(batch_)
        for _, record in records_of(batch_, header)
    ]
    assert pairs
    for key_, value in pairs:
        assert key_ is not None
        record = decode_record(key_, value)
        assert record is not None
        assert encode_record(record) == (key_, value)
