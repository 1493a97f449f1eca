"""The workers of a node whose disk is memory."""

from __future__ import annotations

import threading
import time

import pytest
import trio
from trio.testing import MockClock

from kafkacompat.testing.workers import LoopWorkers, hold_up


def test_a_job_that_is_held_up_holds_up_those_behind_it_and_nobody_else() -> None:
    done: list[tuple[str, int]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            token = trio.lowlevel.current_trio_token()
            pool, other = LoopWorkers(nursery, token), LoopWorkers(nursery, token)
            ran: list[int] = []

            def slow() -> None:
                hold_up(1_000)
                ran.append(1)
                hold_up(500)
                raise ValueError

            jobs = {
                "slow": pool.submit(slow),
                "behind": pool.submit(lambda: ran.append(2)),
                "elsewhere": other.submit(lambda: ran.append(3)),
            }
            for name, job in jobs.items():
                job.on_done(lambda _, name=name: done.append((name, round(trio.current_time() * 1000))))  # type: ignore[misc]
            await trio.sleep(2)
            assert ran == [1, 2, 3]
            assert jobs["slow"].has_failed
            lost = pool.submit(lambda: hold_up(10))
            pool.close()
            await trio.sleep(1)
            assert not lost.done

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert done == [("elsewhere", 0), ("slow", 1500), ("behind", 1500)]


def test_outside_of_a_job_the_caller_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    hold_up(200)
    thread = threading.Thread(target=hold_up, args=(300,))
    thread.start()
    thread.join()
    assert slept == [0.2, 0.3]
