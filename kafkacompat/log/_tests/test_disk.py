"""Real files when a system call does less than requested: a short write, a read that must not wait."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkacompat.log import disk
from kafkacompat.log.disk import RealDisk

BEFORE = b"what was there"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "file"
    found.write_bytes(BEFORE)
    return found


@pytest.mark.parametrize("buffers", [(b"a batch",), (b"a batch", b" and more")])
def test_a_write_that_ends_early_fails_and_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, buffers: tuple[bytes, ...]
) -> None:
    """A disk writes what fits. Half a batch at the end would make the log unusable."""
    whole, calls = os.pwrite, []

    def shorter(fd: int, data: bytes | Sequence[bytes], offset: int) -> int:
        calls.append(data)
        return whole(fd, (data if isinstance(data, bytes) else data[0])[:3], offset)

    file = RealDisk().open(str(path))
    monkeypatch.setattr(os, "pwrite", shorter)
    monkeypatch.setattr(os, "pwritev", shorter)
    with pytest.raises(OSError) as failed:
        file.write_now(*buffers)
    assert len(calls) == 1
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, str(path))
    assert (file.size(), path.read_bytes()) == (len(BEFORE), BEFORE)
    monkeypatch.undo()
    assert file.write_now(b"!") == 1
    assert path.read_bytes() == BEFORE + b"!"
    file.close()


def test_many_buffers_are_written_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call takes a bounded number of buffers. The second call may find the disk full."""
    whole, calls = os.pwritev, []

    def full_at_last(fd: int, buffers: Sequence[bytes], offset: int) -> int:
        calls.append(len(buffers))
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "full")
        return whole(fd, buffers, offset)

    file = RealDisk().open(str(path))
    buffers = [b"%d," % number for number in range(disk._WRITE_LIMIT + 2)]
    monkeypatch.setattr(os, "pwritev", full_at_last)
    with pytest.raises(OSError, match="full"):
        file.write_now(*buffers)
    assert calls == [disk._WRITE_LIMIT, 2]
    assert path.read_bytes() == BEFORE
    monkeypatch.undo()
    assert file.write_now(*buffers) == sum(map(len, buffers))
    assert path.read_bytes() == BEFORE + b"".join(buffers)
    file.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EACCES, errno.ESTALE])
def test_a_disk_that_does_not_tell_whether_a_file_is_there_does_not_deny_it(
    path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is believed to be absent is not renamed, not read and not synced, and a start forgets a vote."""
    real = RealDisk()
    absent = [path.with_name("other"), path / "below", path.with_name("n" * 300)]
    path.with_name("leads nowhere").symlink_to(path.with_name("other"))
    assert real.exists(str(path))
    assert not any(map(real.exists, map(str, [*absent, path.with_name("leads nowhere")])))

    def refuse(*of_the_call: object, **options: object) -> os.stat_result:
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(OSError, match="refused") as refused:
        real.exists(str(path))
    monkeypatch.undo()
    assert refused.value.errno == number


@pytest.mark.parametrize("refused", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_no_read_can_be_tried_it_is_made(
    path: Path, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems do not support reads that fail instead of waiting. That is tried once."""
    asked = []

    def preadv(fd: int, buffers: Sequence[bytearray], offset: int, flags: int = 0) -> int:
        asked.append(flags)
        raise OSError(refused, "not here")

    file = RealDisk().open(str(path))
    monkeypatch.setattr(os, "preadv", preadv)
    assert file.try_read(5, 3) == BEFORE[5:8]
    assert file.try_read(5, 99) == BEFORE[5:]
    assert file.try_read(len(BEFORE), 1) == b""
    assert len(asked) == 1
    file.close()


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each producer snapshot has its own name, so an incomplete one would stay and use space for good."""
    whole = os.write

    def full_at_last(fd: int, data: bytes) -> int:
        if len(data) < 8:
            raise OSError(errno.ENOSPC, "full")
        return whole(fd, data[:3])

    monkeypatch.setattr(os, "write", full_at_last)
    with pytest.raises(OSError, match="full"):
        RealDisk().write_atomic(str(path), b"what is there then")
    assert (os.listdir(path.parent), path.read_bytes()) == ([path.name], BEFORE)


def test_a_disk_that_is_full_names_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is all that the operator sees at a start."""

    def full(*of_the_call: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    file = RealDisk().open(str(path))
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=re.escape(str(path))):
        file.write_now(b"a batch")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=re.escape(str(path))):
        RealDisk().write_atomic(str(path), b"a checkpoint")
    assert path.read_bytes() == BEFORE
    file.close()


def test_private_directories_and_files_are_private_whatever_a_killed_process_left(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made, real = tmp_path / "above" / "private", RealDisk()
        real.make_directory(str(made), private=True)
        assert [each.stat().st_mode & 0o777 for each in (made, made.parent)] == [0o700, 0o777]
        made.chmod(0o750)
        real.make_directory(str(made), private=True)
        assert made.stat().st_mode & 0o777 == 0o750
        (made / "file.tmp").write_bytes(b"left behind")
        (made / "frozen.tmp").touch(0o400)
        real.write_atomic(str(made / "frozen"), b"for ever", mode=0o400)
        real.write_atomic(str(made / "file"), b"secret", mode=0o600)
        real.write_atomic(str(made / "other"), b"told")
        modes = {each.name: each.stat().st_mode & 0o777 for each in made.iterdir()}
        assert modes == {"file": 0o600, "frozen": 0o400, "other": 0o644}
    finally:
        os.umask(before)
