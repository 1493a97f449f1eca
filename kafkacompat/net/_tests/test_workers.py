"""Pools of worker threads: what runs, waits and is refused; the effect of a stuck job; failures; and the end."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.deferred import Deferred
from kafkacompat.net import workers as workers_module
from kafkacompat.net.job_queue import Admission, JobQueue, PoolTerms, Waits
from kafkacompat.net.runtime import wait_for
from kafkacompat.net.workers import TERMS, JobFailed, TrioPool, WayBack, worker_pools
from kafkacompat.ports import WorkerPools, Workers, WorkersBusy

DEADLINE_S = 20
ENTRY_QUEUE = "<TrioToken.run_sync_soon task>"
"""trio's task for what threads ask of the loop."""
POOLS = [field.name for field in fields(WorkerPools)]


@given(
    threads_max=st.integers(1, 4),
    waiting_max=st.none() | st.integers(0, 5),
    steps=st.lists(st.booleans(), max_size=60),
)
def test_every_job_that_is_taken_begins_once_and_in_order(
    threads_max: int, waiting_max: int | None, steps: list[bool]
) -> None:
    queue: JobQueue[int] = JobQueue(PoolTerms("a duty", threads_max, Waits.DISK, waiting_max))
    taken: list[int] = []
    begun: list[int] = []
    ended = 0

    def end_one() -> None:
        following = queue.ended()
        if following is not None:
            begun.append(following)

    for number, offers in enumerate(steps):
        if offers:
            free, waiting = queue.running < threads_max, queue.waiting
            admission = queue.offer(number)
            if admission is Admission.REFUSED:
                assert not free
                assert waiting == waiting_max
                continue
            assert (admission is Admission.RUN) is free
            taken.append(number)
            if free:
                begun.append(number)
        elif len(begun) > ended:
            ended += 1
            end_one()
        assert queue.running == len(begun) - ended <= threads_max
        assert queue.waiting == len(taken) - len(begun)
    while ended < len(begun):
        ended += 1
        end_one()
    assert begun == taken
    assert queue.running == queue.waiting == 0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The event that stuck jobs wait for."""
    event = threading.Event()
    yield event
    event.set()


def stuck(gate: threading.Event) -> Callable[[], None]:
    return lambda: None if gate.wait(DEADLINE_S) else sys.exit("nobody opened the gate")


@asynccontextmanager
async def node_nursery() -> AsyncIterator[trio.Nursery]:
    """It ends when it is cancelled, as a node's."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


def pool_of(pools: WorkerPools, duty: str) -> Workers:
    pool = getattr(pools, duty)
    return pool.at("/a") if duty == "log_sync" else pool


async def test_stuck_syncs_of_a_directory_hold_up_no_other(gate: threading.Event) -> None:
    with trio.fail_after(DEADLINE_S):
        async with node_nursery() as nursery:
            syncs = worker_pools(nursery).log_sync
            held = [syncs.at("/a").submit(stuck(gate)) for _ in range(2 * TERMS["log_sync"].threads_max)]
            assert await wait_for(syncs.at("/b").submit(lambda: 1)) == 1
            assert syncs.at("/a") is syncs.at("/a")
            gate.set()
            for each in held:
                await wait_for(each)


@pytest.mark.parametrize("duty", POOLS)
async def test_stuck_jobs_of_a_duty_hold_up_nobody_else(duty: str, gate: threading.Event) -> None:
    with trio.fail_after(DEADLINE_S):
        async with node_nursery() as nursery:
            pools = worker_pools(nursery)
            threads = min(TERMS[duty].threads_max, 16)
            held = [pool_of(pools, duty).submit(stuck(gate)) for _ in range(2 * threads)]
            for other in POOLS:
                if other != duty:
                    assert await wait_for(pool_of(pools, other).submit(lambda: 1)) == 1
            assert not any(each.done for each in held)
            gate.set()
            for each in held:
                assert await wait_for(each) is None


async def test_stuck_jobs_do_not_keep_the_node_from_ending(gate: threading.Event) -> None:
    """Neither those in threads nor those waiting. Their results would not be used any more."""
    told: list[str] = []
    with trio.fail_after(DEADLINE_S):
        async with node_nursery() as nursery:
            pools = worker_pools(nursery)
            for duty in POOLS:
                for _ in range(20):
                    pool_of(pools, duty).submit(stuck(gate)).on_done(lambda _, duty=duty: told.append(duty))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert told == []


async def test_idle_pools_have_no_threads() -> None:
    before = threading.active_count()
    async with node_nursery() as nursery:
        worker_pools(nursery)
        await trio.testing.wait_all_tasks_blocked()
    assert threading.active_count() <= before


async def test_a_job_begins_at_once_and_ends_without_a_task() -> None:
    class Steps(trio.abc.Instrument):
        def __init__(self) -> None:
            self.of: list[str] = []

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.of.append(task.name)

    async with node_nursery() as nursery:
        pool = TrioPool(WayBack(nursery), PoolTerms("a duty", 1, Waits.DISK))
        await trio.testing.wait_all_tasks_blocked()
        began, steps = threading.Event(), Steps()
        trio.lowlevel.add_instrument(steps)
        deferred = pool.submit(began.set)
        assert began.wait(DEADLINE_S)
        await wait_for(deferred)
        trio.lowlevel.remove_instrument(steps)
        assert steps.of == [ENTRY_QUEUE, trio.lowlevel.current_task().name]


class HeardWayBack(WayBack):
    """Tells the test when a thread has called."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.called = threading.Event()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        super().call(function, *arguments)
        self.called.set()


@pytest.mark.parametrize("from_outside", [False, True])
async def test_once_cancelled_nothing_begins_and_nobody_is_told(
    from_outside: bool, gate: threading.Event
) -> None:
    happened: list[str] = []
    with trio.CancelScope() as outer:
        async with trio.open_nursery() as nursery:
            back = HeardWayBack(nursery)
            pool = TrioPool(back, PoolTerms("a duty", 1, Waits.DISK))
            pool.submit(stuck(gate)).on_done(lambda _: happened.append("told"))
            pool.submit(lambda: happened.append("begun after another"))
            await trio.testing.wait_all_tasks_blocked()
            (outer if from_outside else nursery.cancel_scope).cancel()
            TrioPool(back, PoolTerms("another duty", 1, Waits.DISK)).submit(lambda: happened.append("begun"))
            gate.set()
            with trio.CancelScope(shield=True):
                assert await trio.to_thread.run_sync(back.called.wait, DEADLINE_S)
                await trio.testing.wait_all_tasks_blocked()
    assert happened == []


async def test_workers_answer_in_the_loops_thread() -> None:
    async with node_nursery() as nursery:
        pool = TrioPool(WayBack(nursery), PoolTerms("a duty", 2, Waits.DISK))
        resolved_in: list[int] = []
        deferred = pool.submit(threading.get_ident)
        deferred.on_done(lambda _: resolved_in.append(threading.get_ident()))
        assert await wait_for(deferred) != threading.get_ident()
        assert resolved_in == [threading.get_ident()]
        with pytest.raises(ZeroDivisionError):
            await wait_for(pool.submit(lambda: 1 // 0))


async def test_an_error_that_is_kept_does_not_keep_what_the_job_had() -> None:
    class Body:
        def fail(self) -> None:
            mine = Body()
            bodies.append(weakref.ref(mine))
            raise ValueError(mine.fail.__name__)

    body = Body()
    bodies = [weakref.ref(body)]
    gc.disable()
    try:
        with trio.fail_after(DEADLINE_S):
            async with node_nursery() as nursery:
                pool = worker_pools(nursery).reads
                failing = pool.submit(body.fail)
                del body
                with pytest.raises(ValueError, match="fail"):
                    await wait_for(failing)
                assert await wait_for(pool.submit(lambda: 1)) == 1
        assert failing.has_failed
        assert [each() for each in bodies] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("job", [lambda: 1, lambda: 1 // 0])
async def test_a_caller_that_fails_over_its_answer_ends_no_other(job: Callable[[], int], faults: Any) -> None:
    def misuse(_: Deferred[int]) -> None:
        raise FileNotFoundError

    async with node_nursery() as nursery:
        pool = TrioPool(WayBack(nursery), PoolTerms("a duty", 1, Waits.DISK))
        pool.submit(job).on_done(misuse)
        assert await wait_for(pool.submit(lambda: 2)) == 2
    assert [type(error) for error in faults.take()] == [FileNotFoundError]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_a_job_that_ends_its_thread_reaches_who_asked_and_nobody_else(
    kind: type[BaseException],
) -> None:
    def job() -> None:
        raise kind("enough")

    async with node_nursery() as nursery:
        pool = TrioPool(WayBack(nursery), PoolTerms("a duty", 1, Waits.DISK))
        failed, following = pool.submit(job), pool.submit(lambda: 2)
        with pytest.raises(JobFailed, match=kind.__name__) as caught:
            await wait_for(failed)
        assert isinstance(caught.value.__cause__, kind)
        assert await wait_for(following) == 2


async def test_an_error_that_cannot_be_told_keeps_no_thread_and_reaches_who_asked() -> None:
    class Untold(BaseException):
        def __repr__(self) -> str:
            raise MemoryError

    def job() -> None:
        raise Untold

    with trio.fail_after(DEADLINE_S):
        async with node_nursery() as nursery:
            pool = TrioPool(WayBack(nursery), PoolTerms("a duty", 1, Waits.DISK))
            failed, following = pool.submit(job), pool.submit(lambda: 2)
            with pytest.raises(JobFailed, match="MemoryError"):
                await wait_for(failed)
            assert await wait_for(following) == 2


async def test_without_a_thread_jobs_wait_for_one(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start_thread_soon, tries = trio.lowlevel.start_thread_soon, 0

    def seldom(function: Callable[[], Any], tell: Callable[[Any], object], name: str | None) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise RuntimeError("can't start new thread")
        start_thread_soon(function, tell, name)

    monkeypatch.setattr(trio.lowlevel, "start_thread_soon", seldom)
    async with node_nursery() as nursery:
        pool = TrioPool(WayBack(nursery), PoolTerms("quorum sync", 1, Waits.DISK))
        with pytest.raises(RuntimeError, match="the job's own"):
            await wait_for(pool.submit(own_failure))
    assert tries == 4
    assert caplog.messages == ["no thread for quorum sync, its jobs wait: can't start new thread"]


def own_failure() -> None:
    raise RuntimeError("the job's own")


async def test_reads_are_refused_when_too_many_wait(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(workers_module.TERMS, "reads", PoolTerms("cold reads", 2, Waits.DISK, 3))
    async with node_nursery() as nursery:
        reads = worker_pools(nursery).reads
        accepted = [reads.submit(stuck(gate)) for _ in range(5)]
        with pytest.raises(WorkersBusy, match="3 jobs wait for threads: cold reads"):
            await wait_for(reads.submit(lambda: None))
        gate.set()
        for each in accepted:
            await wait_for(each)
        assert await wait_for(reads.submit(lambda: 2)) == 2


def test_only_cold_reads_are_ever_refused() -> None:
    """The users of the other pools have one job at a time, and mostly cannot handle a refusal."""
    assert [name for name in POOLS if TERMS[name].waiting_max is not None] == ["reads", "exchanges"]
    assert TERMS["quorum_sync"].threads_max == 1
