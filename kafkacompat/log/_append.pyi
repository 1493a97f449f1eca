"""The compiled gait of UnifiedLog.append_next; not there where nothing compiled it."""

from typing import Any

def method(
    owners: tuple[type, ...],
    batch: type,
    tail_batches: int,
    retained_batches: int,
    offset_page: int,
    time_page: int,
    /,
) -> Any: ...
