"""Stores the collector's state in a directory, atomically. One collector per directory. Independent of the content."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from kafkacompat.pipeline.failure import PipelineFailed

STATE_NAME: Final = "positions.json"
LOCK_NAME: Final = "lock"


class StateFile:
    """The file with the state. Raises PipelineFailed if the directory cannot be used."""

    def __init__(self, directory: str) -> None:
        """Create the directory if it is missing, and lock it for this process."""
        self.folder = directory
        self.path = os.path.join(directory, STATE_NAME)
        try:
            os.makedirs(directory, exist_ok=True)
            self._lock = open(os.path.join(directory, LOCK_NAME), "a")  # noqa: SIM115 - held until close
            self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise PipelineFailed(
                f"the state directory {directory} cannot be used: {error.strerror}"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise PipelineFailed(f"another collector uses the state directory {directory}") from None
        except OSError as error:
            # Such as NFS without its lock daemon.
            self.close()
            raise PipelineFailed(
                f"the state directory {directory} cannot be locked: {error.strerror}"
            ) from None

    def load(self) -> str | None:
        """Return the last saved text, or None if there is none."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise PipelineFailed(f"the state {self.path} cannot be read: {error}") from None

    def save(self, text: str) -> None:
        """Replace the text. After a power loss either the new or the previous text is there."""
        fresh = self.path + ".new"
        try:
            with open(fresh, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.path)
            os.fsync(self._directory)
        except OSError as error:
            raise PipelineFailed(f"the state {self.path} cannot be saved: {error.strerror}") from None

    def close(self) -> None:
        """Release the directory."""
        self._lock.close()
        os.close(self._directory)
