"""Large batches and snapshots reach the state machine in parts, one turn of the loop each, and in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft._tests.driver_support import Cluster, Node
from kafkacompat.raft.contracts import RECORDS_A_STEP
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.snapshot import SnapshotStore, batch_records
from kafkacompat.records.batch import build_batch, parse_header
from kafkacompat.records.record import Record


def numbered(count: int, name: str = "v") -> list[bytes]:
    return [b"%b-%d" % (name.encode(), index) for index in range(count)]


def propose(node: Node, values: list[bytes]) -> list[str]:
    outcome: list[str] = []

    def committed() -> None:
        node.machine.values += values
        outcome.append("committed")

    node.up.propose(PackedValues(values), committed, lambda: outcome.append("lost"))
    return outcome


def test_a_large_batch_is_applied_in_parts_and_published_as_one() -> None:
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    follower = cluster.followers()[0]
    follower.machine.events.clear()
    values = numbered(5 * RECORDS_A_STEP + 7)
    propose(leader, values)
    propose(leader, [b"after"])
    cluster.settle()
    cluster.run(20)
    assert follower.machine.values == [*values, b"after"] == leader.machine.values
    assert max(follower.machine.parts) <= RECORDS_A_STEP
    assert sum(follower.machine.parts) == 5 * RECORDS_A_STEP
    kinds = [each if isinstance(each, str) else each[0] for each in follower.machine.events]
    assert kinds[0] == "apply", "not published while a part of the batch is missing"


def test_an_election_amid_a_large_batch_waits_for_it() -> None:
    """The new leader is active only when it has applied everything committed before."""
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    values = numbered(20 * RECORDS_A_STEP)
    propose(leader, values)
    cluster.run(4)
    leader.kill()
    new = cluster.leader()
    assert new.machine.values == values
    propose(new, [b"next"])
    leader.start()
    cluster.settle()
    cluster.run(100)
    assert [node.machine.values for node in cluster.nodes.values()] == [[*values, b"next"]] * 3


def test_a_large_snapshot_is_installed_in_steps() -> None:
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    late = cluster.followers()[0]
    late.kill()
    values = numbered(10 * RECORDS_A_STEP)
    propose(leader, values)
    cluster.settle()
    for _ in range(2):
        # The log is dropped below the second newest snapshot.
        leader.write_snapshot()
        propose(leader, [b"x"])
        cluster.settle()
    assert leader.log.log_start_offset > 0
    late.start()
    cluster.settle()
    cluster.run(200)
    assert late.machine.values == [*values, b"x", b"x"] == leader.machine.values
    assert max(late.machine.parts) <= RECORDS_A_STEP
    assert any(each[0] == "snapshot" for each in late.machine.events if isinstance(each, tuple))
    outcome = propose(leader, [b"y"])
    cluster.settle()
    assert outcome == ["committed"]


def test_a_snapshot_that_was_overtaken_by_the_leaders_is_removed() -> None:
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    slow = cluster.followers()[0]
    propose(leader, numbered(10))
    cluster.settle()
    slow.workers.stopped = True
    slow.begin_snapshot()
    ((offset, epoch),) = {(slow.up.applied_offset, slow.machine.last_epoch)}
    slow.up._core.log.start = offset + 1  # as when a newer one has replaced the log
    slow.workers.stopped = False
    slow.workers.resume()
    cluster.run(5)
    assert not any(f"{offset:020d}" in path for path in slow.disk.files)
    assert slow.up._core.log.snapshots.keys() & {(offset, epoch)} == set()


def test_a_snapshot_that_the_leaders_own_took_along_is_gone_for_the_core_too() -> None:
    """It was written while the leader's snapshot was installed, which removes older ones, and the core hears of it
    afterwards. Otherwise it would offer a missing file, and halt when a follower requests it."""
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    slow = cluster.followers()[0]
    propose(leader, numbered(10))
    cluster.settle()
    own = OffsetAndEpoch(slow.up.applied_offset, slow.machine.last_epoch)
    newer = OffsetAndEpoch(own.offset + 5, own.epoch)
    slow.begin_snapshot()
    driver = slow.up
    driver._pump.hold([], None)  # as while the leader's is read
    cluster.run(50)
    path = driver._files.snapshots.path(own)
    assert path in slow.disk.files
    slow.disk.write_atomic(driver._files.snapshots.path(newer), b"the leader's")
    driver._files.snapshots.drop_older(newer)
    driver._pump.go_on(lambda: driver._core.log.restart_at(newer, 12))
    assert list(driver._core.log.snapshots) == [newer]


def test_a_snapshot_that_went_before_anybody_heard_that_it_is_written_halts_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.start()
    leader = cluster.settle()
    slow = cluster.followers()[0]
    propose(leader, numbered(10))
    cluster.settle()
    own = OffsetAndEpoch(slow.up.applied_offset, slow.machine.last_epoch)
    slow.begin_snapshot()
    driver = slow.up
    freeze = SnapshotStore.freeze

    def overtaken(store: SnapshotStore, *arguments: Any) -> int:
        size = freeze(store, *arguments)
        newer = OffsetAndEpoch(own.offset + 5, own.epoch)
        driver._files.snapshots.drop_older(newer)
        driver._core.log.start = newer.offset
        return size

    monkeypatch.setattr(SnapshotStore, "freeze", overtaken)
    cluster.run(5)
    assert not driver._pump.is_closed
    assert driver._files.snapshots.path(own) not in slow.disk.files


@given(st.lists(st.binary(max_size=9000), min_size=1, max_size=80))
def test_values_are_packed_as_records_are(values: list[bytes]) -> None:
    packed = PackedValues()
    for value in values:
        packed.add([value])
    batch = packed.batch(100, 7, 1_700_000_000_000)
    records = [Record(delta, 1_700_000_000_000, None, value) for delta, value in enumerate(values)]
    assert batch == build_batch(records, base_offset=100, leader_epoch=7)
    assert len(batch) == packed.size_bytes
    view = memoryview(batch)
    assert [each.value for each in batch_records(view, parse_header(view))] == values
