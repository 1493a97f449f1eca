"""Files in folders on any file system that Spark supports, and locks in local folders. Independent of the files'
content.

A folder may be local, or on HDFS or S3. Spark's JVM reads and writes it, so it is certainly the folder that Spark
uses.
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
"""After a command was killed, its JVM needs a moment to end, and holds its lock until then."""
LOCK_POLL_S: Final = 0.2


def _path(session: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's path object and its file system."""
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())


def scheme_of(session: SparkSession, place: str) -> str:
    """Return the scheme of the file system on which Spark finds the place. Without a scheme, that is the default file system."""
    _, system = _path(session, place)
    return str(system.getUri().getScheme())


def qualified(session: SparkSession, place: str) -> str:
    """Return the place with its scheme, as every process of a cluster can find it."""
    path, system = _path(session, place)
    return str(system.makeQualified(path).toString())


def names_in(session: SparkSession, place: str) -> list[str]:
    """Return the names of the files in a folder. Empty if the folder does not exist."""
    path, system = _path(session, place)
    if not system.exists(path):
        return []
    return [str(status.getPath().getName()) for status in system.listStatus(path)]


def read_text(session: SparkSession, place: str) -> str | None:
    """Return the text of a UTF-8 file, or None if it does not exist."""
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
    """Remove a file. Failures are ignored: a missing file is fine, and a remaining one only takes space."""
    path, system = _path(session, place)
    system.delete(path, False)


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn any failure of the JVM's file calls into PipelineFailed with the name of the operation."""
    try:
        yield
    except Exception as error:
        thrown = getattr(error, "java_exception", None)
        if thrown is None:
            raise
        raise PipelineFailed(f"{what}: {_said(thrown)}") from error


def _said(thrown: Any) -> str:
    """Return a Java exception's message, or its name if it has none. Hadoop wraps the exceptions of the file system."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.getMessage() or thrown.getClass().getSimpleName())


def write_text(session: SparkSession, place: str, text: str) -> None:
    """Write a file atomically: write and sync a temporary file, then rename it. After a crash or on a full disk the
    old or the new file is there.

    Raises PipelineFailed if the file cannot be written.
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
    """A lock that Spark's JVM holds, because the JVM writes there, until `release` or the end of the JVM.

    This object keeps a reference to the JVM's file, because the JVM would otherwise collect the file and release the
    lock. It is a lock of the operating system, so a run that dies leaves none. File systems that are not local have no
    such lock. There, Spark's rename without overwriting makes the second run on a checkpoint fail.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def release(self) -> None:
        """Release the lock. If the JVM is gone, the lock is already free."""
        try:
            self._file.close()
        except Exception as error:
            if not is_jvm_gone(error):
                raise


def _file_to_lock(session: SparkSession, name: str) -> Any:
    jvm: Any = session.sparkContext._jvm
    return jvm.java.io.RandomAccessFile(name, "rw")


def _is_locked(file: Any, what: str) -> bool:
    """Try to lock. Raises PipelineFailed on a file system without locks, such as NFS without its lock daemon."""
    with _named(what):
        try:
            return file.getChannel().tryLock() is not None
        except Exception:
            file.close()
            raise


def lock(
    session: SparkSession, place: str, what: str, wait: Callable[[float], bool], wait_s: float = LOCK_WAIT_S
) -> FolderLock | None:
    """Return the held lock on the file `place`. None if it is not on a local file system, or if `wait` reports a
    requested stop.

    Raises PipelineFailed with `what` if another run holds the lock for longer than wait_s, or if locking is
    impossible. `wait` takes seconds.
    """
    if scheme_of(session, place) != "file":
        return None
    path = local_path(place)
    name = str(path if path is not None else place)
    with _named(f"{what} cannot be locked, because {name} cannot be opened"):
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
