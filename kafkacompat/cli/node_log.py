"""A node's log in a file: entries go through a bounded queue to a thread, which writes and rotates.

The thread that logs never waits for the disk. Entries that find the queue full, or that cannot be written, are counted, and
a line with their number follows as soon as one can be written. A disk that is full or does not answer thus costs
entries and nothing else.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import logging.handlers
import os
import queue
import sys
import threading
from io import TextIOWrapper

QUEUE_ENTRIES_MAX = 4096
MESSAGE_CHARACTERS_MAX = 16 * 1024
FLUSH_TIMEOUT_S = 2.0
"""The longest wait for the disk when the node ends."""

Entries = queue.Queue[logging.LogRecord | None]


class NodeLog:
    """Opens the file at once (OSError), and writes until `close`. `handler` is for the root logger."""

    def __init__(
        self,
        path: str,
        max_bytes: int,
        backups: int,
        formatter: logging.Formatter,
        queue_entries_max: int = QUEUE_ENTRIES_MAX,
    ) -> None:
        self._entries: Entries = queue.Queue(queue_entries_max)
        self.handler = BoundedQueueHandler(self._entries)
        self.file = RotatingFile(path, max_bytes, backups)
        self.file.setFormatter(formatter)
        self._told_dropped = 0
        # A daemon, because a disk that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="log writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Write what is queued and end the thread. A disk that does not answer is waited for a short time only."""
        with contextlib.suppress(queue.Full):
            self._entries.put(None, timeout=FLUSH_TIMEOUT_S)
        self._thread.join(FLUSH_TIMEOUT_S)
        if not self._thread.is_alive():
            self.file.close()

    def write_next(self) -> bool:
        """Wait for one entry and write it. Return False at the end of the log."""
        record = self._entries.get()
        try:
            if record is None:
                return False
            self.file.handle(record)
            self._tell_what_is_missing()
            return True
        finally:
            self._entries.task_done()

    def _write_all(self) -> None:
        while self.write_next():
            pass

    def _tell_what_is_missing(self) -> None:
        dropped = self.handler.dropped
        if dropped > self._told_dropped and self.file.is_writable:
            missing = dropped - self._told_dropped
            self._told_dropped = dropped
            self.file.handle(_own_entry(f"{missing} entries of the log were dropped: the queue was full"))


class BoundedQueueHandler(logging.handlers.QueueHandler):
    """Queues entries without waiting. An entry that finds the queue full is counted and dropped."""

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self._entries = entries
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the entry with its texts, bounded. The objects that it names may change before it is written."""
        made = copy.copy(record)
        made.msg, made.args = _bounded(record.getMessage()), None
        if record.exc_info:
            made.exc_text = logging.Formatter().formatException(record.exc_info)
        made.exc_info = None
        if made.exc_text:
            made.exc_text = _bounded(made.exc_text)
        return made

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self._entries.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def flush(self) -> None:
        """Wait a short time until everything queued is written: the process may be about to halt."""
        with self._entries.all_tasks_done:
            self._entries.all_tasks_done.wait_for(
                lambda: self._entries.unfinished_tasks == 0, FLUSH_TIMEOUT_S
            )


class _NoLock:
    """Nobody waits for it. Python takes a handler's lock by `with` since 3.13, and by `acquire` and `release` before."""

    def acquire(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class RotatingFile(logging.handlers.RotatingFileHandler):
    """The file. An entry that cannot be written is counted; the next entry opens the file again.

    Other programs may move, delete or cut the file (logrotate): the next entry finds the file at its path again, without
    a signal. What a failed write or a killed process has left of an entry never shares a line with the next one.
    """

    def __init__(self, path: str, max_bytes: int, backups: int) -> None:
        super().__init__(
            path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8", errors="backslashreplace"
        )
        self.lost = 0
        self.is_writable = True
        self._lost_since = 0
        self._reason = ""
        self._whole_bytes = 0
        """The size of the file before the entry that is being written."""

    def _open(self) -> TextIOWrapper:
        """Open the file to append to it. If its last line has no end, which a power failure may leave, that line ends
        first."""
        if os.path.isfile(self.baseFilename):
            with open(self.baseFilename, "rb+") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
        stream = super()._open()
        self._whole_bytes = os.fstat(stream.fileno()).st_size
        return stream

    def createLock(self) -> None:
        """Only the writing thread writes. With a lock, the end of the interpreter would wait for a write that hangs."""
        self.lock = _NoLock()  # type: ignore[assignment]

    def emit(self, record: logging.LogRecord) -> None:
        self.is_writable = True
        try:
            self._follow_path()
        except (OSError, MemoryError):
            self.handleError(record)
            return
        super().emit(record)
        if self.is_writable and self._lost_since:
            missing, self._lost_since = self._lost_since, 0
            super().emit(_own_entry(f"{missing} entries of the log could not be written: {self._reason}"))

    def _follow_path(self) -> None:
        """Close the file if its path is another file's now, or nobody's. The entry then opens the path."""
        if self.stream is None:
            return
        opened = os.fstat(self.stream.fileno())
        self._whole_bytes = opened.st_size
        try:
            found = os.stat(self.baseFilename)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
            self._let_go()

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, (OSError, MemoryError)):
            super().handleError(record)
            return
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "no memory is left"
        if not self._lost_since:
            _say(f"kafkacompat: the log {self.baseFilename} cannot be written: {reason}")
        self.is_writable = False
        self.lost += 1
        self._lost_since += 1
        self._reason = reason
        self._let_go(cut=True)

    def _let_go(self, *, cut: bool = False) -> None:
        """Close the file. cut: without what was written of the last entry."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        descriptor = None
        with contextlib.suppress(OSError, MemoryError):
            descriptor = os.dup(stream.fileno())
        # Closing writes what is buffered, which fails for the same reason.
        with contextlib.suppress(OSError, MemoryError):
            stream.close()
        if descriptor is None:
            return
        # A device or a pipe cannot be cut.
        with contextlib.suppress(OSError, MemoryError):
            if cut and os.fstat(descriptor).st_size > self._whole_bytes:
                os.ftruncate(descriptor, self._whole_bytes)
        os.close(descriptor)


def _own_entry(text: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


def _bounded(text: str) -> str:
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    return f"{text[:MESSAGE_CHARACTERS_MAX]}... ({len(text) - MESSAGE_CHARACTERS_MAX} more characters)"


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
