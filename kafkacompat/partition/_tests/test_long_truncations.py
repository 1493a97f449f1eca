"""Before a log is truncated, what producers have written since the last snapshot is read with the loop in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.cluster import T0, Cluster, FakeChannel
from kafkacompat.partition._tests.kit import PIECE, replayed_in_pieces, write_as_producer
from kafkacompat.partition._tests.test_followers import answer, followed
from kafkacompat.partition._tests.test_moves import NAME, A, Disks
from kafkacompat.partition.following import Fetched
from kafkacompat.partition.list_offsets import LATEST
from kafkacompat.partition.replica_alter_log_dirs_manager import ASSIGNED_POLL_MS
from kafkacompat.wire.messages.fetch_response import EpochEndOffset
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

COUNT = 10 * PIECE


def longest(read: list[int], work: Any) -> int:
    """The most batches that a work reads in one piece."""
    most = before = len(read)
    for _ in work:
        most, before = max(most, len(read) - before), len(read)
    return max(most, len(read) - before)


def test_a_follower_reads_what_producers_wrote_in_pieces_before_it_truncates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (core,), fetches = followed()
    write_as_producer(core.log, COUNT)
    fetches.build(0)
    read = replayed_in_pieces(monkeypatch)
    outcome = Fetched.nothing()
    told = answer(core, diverging_epoch=EpochEndOffset(epoch=0, end_offset=COUNT - 1))
    assert longest(read, fetches.take_in_turns(told, 0, outcome)) <= PIECE
    assert read == list(range(COUNT - 1))
    assert core.log.log_end_offset == COUNT - 1
    assert [each.core for each in outcome.truncated] == [core]
    assert [each.last_sequence for each in core.log.active_producers()] == [COUNT - 2]


@pytest.mark.parametrize("again", [False, True])
def test_a_partition_that_is_taken_out_meanwhile_is_not_truncated(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lead now."""
    (core,), fetches = followed()
    write_as_producer(core.log, COUNT)
    fetches.build(0)
    replayed_in_pieces(monkeypatch)
    outcome = Fetched.nothing()
    told = answer(core, diverging_epoch=EpochEndOffset(epoch=0, end_offset=COUNT - 1))
    work = fetches.take_in_turns(told, 0, outcome)
    next(work)
    fetches.remove(core)
    if again:
        fetches.add(core)
    for _ in work:
        pass
    assert core.log.log_end_offset == COUNT
    assert (outcome.truncated, outcome.out_of_range, outcome.notes) == ([], [], [])
    assert (fetches.build(0) is not None) == again


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_follower_beyond_its_leaders_end_reads_in_pieces_too(
    is_removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster((1, 2))
    cluster.settle()
    node = cluster.nodes[2]
    (fetcher,) = node.replication._fetchers.values()
    (waiting,) = fetcher.fetches.partitions.values()
    log = waiting.core.log
    write_as_producer(log, COUNT)
    waiting.resolving = True

    def request(*_: Any) -> Deferred[Any]:
        there = ListOffsetsPartitionResponse(partition_index=T0.partition, offset=COUNT - 1)
        return Deferred.of(
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[there])])
        )

    monkeypatch.setattr(FakeChannel, "request", request)
    read = replayed_in_pieces(monkeypatch)
    work: Any = fetcher._fetch_offsets([waiting], LATEST)
    if is_removed:
        work.send(None)
        fetcher.fetches.remove(waiting.core)
    assert longest(read, work.__await__()) <= PIECE
    assert log.log_end_offset == COUNT - 1 + is_removed


@pytest.mark.parametrize("end", [COUNT - 1, 5])
def test_a_copy_reads_in_pieces_before_it_is_cut_back(
    end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks(tmp_path)
    disks.publish(A)
    write_as_producer(disks.log(), COUNT)
    disks.placement.alter(NAME, disks.path("b"))
    disks.run()
    future = disks.logs.futures.logs[NAME]
    assert future.log_end_offset == COUNT
    disks.log().truncate_to(end)
    if end == 5:
        disks.publish(A, leader_epoch=3, partition_epoch=3)
        disks.append(COUNT)
    taken: list[bool] = []
    real = UnifiedLog.truncate_to

    def truncate_to(log: UnifiedLog, offset: int, now_ms: int = 0, producers: Any = None) -> None:
        taken.append(producers is not None and producers[:2] == (log._basis(), offset))
        real(log, offset, now_ms, producers)

    monkeypatch.setattr(UnifiedLog, "truncate_to", truncate_to)
    replayed_in_pieces(monkeypatch)
    disks.time.advance(ASSIGNED_POLL_MS)
    disks.run()
    assert taken == [True]
    assert future.log_end_offset == disks.log().log_end_offset
