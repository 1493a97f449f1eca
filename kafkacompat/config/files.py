"""Opens the files that settings name."""

from __future__ import annotations

import errno
import os
import stat

NOT_REGULAR = "it is no regular file"


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor to read a regular file, or a link to one. Raises OSError for anything else.

    A named pipe would block until somebody writes to it, and a device may have no end. A node must not wait for
    either. Arguments of commands may be pipes (`--command-config <(...)`): there a person waits.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_unusual(path: str) -> bool:
    """Whether something is there that is no regular file. For files that a library opens itself."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
