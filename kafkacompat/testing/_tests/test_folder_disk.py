"""The disk in a folder beside the real one: the same calls give the same results and errors. What only it can do: copies, another
clock, a life beyond a process."""

from __future__ import annotations

import errno
import pickle
import shutil
from pathlib import Path

import pytest

from kafkacompat.testing.folder_disk import FolderDisk, new_folder


@pytest.fixture
def disk(tmp_path: Path) -> FolderDisk:
    disk = FolderDisk(new_folder(str(tmp_path)), lambda: 5)
    disk.make_directory("/d/e")
    disk.open("/d/e/f", create=True).write_now(b"before")
    return disk


def test_a_copy_is_not_changed_by_what_is_written_later(disk: FolderDisk) -> None:
    copy = disk.copy()
    disk.open("/d/e/f").write_now(b" and after")
    assert copy.read_bytes("/d/e/f") == b"before"
    copy.open("/d/e/f").truncate(2)
    assert copy.read_bytes("/d/e/f") == b"be"
    disk.close()
    assert not disk.exists("/d")
    assert copy.exists("/d/e/f")


def test_another_process_finds_what_was_written(disk: FolderDisk) -> None:
    disk.lock("/d/.lock")
    other = pickle.loads(pickle.dumps(disk))  # noqa: S301
    assert other.read_bytes("/d/e/f") == b"before"
    other.lock("/d/.lock")


def test_files_are_as_old_as_its_clock_says(disk: FolderDisk, tmp_path: Path) -> None:
    assert disk.modified_ms("/d/e/f") == 5
    later = disk.copy(lambda: 9)
    assert later.modified_ms("/d/e/f") == 5
    later.open("/d/e/f").write_now(b"x")
    later.write_atomic("/d/g", b"y")
    assert (later.modified_ms("/d/e/f"), later.modified_ms("/d/g")) == (9, 9)
    later.open("/d/e/f").truncate(1)
    later.open("/d/h", create=True)
    assert later.modified_ms("/d/h") == 9


def test_a_lock_is_one_nodes_until_its_process_ends(disk: FolderDisk) -> None:
    lock = disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    lock.release()
    disk.lock("/d/.lock")
    disk.process_ended()
    disk.lock("/d/.lock")


def test_a_copy_for_which_there_is_no_room_leaves_nothing(
    disk: FolderDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_atomic("/a", b"x")

    def refused(source: str, target: str, **_: object) -> None:
        shutil.copy(f"{source}/a", target)
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr(shutil, "copytree", refused)
    before = sorted(Path(disk.folder).parent.iterdir())
    with pytest.raises(OSError, match="No space left"):
        disk.copy()
    assert sorted(Path(disk.folder).parent.iterdir()) == before
