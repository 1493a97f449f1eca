"""Writes lines to a file like a web server, rotated like by logrotate. Independent of topics and traffic."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterable
from typing import Final

from kafkacompat.pipeline.failure import PipelineFailed

RENAME: Final = "rename"
COPY_TRUNCATE: Final = "copytruncate"
NEVER: Final = "never"
ROTATIONS: Final = (RENAME, COPY_TRUNCATE, NEVER)
DEFAULT_ROTATE_BYTES: Final = 16 * 1024 * 1024
KEPT: Final = 5
"""Number of rotated files. From the second on they are compressed."""


class AccessLog:
    """One growing file. Raises PipelineFailed if it cannot be written."""

    def __init__(self, path: str, rotation: str = RENAME, rotate_bytes: int = DEFAULT_ROTATE_BYTES) -> None:
        """Append to an existing file."""
        self._path = path
        self._rotation = rotation
        self._rotate_bytes = rotate_bytes
        self.rotations = 0
        """The number of rotations so far."""
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - held until close
        except OSError as error:
            raise PipelineFailed(f"the access log {path} cannot be written: {error.strerror}") from None

    def write(self, lines: Iterable[bytes]) -> None:
        """Append these lines. Rotate the file when it is large."""
        try:
            data = b"".join(line + b"\n" for line in lines)
            while data:
                data = data[self._file.write(data) :]
            if self._rotation != NEVER and self._file.tell() >= self._rotate_bytes:
                self._rotate()
        except OSError as error:
            raise PipelineFailed(f"the access log {self._path} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        self.rotations += 1
        for number in range(KEPT, 1, -1):
            older = f"{self._path}.{number}.gz"
            if number == KEPT and os.path.exists(older):
                os.remove(older)
            elif os.path.exists(older):
                os.replace(older, f"{self._path}.{number + 1}.gz")
        first = f"{self._path}.1"
        if os.path.exists(first):
            # Compress one rotation later, so that readers of the file have had that long.
            with open(first, "rb") as plain, gzip.open(f"{self._path}.2.gz", "wb", compresslevel=1) as packed:
                shutil.copyfileobj(plain, packed)
            os.remove(first)
        if self._rotation == RENAME:
            os.replace(self._path, first)
            self._file.close()
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - held until close
        else:
            shutil.copyfile(self._path, first)
            self._file.truncate(0)
