"""The folder of a Parquet table on this machine's file system. Spark merges its data files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance.parquet import ROUNDS
from kafkacompat.pipeline.sink_log import LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASIDE: Final = ".maintenance"
_GLOB: Final = re.compile(r"[\\*?\[\]{}]")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a file as Java does, or give False if another process has it. A file system without locks gives False too."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pattern_of(path: Path) -> str:
    """Return the path as Spark reads it, whatever characters are in it."""
    return _GLOB.sub(r"\\\g<0>", str(path))


class LocalFolder:
    """A TableFolder. Nothing else in this process may lock the same lock file."""

    def __init__(self, root: Path, writers_lock: Path, session: Callable[[], SparkSession]) -> None:
        """writers_lock: the file that a run locks. session: starts Spark, or returns it."""
        self._root = root
        self._writers_lock = writers_lock
        self._session = session

    def clean(self) -> None:
        """Remove what a maintenance has begun to write that was killed. Only one may be at work."""
        for path in [*(self._root / ROUNDS).glob(".*"), *(self._root / LOG).glob(f".*{ASIDE}")]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def names(self, folder: str) -> list[str]:
        """As in TableFolder."""
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    def read(self, path: str) -> str | None:
        """As in TableFolder."""
        try:
            return (self._root / path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """As in TableFolder."""
        target = self._root / path
        # Spark and `sink_log` take names that begin with a dot for no file of the log.
        aside = target.with_name(f".{target.name}{ASIDE}")
        target.parent.mkdir(exist_ok=True)
        aside.write_text(text)
        if target.exists():
            shutil.copymode(target, aside)
        sync(aside)
        aside.replace(target)
        sync(target.parent)

    def remove(self, path: str) -> None:
        """As in TableFolder."""
        self._inside(path).unlink(missing_ok=True)

    def merge(self, sources: Sequence[str], made: str) -> tuple[int, int]:
        """As in TableFolder."""
        session = self._session()
        aside = self._root / ROUNDS / f".{Path(made).name}"
        shutil.rmtree(aside, ignore_errors=True)
        paths = [pattern_of(self._inside(source)) for source in sources]
        strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "mergeSchema": "true"}
        rows = session.read.options(**strict).parquet(*paths)
        rows.coalesce(1).write.option("compression", "snappy").parquet(str(aside))
        (written,) = aside.glob("part-*.parquet")
        counts = rows.count(), session.read.parquet(pattern_of(written)).count()
        if counts[0] != counts[1]:
            raise PipelineFailed(f"{self._root / made}: {counts[0]} rows became {counts[1]}")
        moved = self._move(written, self._inside(made))
        shutil.rmtree(aside)
        return moved

    def adopt(self, aside: str, place: str) -> tuple[int, int]:
        """As in TableFolder."""
        target = self._inside(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in target.parent.parents:
            sync(folder)
            if folder == self._root:
                break
        return self._move(self._inside(aside), target)

    def alone(self) -> contextlib.AbstractContextManager[bool]:
        """As in TableFolder."""
        return locked(self._writers_lock)

    def _move(self, written: Path, target: Path) -> tuple[int, int]:
        sync(written)
        written.replace(target)
        sync(target.parent)
        status = target.stat()
        return status.st_size, status.st_mtime_ns // 1_000_000

    def _inside(self, path: str) -> Path:
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise PipelineFailed(f"{path} is not below {self._root}")
        return self._root / path
