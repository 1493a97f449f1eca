"""A disk under faults: which operations fail, and that all others reach the disk behind it."""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

from kafkacompat.ports import SyncFailed
from kafkacompat.sim._tests.test_disks import CALLS
from kafkacompat.testing import faulty_disk
from kafkacompat.testing.faults import DISK_EFFECTS, Faults, Rule
from kafkacompat.testing.faulty_disk import FaultyDisk, FaultyFile, names_of_path
from kafkacompat.testing.memory_disk import MemoryDisk

LOG = "/kafka/orders-0/00000000000000000000.log"


def disk_of(faults: Faults, node: int = 1) -> FaultyDisk:
    disk = MemoryDisk(lambda: 0)
    disk.make_directory("/kafka")
    disk.make_directory("/kafka/orders-0")
    disk.make_directory("/d")
    for path in ("/d/f", "/d/g"):
        disk.open(path, create=True).write_now(b"text")
    return FaultyDisk(disk, faults, node)


@pytest.mark.parametrize(
    ("path", "topic", "partition"),
    [
        (LOG, "orders", 0),
        ("/kafka/a-b-12/leader-epoch-checkpoint", "a-b", 12),
        ("/kafka/a.b-3", "a.b", 3),
        ("/kafka/orders-1.0123456789abcdef0123456789abcdef-delete/0.log", "orders", 1),
        ("/kafka-1/orders-0/00000000000000000000.log", "orders", 0),
        ("/disk-2/kafka/orders-0.0123456789abcdef0123456789abcdef-future/", "orders", 0),
        ("/kafka/recovery-point-offset-checkpoint", None, None),
        ("/kafka/__cluster_metadata-0/quorum-state", "__cluster_metadata", 0),
    ],
)
def test_a_path_tells_the_partition(path: str, topic: str | None, partition: int | None) -> None:
    names = names_of_path(path)
    assert (names.get("topic"), names.get("partition")) == (topic, partition)


@pytest.mark.parametrize("call", sorted(CALLS))
def test_without_faults_each_operation_is_that_of_the_disk_behind(call: str) -> None:
    with_faults, plain = disk_of(Faults()), disk_of(Faults())._inner
    assert type(CALLS[call](with_faults)) in (type(CALLS[call](plain)), FaultyFile, tuple)


def test_a_full_disk_refuses_what_is_written() -> None:
    faults = Faults()
    disk = disk_of(faults)
    file = disk.open(LOG, create=True)
    full = faults.full_disk(times=None)
    for write in (
        lambda: file.write_now(b"x"),
        lambda: disk.open("/d/new", create=True),
        lambda: disk.write_atomic("/d/new", b""),
        lambda: disk.make_directory("/d/e"),
    ):
        with pytest.raises(OSError) as refused:
            write()
        assert refused.value.errno == errno.ENOSPC
    assert full.hits == 4
    assert file.read_cold(0, 1) == b""
    file.sync()
    full.remove()
    assert file.write_now(b"x") >= 0
    assert file.size() == 1


def test_a_fault_of_a_disk_names_node_topic_and_partition() -> None:
    faults = Faults()
    first, second = disk_of(faults, 1), disk_of(faults, 2)
    fault = faults.failed_sync(node=2, topic="orders", partition=0, times=None)
    first.open(LOG, create=True).sync()
    second.open("/d/f").sync()
    with pytest.raises(SyncFailed):
        second.open(LOG, create=True).sync()
    with pytest.raises(SyncFailed):
        second.sync_directory("/kafka/orders-0")
    with pytest.raises(SyncFailed):
        second.write_atomic("/kafka/orders-0/leader-epoch-checkpoint", b"")
    assert fault.hits == 3
    with pytest.raises(ValueError, match="no requests"):
        faults.full_disk(client_id="app")


def test_a_slow_disk_is_read_where_it_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    faults = Faults()
    disk = disk_of(faults)
    file = disk.open("/d/f")
    assert file.try_read(0, 4) == b"text"
    slow = faults.slow_disk(200, times=None)
    assert file.try_read(0, 4) is None
    assert slow.hits == 0
    assert file.read_cold(0, 4) == b"text"
    file.sync()
    file.write_now(b"more")
    assert slept == [0.2, 0.2]
    assert slow.hits == 2


async def test_a_slow_disk_does_not_hold_up_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    faults = Faults()
    disk = disk_of(faults)
    slow = faults.slow_disk(200)
    file = disk.open(LOG, create=True)
    file.sync()
    file.read_cold(0, 1)
    disk.write_atomic("/d/new", b"")
    disk.sync_directory("/d")
    assert (slow.hits, slept) == (0, [])


@pytest.mark.parametrize("effect", DISK_EFFECTS)
def test_each_effect_hits_some_operation(effect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty_disk, "may_be_held_up", lambda: True)
    faults = Faults()
    fault = faults.add(Rule(effect(**{each.name: 0 for each in fields(effect)}), times=None))
    for call in CALLS.values():
        with suppress(OSError):
            call(disk_of(faults))
    assert fault.hits > 0
