"""The disk in memory beside the real one: the same calls give the same results and errors. What only it can do: copies, an end."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress

import pytest

from kafkacompat.testing.memory_disk import MemoryDisk


def open_descriptors(kind: str = "/memfd:") -> list[str]:
    """What the open descriptors of a kind lead to. Threads of earlier tests may still close others."""
    gc.collect()
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [each for each in found if each.startswith(kind)]


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk(lambda: 5)
    disk.make_directory("/d/e")
    disk.open("/d/e/f", create=True).write_now(b"before")
    return disk


def test_a_copy_is_not_changed_by_what_is_written_later(disk: MemoryDisk) -> None:
    copy = disk.copy()
    disk.open("/d/e/f").write_now(b" and after")
    disk.remove_tree("/d")
    assert copy.read_bytes("/d/e/f") == b"before"
    copy.open("/d/e/f").truncate(2)
    assert copy.read_bytes("/d/e/f") == b"be"


def test_records_leave_by_sendfile(disk: MemoryDisk) -> None:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        assert disk.open("/d/e/f").send_to(sender.fileno(), 2, 4) == 4
        assert receiver.recv(10) == b"fore"


def test_a_closed_disk_has_no_descriptor_and_lets_nobody_read(disk: MemoryDisk) -> None:
    before = len(open_descriptors())
    file = disk.open("/d/e/f")
    disk.close()
    assert len(open_descriptors()) == before - 1
    with pytest.raises(OSError, match="closed"):
        file.read_cold(0, 1)
    with pytest.raises(OSError, match="closed"):
        file.write_now(b"x")


def test_an_empty_file_needs_no_descriptor() -> None:
    disk = MemoryDisk(lambda: 5)
    disk.make_directory("/d")
    before = len(open_descriptors())
    files = [disk.open(f"/d/{number}", create=True) for number in range(20)]
    assert [file.size() for file in files] == [0] * 20
    assert len(open_descriptors()) == before


def test_a_copy_needs_no_descriptor_for_what_nobody_opens(disk: MemoryDisk) -> None:
    before = len(open_descriptors())
    copies = [disk.copy().copy() for _ in range(20)]
    assert {each.read_bytes("/d/e/f", 2, 3) for each in copies} == {b"for"}
    assert {each.file_size("/d/e/f") for each in copies} == {6}
    assert len(open_descriptors()) == before
    file = copies[0].open("/d/e/f")
    assert (file.size(), file.read_cold(0, 6)) == (6, b"before")
    file.write_now(b" and after")
    assert copies[0].read_bytes("/d/e/f") == b"before and after"
    assert len(open_descriptors()) == before + 1


def test_a_lock_is_one_nodes_until_its_process_ends(disk: MemoryDisk) -> None:
    lock = disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    lock.release()
    disk.lock("/d/.lock")
    disk.process_ended()
    disk.lock("/d/.lock")


def test_a_file_is_as_old_as_the_clock_says(disk: MemoryDisk) -> None:
    assert disk.modified_ms("/d/e/f") == 5
    disk.set_modified_ms("/d/e/f", 3)
    assert disk.copy().modified_ms("/d/e/f") == 3
