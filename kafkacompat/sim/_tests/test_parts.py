"""The simulator's parts: a disk that loses data that were not synced, a network with cut links."""

from __future__ import annotations

import gc
import logging
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.net.workers import TERMS
from kafkacompat.raft.messages import Batch
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.disk import SimulatedDisk
from kafkacompat.sim.machine import CountedTasks
from kafkacompat.sim.network import Network
from kafkacompat.sim.oracles import heard
from kafkacompat.sim.processes import CoroutineRun, ProcessEnded
from kafkacompat.sim.quorum_disk import DiskMisuse, QuorumDisk, Snapshot
from kafkacompat.sim.quorum_options import draw_options
from kafkacompat.sim.scheduler import Scheduler
from kafkacompat.sim.workers import SimulatedPool


def batch(base: int, end: int, epoch: int = 1) -> Batch:
    return Batch(base, end, epoch, f"{epoch}:{base}", 10)


def disk_with(*batches: Batch, synced: int) -> QuorumDisk:
    disk = QuorumDisk()
    for index, each in enumerate(batches):
        if index == synced:
            disk.begin_sync()
            disk.finish_sync()
        disk.append(each)
    if synced == len(batches):
        disk.begin_sync()
        disk.finish_sync()
    return disk


def test_a_crash_keeps_what_was_synced_and_loses_the_rest() -> None:
    disk = disk_with(batch(0, 2), batch(2, 3), batch(3, 6), synced=2)
    lost = disk.crash(Chance(1, "crash"), keeps_writing=0.0)
    assert (disk.end, lost, [each.base_offset for each in disk.batches]) == (3, 10, [0, 2])


def test_a_crash_may_keep_any_prefix_of_the_unsynced() -> None:
    ends = set()
    for seed in range(50):
        disk = disk_with(batch(0, 1), batch(1, 2), batch(2, 3), synced=1)
        disk.crash(Chance(seed, "crash"), keeps_writing=1.0)
        ends.add(disk.end)
    assert ends == {1, 2, 3}


def test_a_sync_under_way_does_not_cover_later_appends() -> None:
    disk = disk_with(batch(0, 1), synced=0)
    disk.begin_sync()
    disk.append(batch(1, 2))
    disk.finish_sync()
    assert disk.durable_end == 1


def test_an_unsynced_truncation_may_come_undone() -> None:
    ends = set()
    for seed in range(50):
        disk = disk_with(batch(0, 1), batch(1, 2), batch(2, 3), synced=3)
        disk.truncate(1)
        disk.append(batch(1, 5, epoch=2))
        disk.crash(Chance(seed, "crash"), keeps_writing=0.0)
        ends.add((disk.end, disk.last_epoch))
    assert ends == {(1, 1), (3, 1)}


def test_a_synced_truncation_is_final() -> None:
    disk = disk_with(batch(0, 1), batch(1, 2), synced=2)
    disk.truncate(1)
    disk.begin_sync()
    disk.finish_sync()
    disk.crash(Chance(3, "crash"), keeps_writing=1.0)
    assert disk.end == 1


def test_a_log_cannot_have_holes_nor_be_cut_inside_a_batch() -> None:
    disk = disk_with(batch(0, 4), synced=1)
    with pytest.raises(DiskMisuse):
        disk.append(batch(5, 6))
    with pytest.raises(DiskMisuse):
        disk.truncate(2)
    with pytest.raises(DiskMisuse):
        disk.read(1, 100)


def test_a_start_replaces_a_log_that_lies_behind_its_snapshot() -> None:
    disk = disk_with(batch(0, 4), synced=1)
    disk.freeze(OffsetAndEpoch(9, 3), Snapshot(b"state", None, 0))
    shape = disk.open()
    assert (shape.start, shape.end, shape.last_epoch) == (9, 9, 3)


class Arrivals:
    def __init__(self, **changes: Any) -> None:
        self.scheduler = Scheduler()
        self.messages: list[Any] = []
        calm = {"loss": 0.0, "duplication": 0.0, "delay_tail": 0.0}
        options = replace(draw_options(1), **{**calm, **changes})
        self.network = Network(self.scheduler, options, Chance(1, "network"))

    def after_sending(self, source: int, target: int, count: int = 1) -> list[Any]:
        for message in range(count):
            self.network.send(source, target, self.messages.append, message)
        while self.scheduler.run_next():
            pass
        return self.messages


def test_a_cut_is_one_way_and_partitions_add_up() -> None:
    world = Arrivals()
    world.network.cut([(1, 2)])
    world.network.cut([(1, 2)])
    assert world.after_sending(1, 2) == []
    assert world.after_sending(2, 1) == [0]
    world.network.mend([(1, 2)])
    assert world.network.is_cut(1, 2)
    world.network.mend([(1, 2)])
    assert world.after_sending(1, 2) == [0, 0]


def test_messages_are_lost_doubled_and_overtaken() -> None:
    assert len(Arrivals(loss=0.5).after_sending(1, 2, 200)) < 200
    assert len(Arrivals(duplication=0.5).after_sending(1, 2, 200)) > 200
    arrived = Arrivals().after_sending(1, 2, 200)
    assert arrived != sorted(arrived)
    assert sorted(arrived) == list(range(200))


def test_a_directory_is_locked_until_its_process_ends() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    lock = disk.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    disk.process_ended()
    second = disk.lock("/data/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    second.release()
    disk.lock("/data/.lock").release()


def test_an_errand_goes_on_with_each_value_and_ends_where_it_is_called_off() -> None:
    first: Deferred[int] = Deferred()
    never: Deferred[int] = Deferred()
    seen: list[object] = []

    async def steps() -> int:
        seen.append(await first)
        try:
            return await never
        finally:
            seen.append("called off")

    errand = CoroutineRun(steps(), seen.append)
    first.resolve(1)
    assert seen == [1]
    errand.call_off()
    never.resolve(2)
    assert seen == [1, "called off"]
    CoroutineRun(_at_once(), seen.append)
    assert seen == [1, "called off", 7]


async def _at_once() -> int:
    return await Deferred.of(7)


def test_what_is_logged_with_a_stack_is_heard_though_the_log_is_shut_off() -> None:
    logger, found = logging.getLogger("kafkacompat"), []
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with heard(found.append):
            for error in (KeyError("a bug"), OSError("a disk")):
                logger.error("something failed", exc_info=error)
            logger.error("something is as it may be")
        assert logger.level == logging.CRITICAL
        logger.error("nobody listens", exc_info=KeyError("later"))
    finally:
        logger.setLevel(before)
    assert [type(each) for each in found] == [KeyError]


def test_python_does_not_warn_of_tasks_that_an_end_of_the_process_keeps_from_beginning() -> None:
    async def dies(tasks: CountedTasks) -> None:
        tasks.process_ended()
        raise ProcessEnded

    async def never_begins() -> None: ...

    def carry_out() -> None:
        tasks = CountedTasks(HandTime(), {})
        tasks.all("both", [dies(tasks), never_begins()])

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(ProcessEnded):
            carry_out()
        gc.collect()
    assert not found


@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_keeps_the_end_of_its_process_for_later_ends_with_it(seed: int) -> None:
    scheduler = Scheduler()
    host: Any = SimpleNamespace(
        alive=True, env=SimpleNamespace(scheduler=scheduler), enter=lambda what, call: call()
    )
    work: Any = SimpleNamespace(duty=None)
    pool = SimulatedPool(host, TERMS["cleaning"], Chance(seed, "pool"), lambda: 1, work)
    answers = []

    def job() -> str:
        host.alive = False
        return "goes on"

    def carry_out() -> None:
        pool.submit(job).on_done(lambda answer: answers.append(answer.result()))
        scheduler.run_next()

    with pytest.raises(ProcessEnded):
        carry_out()
    assert not answers
