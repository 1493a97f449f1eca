"""The compiled gait of UnifiedLog.append_next and set_high_watermark; not there where nothing compiled it."""

from collections.abc import Callable
from typing import Any

def methods_of_log(
    owners: tuple[type, ...],
    batch: type,
    tail_batches: int,
    retained_batches: int,
    offset_page: int,
    time_page: int,
    set_high_watermark: Callable[..., None],
    /,
) -> tuple[Any, Any]: ...
