"""How a test waits: in real time, beside its loop if it has one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_S = 0.002
"""Between the first two looks. Later ones are further apart."""
LOOK_MAX_S = 0.05


def until(condition: Callable[[], object], timeout_s: float, told: Callable[[], str]) -> None:
    """Return when the condition holds. Raises AssertionError with what `told` says."""
    end_s, pause_s = time.monotonic() + timeout_s, LOOK_S
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"{told()} (after {timeout_s:g} s)")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LOOK_MAX_S)


async def in_thread(function: Callable[[], T], undo: Callable[[], object] = lambda: None) -> T:
    """The value of a blocking function, which a thread calls, under trio or asyncio. A cancelled caller waits for its end. Under
    asyncio it does not get the value, so `undo` is called then."""
    import sniffio

    if sniffio.current_async_library() == "trio":
        import trio

        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(function)
    import asyncio

    work = asyncio.ensure_future(asyncio.to_thread(function))
    cancelled: BaseException | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if work.exception() is None:
        await in_thread(undo)
    raise cancelled
