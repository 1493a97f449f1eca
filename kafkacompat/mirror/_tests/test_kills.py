"""A mirror's node is killed, or loses power, around each operation on its disk, and the source's answers are damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.log import unified_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.mirror._tests.test_following import (
    FIRST_EPOCH,
    Mirror,
    answer_with_partition,
    bytes_of,
    elect,
    produce,
    source_with,
    stamped,
)
from kafkacompat.mirror.following import Outcome
from kafkacompat.partition._tests.cluster import T0, Cluster, values_of
from kafkacompat.partition._tests.kit import batch_of
from kafkacompat.ports import IndexesRebuilt
from kafkacompat.records.batch import iterate_batches
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import EpochEndOffset, PartitionData

Act = Callable[[Mirror], None]


def with_records() -> Mirror:
    source = source_with(b"a", b"b")
    elect(source, 2)
    produce(source, b"c")
    return Mirror(source)


def behind_an_unclean_election() -> Mirror:
    """The mirror has a record that the source has lost."""
    source = source_with(b"a")
    mirror = Mirror(source)
    source.cut.add(frozenset((1, 2)))
    for value in (b"lost", b"lost too"):
        produce(source, value)
    source.settle(60_000)
    mirror.follow()
    assert mirror.log().log_end_offset == 3
    source.change(isr=(2,))
    elect(source, 2)
    produce(source, b"b")
    return mirror


def with_open_transactions() -> Mirror:
    source = source_with(b"a")
    add_transactions(source)
    mirror = Mirror(source)
    mirror.follow()
    assert (mirror.log().log_end_offset, mirror.log().last_stable_offset) == (4, 1)
    return mirror


def add_transactions(source: Cluster) -> None:
    node = source.leader()
    for offset in (1, 2, 3):
        batch = batch_of(
            b"open", producer_id=offset, producer_epoch=4, base_sequence=0, is_transactional=True
        )
        node.log().append_as_follower(stamped(batch, offset, 0), 0)
    node.manager.wakeups.appended(node.manager.by_name[T0])
    source.settle()


def follow(mirror: Mirror) -> None:
    mirror.follow()


def stop(mirror: Mirror) -> None:
    mirror.put_state("stopped")


def disks_at_each_operation(made: Callable[[], Mirror], act: Act, *, power: bool) -> list[MemoryDisk]:
    """What the node finds when it starts again."""
    mirror = made()
    disk = mirror.nodes[1].disk
    found: list[MemoryDisk] = []

    def keep(operation: str, path: str) -> None:
        if operation not in ("open", "read"):
            found.append(disk.lose_power(kept=("/data",)) if power else disk.copy())

    disk.refuse = keep
    act(mirror)
    disk.refuse = None
    keep("stop", "")
    return found


@pytest.fixture(autouse=True)
def markers_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unified_log, "MARKERS_AT_ONCE", 2)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize(
    ("made", "act"),
    [(with_records, follow), (behind_an_unclean_election, follow), (with_open_transactions, stop)],
)
def test_a_mirror_goes_on_wherever_its_node_is_killed(
    made: Callable[[], Mirror], act: Act, power: bool
) -> None:
    disks = disks_at_each_operation(made, act, power=power)
    assert len(disks) > 2
    for disk in disks:
        mirror = made()
        mirror.kill(1)
        mirror.nodes[1].disk = disk
        if act is stop:
            mirror.put_state("stopped")
        mirror.restart(1)
        mirror.settle()
        if act is follow:
            mirror.follow()
            assert bytes_of(mirror.log()) == bytes_of(mirror.source.leader().log())
        else:
            check_taken_over(mirror)


def check_taken_over(mirror: Mirror) -> None:
    log = mirror.log()
    assert log.last_stable_offset == log.log_end_offset
    headers = list(iterate_batches(bytes_of(log)))
    markers = [each for each in headers if each.is_control]
    started = [each for each in headers if not each.is_control and each.producer_id >= 0]
    # What the power loss has taken is not aborted.
    assert sorted(each.producer_id for each in markers) == [each.producer_id for each in started]
    assert all(each.leader_epoch >= FIRST_EPOCH for each in markers)
    epochs = [each.leader_epoch for each in headers]
    assert epochs == sorted(epochs)
    end = log.log_end_offset
    produce(mirror, b"own", producer_id=1, producer_epoch=0, base_sequence=0)
    assert log.log_end_offset == end + 1


def test_a_disk_that_is_full_within_the_markers_ends_no_transaction_twice() -> None:
    mirror = with_open_transactions()
    disk = mirror.nodes[1].disk
    disk.failing = ".log"
    stop(mirror)
    disk.failing = None
    mirror.kill(1)
    mirror.restart(1)
    mirror.settle()
    check_taken_over(mirror)


def test_a_mirror_that_is_stopped_on_a_full_disk_takes_no_records_before_the_transactions_are_ended() -> None:
    """This cluster gives out the ids of the source's producers. A batch must not be taken for a duplicate of theirs."""
    mirror = with_open_transactions()
    disk = mirror.nodes[1].disk
    disk.failing = ".log"
    stop(mirror)
    early = batch_of(b"early", producer_id=1, producer_epoch=4, base_sequence=0)
    result = mirror.leader().manager.append(T0, early, -1, 13, False)
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    disk.failing = None
    mirror.settle()
    check_taken_over(mirror)


@pytest.mark.parametrize("by", ["stop", "election"])
@pytest.mark.parametrize(
    "problem", [IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR, "indexes are being rebuilt"), MemoryError()]
)
def test_a_mirror_whose_transactions_cannot_be_ended_now_ends_them_later(
    problem: Exception, by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = with_open_transactions()
    problems = [problem, problem, problem]
    end_mirror = UnifiedLog.end_mirror

    def refused_thrice(log: UnifiedLog, first_epoch: int, leader_epoch: int) -> bool:
        if problems:
            raise problems.pop()
        return end_mirror(log, first_epoch, leader_epoch)

    monkeypatch.setattr(UnifiedLog, "end_mirror", refused_thrice)
    if by == "election":
        mirror.log_config = replace(mirror.log_config, mirror_state="stopped")
        mirror.nodes[1].log().config = mirror.log_config
        mirror.change(leader_epoch=FIRST_EPOCH + 1)
        mirror.publish()
    else:
        stop(mirror)
    mirror.settle()
    assert not problems
    check_taken_over(mirror)
    told = [each for each in caplog.messages if "cannot be ended now" in each]
    assert len(told) == 1


def test_a_mirror_that_begins_on_a_full_disk_follows() -> None:
    """Nobody would tell it again when there is room."""
    mirror = Mirror(source_with(b"a"))
    mirror.follow()
    stop(mirror)
    told: list[bool] = []
    hosted: Any = mirror.leader().manager.hosted
    hosted.mirroring = SimpleNamespace(
        role_taken=lambda core: told.append(core.is_read_only), gone=lambda core: None
    )
    mirror.nodes[1].disk.failing = "leader-epoch-checkpoint"
    mirror.put_state("mirroring")
    assert told[-1:] == [True]


def damaged(records: bytes) -> list[bytes]:
    """Cut at each place of the first batch, with each of its first bytes changed, twice, and from its middle on."""
    size = next(iter(iterate_batches(records))).size
    cuts = [records[:at] for at in range(size)]
    flips = [records[:at] + bytes([records[at] ^ 0xFF]) + records[at + 1 :] for at in range(size)]
    lengths = [
        records[:8] + length.to_bytes(4, "big", signed=True) + records[12:]
        for length in (-1, 0, 1, 48, 49, 2**31 - 1, -(2**31))
    ]
    return [*cuts, *flips, *lengths, records * 2, records[size // 2 :], b"\xff" * 100]


def test_damaged_answers_add_nothing_that_the_source_does_not_have() -> None:
    source = source_with(b"a", b"b")
    whole = bytes_of(source.leader().log())
    there = source.leader()
    for records in damaged(whole):
        mirror = Mirror(source)
        fetches = mirror.following()
        at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
        request = fetches.build(there.id, 0)
        assert request is not None
        response = answer_with_partition(mirror, there, request)
        response.responses[0].partitions[0].records = records
        outcome = Outcome()
        at_once(fetches.take_in_turns(there.id, response, 0, outcome))
        assert not outcome.bugs
        taken = bytes_of(mirror.log())
        # The first twelve bytes and the leader epoch are outside the crc.
        assert len(taken) <= len(whole)
        assert taken[61:] == whole[61 : len(taken)]
        mirror.time.advance(10_000)


@pytest.mark.parametrize(
    "answer",
    [
        PartitionData(high_watermark=-1, log_start_offset=-1),
        PartitionData(high_watermark=2**63 - 1, log_start_offset=-(2**63)),
        PartitionData(diverging_epoch=EpochEndOffset(epoch=2**31 - 1, end_offset=2**63 - 1)),
        PartitionData(diverging_epoch=EpochEndOffset(epoch=0, end_offset=-1)),
        PartitionData(error_code=12345),
        PartitionData(error_code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE),
        PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH),
        PartitionData(records=None),
    ],
)
def test_absurd_answers_delay_a_partition_at_most(answer: PartitionData) -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    produce(source, b"b")
    fetches, there = mirror.following(), source.leader()
    request = fetches.build(there.id, 0)
    assert request is not None
    response = answer_with_partition(mirror, there, request)
    response.responses[0].partitions = [answer]
    outcome = Outcome()
    at_once(fetches.take_in_turns(there.id, response, 0, outcome))
    assert not outcome.bugs
    for followed in [*outcome.truncated, *outcome.out_of_range]:
        fetches.resolved(followed)
    mirror.follow()
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"b"}
