"""Batches in a coordinator's partition that are small on disk and expand to much: loaded in pieces, or refused."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandWorkers
from kafkacompat.coordinator import core
from kafkacompat.coordinator._tests.clients import fetch
from kafkacompat.coordinator._tests.kit import LeadingCoordinator, Partitions, image_of
from kafkacompat.coordinator._tests.test_runtime import batch, pair
from kafkacompat.coordinator.loading import AT_ONCE_BYTES, LARGE_VALUE_BYTES, LEGACY_AT_ONCE_BYTES
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.group.records import GroupMetadataRecord, encode_record
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition, partition_for_key
from kafkacompat.ports import WorkersBusy
from kafkacompat.records import compression
from kafkacompat.records._tests.bombs import batch_of_body, record
from kafkacompat.records._tests.test_batch import legacy_message
from kafkacompat.records.batch import MAGIC_POSITION, build_batch
from kafkacompat.records.record import Record, append_varint
from kafkacompat.tasks import TURN_COST
from kafkacompat.txn.transaction_state_manager import (
    Environment,
    TransactionSettings,
    TransactionStateManager,
)
from kafkacompat.wire.codec import encode
from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from kafkacompat.wire.messages.transaction_log_key import TransactionLogKey
from kafkacompat.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

SPREAD = 3
"""Partitions of the offsets topic."""


def loading_world(
    logs: dict[int, list[bytearray]], count: int = 1
) -> tuple[LeadingCoordinator, HandWorkers, list[Shard]]:
    """A world whose shards load these batches, with workers that wait."""
    partitions = Partitions()
    for index, batches in logs.items():
        log = partitions.log_of(TopicPartition(OFFSETS_TOPIC, index))
        for each in batches:
            if each[MAGIC_POSITION] == 2:
                log.append(each)
            else:
                log.append_as_follower(each, 0)
        log.set_high_watermark(log.log_end_offset)
    world = LeadingCoordinator(partitions=partitions, count=count)
    world.coordinator.stop()
    world.workers = threads = HandWorkers()
    world.coordinator = world._make()
    world.coordinator.on_image(image_of([], offset=-1), world.image)
    return world, threads, list(world.coordinator._shards)


def large(*offsets: int, group: str = "g") -> bytearray:
    """Commits, and a record of zeros of an unknown kind, which expands to more than is decompressed in one step."""
    zeros = Record(len(offsets), 1_000, b"\0\x63", bytes(AT_ONCE_BYTES))
    commits = [Record(at, 1_000, *pair(offset, group=group)) for at, offset in enumerate(offsets)]
    return build_batch([*commits, zeros], compression=compression.ZSTD)


def test_headers_in_a_log_are_not_even_looked_at() -> None:
    key, value = pair(7)
    assert value is not None
    inside = bytearray(b"\0\0\0")
    for part in (key, value):
        append_varint(inside, len(part))
        inside += part
    append_varint(inside, 10_000_000)  # the headers that are announced do not follow
    world, _, _ = loading_world({0: [batch_of_body(record(inside + b"\xff" * 10_000), compression.ZSTD)]})
    world.time.advance(0)
    assert fetch(world).committed_offset == 7


def test_a_batch_that_unfolds_to_much_is_opened_by_a_worker() -> None:
    world, threads, (shard,) = loading_world({0: [batch(pair(1)), large(5)]})
    world.time.advance(0)
    assert shard.state is ShardState.LOADING
    assert len(threads.submitted) == 1
    threads.run_one()
    world.time.advance(0)
    assert shard.state is ShardState.ACTIVE
    assert fetch(world).committed_offset == 5


def wrapped(magic: int, last_offset: int, *pairs: tuple[bytes | None, bytes | None]) -> bytearray:
    """A compressed message of an old format."""
    first = last_offset + 1 - len(pairs) if magic == 0 else 0
    inner = [legacy_message(magic, first + at, *each) for at, each in enumerate(pairs)]
    return bytearray(
        legacy_message(magic, last_offset, None, gzip.compress(b"".join(inner)), attributes=compression.GZIP)
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_are_loaded(magic: int) -> None:
    """An offsets topic that an older broker began. Its cleaner may have left such messages for years."""
    old = [
        bytearray(legacy_message(magic, 0, *pair(1, group="plain"))),
        wrapped(magic, 3, pair(1, group="deleted"), pair(1, group="newer"), pair(2, group="wrapped")),
        bytearray(legacy_message(magic, 4, *pair(None, group="deleted"))),
    ]
    world, _, (shard,) = loading_world({0: [*old, batch(pair(5, group="newer"))]})
    world.time.advance(0)
    assert shard.state is ShardState.ACTIVE
    offsets = {
        group: fetch(world, group=group).committed_offset
        for group in ("plain", "deleted", "newer", "wrapped")
    }
    assert offsets == {"plain": 1, "deleted": -1, "newer": 5, "wrapped": 2}


def test_an_old_message_that_unfolds_to_much_is_opened_by_a_worker() -> None:
    zeros = b"\0\x63", bytes(LEGACY_AT_ONCE_BYTES)
    world, threads, (shard,) = loading_world({0: [wrapped(1, 2, pair(7), zeros, pair(8, group="h"))]})
    world.time.advance(0)
    assert shard.state is ShardState.LOADING
    threads.run_one()
    world.time.advance(0)
    assert shard.state is ShardState.ACTIVE
    assert [fetch(world, group=group).committed_offset for group in ("g", "h")] == [7, 8]


def test_damage_inside_an_old_message_fails_its_partition() -> None:
    inner = bytearray(legacy_message(1, 0, *pair(1)))
    inner[-1] ^= 1
    damaged = legacy_message(1, 0, None, gzip.compress(inner), attributes=compression.GZIP)
    world, _, (shard,) = loading_world({0: [bytearray(damaged)]})
    world.time.advance(0)
    assert shard.state is ShardState.FAILED


def test_one_large_batch_of_a_coordinator_is_open_at_a_time() -> None:
    names = {partition_for_key(f"g{at}", SPREAD): f"g{at}" for at in range(20)}
    logs = {index: [large(index, group=names[index])] for index in range(SPREAD)}
    world, threads, shards = loading_world(logs, SPREAD)
    for _ in range(SPREAD):
        world.time.advance(0)
        assert len(threads.submitted) == 1
        threads.run_one()
    world.time.advance(0)
    assert [shard.state for shard in shards] == [ShardState.ACTIVE] * SPREAD
    assert [fetch(world, group=names[index]).committed_offset for index in range(SPREAD)] == [0, 1, 2]


@pytest.mark.parametrize("opened", [False, True])
def test_a_shard_that_is_closed_meanwhile_gives_way(opened: bool) -> None:
    world, threads, shards = loading_world({index: [large(index)] for index in range(SPREAD)}, SPREAD)
    world.time.advance(0)
    if opened:
        threads.run_one()
    first = next(shard for shard in shards if shard.state is ShardState.LOADING)
    first.close()
    for _ in range(SPREAD):
        if threads.submitted:
            threads.run_one()
        world.time.advance(0)
    assert sorted(shard.state.value for shard in shards) == ["active", "active", "closed"]


def test_a_bomb_beyond_the_bound_fails_its_partition_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafkacompat.coordinator.loading.UNPACKED_BYTES_MAX", AT_ONCE_BYTES)
    names = {partition_for_key(f"g{at}", SPREAD): f"g{at}" for at in range(20)}
    logs = {0: [large(4)], 1: [batch(pair(3, group=names[1]))]}
    world, threads, shards = loading_world(logs, SPREAD)
    world.time.advance(0)
    threads.run_one()
    world.time.advance(0)
    states = {shard.partition: shard.state for shard in shards}
    assert states == {0: ShardState.FAILED, 1: ShardState.ACTIVE, 2: ShardState.ACTIVE}
    assert f"unfolds to more than {AT_ONCE_BYTES} bytes" in caplog.text
    assert fetch(world, group=names[1]).committed_offset == 3


def test_a_worker_that_has_no_room_is_asked_again() -> None:
    world, threads, (shard,) = loading_world({0: [large(5)]})
    world.time.advance(0)
    threads.submitted.pop(0)[1].fail(WorkersBusy("10000 jobs wait"))
    world.time.advance(1_000)
    threads.run_one()
    world.time.advance(0)
    assert shard.state is ShardState.ACTIVE
    assert fetch(world).committed_offset == 5


# Single very large values.


def costs(work: Any) -> tuple[list[int], Any]:
    found = []
    while True:
        try:
            found.append(next(work))
        except StopIteration as end:
            return found, end.value


def group_of(members: int) -> tuple[bytes, bytes]:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m0",
        current_state_timestamp=1,
        members=[
            MemberMetadata(
                member_id=f"m{at}",
                group_instance_id=None,
                client_id="c",
                client_host="h",
                rebalance_timeout=1,
                session_timeout=1,
                subscription=b"\0\0\0\0\0\0",
                assignment=b"",
            )
            for at in range(members)
        ],
    )
    key, body = encode_record(GroupMetadataRecord("g", value))
    assert body is not None
    return key, body


def test_a_large_group_is_taken_up_in_turns() -> None:
    members = 5_000
    key, value = group_of(members)
    assert len(value) > LARGE_VALUE_BYTES
    world, _, (shard,) = loading_world({0: [batch((key, value))]})
    turns = 0
    while shard.state is not ShardState.ACTIVE:
        assert world.time.step()
        turns += 1
    machine: Any = shard.machine
    assert len(machine.groups["g"].members) == members
    assert turns > members * 6 // TURN_COST


def test_a_group_of_more_members_than_are_loaded_fails_the_shard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(core, "LOADED_ELEMENTS_MAX", 4_999)
    world, _, (shard,) = loading_world({0: [batch(group_of(5_000))]})
    world.time.advance(0)
    assert shard.state is ShardState.FAILED
    assert "more than 4999 elements" in caplog.text


def test_a_transaction_of_very_many_partitions_is_decoded_in_turns() -> None:
    count = 100_000
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=list(range(count)))],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    machine = TransactionStateManager(
        Environment(TransactionSettings(), lambda: None, lambda: 2, lambda markers: None)
    )
    key = b"\0\0" + encode(TransactionLogKey(transactional_id="x"), 0)
    spent, known = costs(machine.load_large(key, b"\0\0" + encode(value, 0), 0, -1))
    assert known
    assert len(machine.transactions["x"].values.partitions) == count
    assert max(spent) <= core.STEP_COST
    assert sum(spent) > count // 10
