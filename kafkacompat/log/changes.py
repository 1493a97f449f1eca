"""Changes of several files, which a disk may stop half way.

Duty: tell such an end from a refusal before anything has changed. Must not know: which files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkacompat.ports import HalfDone


@contextmanager
def change_of_many(what: str) -> Iterator[None]:
    """HalfDone for an OSError within: the log is not what it was, and not what it was to be."""
    try:
        yield
    except OSError as error:
        raise HalfDone(error.errno, f"{what} has stopped half way: {error}") from error
