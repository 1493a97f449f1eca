"""Files in folders on any file system that Spark knows, and locks in local ones. Knows nothing of what is in them.

A folder may be of this machine, of HDFS or of S3; Spark's own JVM reads and writes it, so that it is the one that Spark uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import monotonic as monotonic_s
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.session import is_jvm_gone, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_WAIT_S: Final = 15.0
"""The JVM of a run whose command was killed needs a moment to end, and holds its lock until then."""
LOCK_POLL_S: Final = 0.2


def _path(session: SparkSession, place: str) -> tuple[Any, Any]:
    """Hadoop's path and the file system that it is on."""
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())


def scheme_of(session: SparkSession, place: str) -> str:
    """Of the file system that Spark finds there; without a scheme of its own a place is on its default one."""
    _, system = _path(session, place)
    return str(system.getUri().getScheme())


def names_in(session: SparkSession, place: str) -> list[str]:
    """Names of the files in a folder; none where there is no folder."""
    path, system = _path(session, place)
    if not system.exists(path):
        return []
    return [str(status.getPath().getName()) for status in system.listStatus(path)]


def read_text(session: SparkSession, place: str) -> str | None:
    """The text of a file in UTF-8; None where there is no file."""
    path, system = _path(session, place)
    if not system.exists(path):
        return None
    stream = system.open(path)
    try:
        jvm: Any = session.sparkContext._jvm
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def remove(session: SparkSession, place: str) -> None:
    """Remove a file. One that is not there is no failure, and one that stays takes room only."""
    path, system = _path(session, place)
    system.delete(path, False)


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """PipelineFailed that says what was to be done, for whatever the JVM's files refuse."""
    try:
        yield
    except Exception as error:
        thrown = getattr(error, "java_exception", None)
        if thrown is None:
            raise
        raise PipelineFailed(f"{what}: {_said(thrown)}") from error


def _said(thrown: Any) -> str:
    """The words of a Java exception: its own or, where it has none, its name. Hadoop wraps those of the file system."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.getMessage() or thrown.getClass().getSimpleName())


def write_text(session: SparkSession, place: str, text: str) -> None:
    """Write a file whole: aside first, synced, then renamed, so that a death or a full disk leaves the old one or the new one.

    PipelineFailed when it cannot be written.
    """
    with _named(f"{place} cannot be written"):
        _write_text(session, place, text)


def _write_text(session: SparkSession, place: str, text: str) -> None:
    aside, system = _path(session, f"{place}.tmp")
    path, _ = _path(session, place)
    stream = system.create(aside, True)
    try:
        stream.write(bytearray(text.encode()))
        stream.hsync()
    finally:
        stream.close()
    jvm: Any = session.sparkContext._jvm
    gateway: Any = session.sparkContext._gateway
    hadoop = jvm.org.apache.hadoop.fs
    overwriting = gateway.new_array(hadoop.Options.Rename, 1)
    overwriting[0] = hadoop.Options.Rename.OVERWRITE
    qualified = (system.makeQualified(aside), system.makeQualified(path))
    context: Any = session.sparkContext
    files = hadoop.FileContext.getFileContext(qualified[1].toUri(), context._jsc.hadoopConfiguration())
    files.rename(*qualified, overwriting)


class FolderLock:
    """Held by Spark's JVM, which is who writes there, until `release` or its end. The JVM collects a file that nobody here keeps,
    and its lock with it.

    A lock of the operating system: none is left behind by a run that dies. Other file systems than local ones have none; there
    Spark's own rename without overwriting lets the second run on a checkpoint fail.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def release(self) -> None:
        """Let the next run have it. One whose JVM is gone is free already."""
        try:
            self._file.close()
        except Exception as error:
            if not is_jvm_gone(error):
                raise


def _file_to_lock(session: SparkSession, name: str) -> Any:
    jvm: Any = session.sparkContext._jvm
    return jvm.java.io.RandomAccessFile(name, "rw")


def _is_locked(file: Any, what: str) -> bool:
    """PipelineFailed on a file system that has no locks, as NFS without its lock daemon."""
    with _named(what):
        try:
            return file.getChannel().tryLock() is not None
        except Exception:
            file.close()
            raise


def lock(
    session: SparkSession, place: str, what: str, wait: Callable[[float], bool], wait_s: float = LOCK_WAIT_S
) -> FolderLock | None:
    """The lock file `place`, held; None where it is not on a local file system, or `wait` says that a stop was asked for.

    PipelineFailed naming `what` while another run holds it for longer than wait_s, or when it cannot be locked at all. `wait`
    takes seconds.
    """
    if scheme_of(session, place) != "file":
        return None
    path = local_path(place)
    name = str(path if path is not None else place)
    with _named(f"{what} cannot be locked, for {name} cannot be opened"):
        file = _file_to_lock(session, name)
    deadline_s = monotonic_s() + wait_s
    while not _is_locked(file, f"{what} cannot be locked, and two runs would mix their rows; {name}"):
        if monotonic_s() >= deadline_s:
            file.close()
            raise PipelineFailed(f"{what} is in use by another run")
        if wait(LOCK_POLL_S):
            file.close()
            return None
    return FolderLock(file)
