"""The parts of the faults: a disk refuses as configured, and the effects of a refusal are recognized."""

from __future__ import annotations

import ast
import errno
from dataclasses import fields
from pathlib import Path

import pytest

from kafkacompat.ports import HalfDone, SyncFailed
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import share_group_shape
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import ClusterCounters, StreamsGroupCounters
from kafkacompat.sim.disk import DiedWriting, SimulatedDisk
from kafkacompat.sim.faults.disks import FailingSyncs, Planned
from kafkacompat.sim.faults.refusals import Condition, Refusals


def refusing(**conditions: Condition) -> tuple[SimulatedDisk, Refusals]:
    disk, refusals = SimulatedDisk(), Refusals(lambda: 7)
    for path in ("/data", "/more"):
        disk.make_directory(path)
        disk.open(f"{path}/0.log", create=True).write_now(b"before")
    disk.meet, disk.sync_failed = refusals.meet, refusals.sync_failed
    refusals.conditions.update({f"/{name}": condition for name, condition in conditions.items()})
    return disk, refusals


def refused(disk: SimulatedDisk, path: str) -> dict[str, int | None]:
    """Return the error of each operation."""
    disk.fails_sync = lambda path: False
    operations = {
        "read": lambda: disk.read_bytes(path),
        "exists": lambda: disk.exists(path),
        "open": lambda: disk.open(path),
        "sync": lambda: disk.sync_directory("/" + path.split("/")[1]),
        "remove": lambda: disk.remove(path),
        "create": lambda: disk.open(path + ".new", create=True),
    }
    found = {}
    syncs = []
    for name, operation in operations.items():
        try:
            operation()
        except OSError as error:
            found[name] = error.errno
            syncs.append(isinstance(error, SyncFailed) is (name == "sync"))
    assert all(syncs)
    return found


def test_each_condition_refuses_what_such_a_disk_refuses_and_other_directories_live() -> None:
    assert refused(refusing(data=Condition.FULL)[0], "/data/0.log") == {"create": errno.ENOSPC}
    read_only = refusing(data=Condition.READ_ONLY)[0]
    assert refused(read_only, "/data/0.log") == dict.fromkeys(("open", "remove", "create"), errno.EROFS)
    broken = refusing(data=Condition.BROKEN)[0]
    every = ("read", "exists", "open", "sync", "remove", "create")
    assert refused(broken, "/data/0.log") == dict.fromkeys(every, errno.EIO)
    assert refused(broken, "/more/0.log") == {}


@pytest.mark.parametrize("condition", [Condition.FAILS_A_WRITE, Condition.CUTS_A_WRITE])
def test_one_write_is_refused_and_changes_nothing(condition: Condition) -> None:
    disk, refusals = refusing(data=condition)
    file = disk.open("/data/0.log")
    with pytest.raises(OSError, match="refused"):
        file.write_now(b"lost")
    assert disk.read_bytes("/data/0.log") == b"before"
    file.write_now(b" and after")
    assert disk.read_bytes("/data/0.log") == b"before and after"
    assert [(each.log, each.at_us) for each in refusals.told] == [("/data", 7)]


def test_what_came_of_a_refusal_is_told_from_what_did_not() -> None:
    disk, refusals = refusing(data=Condition.BROKEN)
    with pytest.raises(OSError) as refusal:
        disk.read_bytes("/data/0.log")
    came_of_it = HalfDone(errno.EIO, "stopped half way")
    came_of_it.__cause__ = refusal.value
    told = refusals.behind(came_of_it)
    assert told is not None
    assert (told.directory, told.condition) == ("/data", Condition.BROKEN)
    assert refusals.behind(OSError(errno.EIO, "another one")) is None
    refusals.process_starts()
    assert refusals.behind(came_of_it) is None


def after_power_loss(seed: int, *, synced: bool) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data/t-0")
    disk.open("/data/t-0/0.log", create=True).write_now(b"zero")
    disk.sync_directory("/")
    disk.sync_directory("/data")
    disk.sync_directory("/data/t-0")
    disk.open("/data/t-0/0.log").sync()
    disk.open("/data/t-0/1.log", create=True).write_now(b"one")
    disk.rename("/data/t-0/0.log", "/data/t-0/0.log.deleted")
    disk.rename("/data/t-0", "/data/t-0-delete")
    disk.open("/data/t-0-delete/2.log", create=True)
    if synced:
        disk.sync_directory("/data/t-0-delete")
        disk.sync_directory("/data")
    disk.lose_power(Chance(seed, "power"))
    return disk


def test_a_process_learns_of_a_failed_sync_when_the_job_ends_that_saw_it() -> None:
    """A slow disk whose sync stalls holds a job for longer than the process has to act on what it learned."""
    simulation = ClusterSimulation(0, **share_group_shape(0))
    for each in simulation.machines.ordered:
        each.start()
    simulation.run_until(500_000)
    simulation.faults.heal_all()
    machine = simulation.machines.by_id[simulation.env.options.brokers[0]]
    life, looks = machine.life, FailingSyncs(simulation.faults.control)
    assert life is not None
    machine.disk_factor = 100
    answer = life.pools.ports.log_sync.at("/data").submit(lambda: None)
    machine.disk_factor = 1
    planned = Planned(machine, machine.lives, "/data", simulation.env.scheduler.now_us)
    looks._look_whether_halted(planned)
    while not answer.done:
        simulation.env.scheduler.run_next()
    looks._look_whether_halted(planned._replace(is_at_work=True))
    with pytest.raises(Breach, match="no trust after a failed sync"):
        looks._look_whether_halted(planned)


def test_a_power_loss_keeps_any_beginning_of_what_was_done_to_a_directory() -> None:
    seen = set()
    for seed in range(200):
        disk = after_power_loss(seed, synced=False)
        (name,) = disk.list_directory("/data")
        left = disk.list_directory(f"/data/{name}")
        seen.add((name, tuple(left)))
        old = "0.log" if "0.log" in left else "0.log.deleted"
        assert disk.read_bytes(f"/data/{name}/{old}") == b"zero"
    inside = [
        ("0.log",),
        ("0.log", "1.log"),
        ("0.log.deleted", "1.log"),
        ("0.log.deleted", "1.log", "2.log"),
    ]
    assert seen == {(name, left) for name in ("t-0", "t-0-delete") for left in inside}


def test_names_are_durable_once_their_directory_was_synced() -> None:
    for seed in range(20):
        disk = after_power_loss(seed, synced=True)
        assert disk.list_directory("/data") == ["t-0-delete"]
        assert disk.list_directory("/data/t-0-delete") == ["0.log.deleted", "1.log", "2.log"]


def test_a_tree_goes_name_by_name_and_may_come_back_in_part() -> None:
    left = set()
    for seed in range(100):
        disk = after_power_loss(seed, synced=True)
        disk.remove_tree("/data/t-0-delete")
        assert not disk.exists("/data/t-0-delete/2.log")
        disk.lose_power(Chance(seed, "again"))
        left.add(len(disk.list_directory("/data/t-0-delete")) if disk.exists("/data/t-0-delete") else None)
    assert left == {None, 0, 1, 2, 3}


def test_of_bytes_that_were_not_synced_a_beginning_stays_perhaps_with_zeros_behind() -> None:
    seen = set()
    for seed in range(300):
        disk = SimulatedDisk()
        disk.make_directory("/data")
        file = disk.open("/data/0.log", create=True)
        file.write_now(b"ab")
        file.sync()
        disk.sync_directory("/data")
        disk.sync_directory("/")
        file.write_now(b"cd")
        disk.lose_power(Chance(seed, "power"))
        seen.add(disk.read_bytes("/data/0.log"))
    assert seen == {b"ab", b"abc", b"abcd", b"ab\0", b"ab\0\0", b"abc\0"}


def test_a_failed_sync_loses_bytes_and_no_shorter_end() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    file = disk.open("/data/0.log", create=True)
    file.write_now(b"abc")
    file.sync()
    disk.fails_sync = lambda path: True
    file.truncate(0)
    with pytest.raises(SyncFailed):
        file.sync()
    disk.fails_sync = lambda path: False
    file.sync()
    assert disk.trusted == []
    file.write_now(b"de")
    disk.fails_sync = lambda path: True
    with pytest.raises(SyncFailed):
        file.sync()
    disk.fails_sync = lambda path: False
    file.sync()
    assert disk.trusted == ["/data/0.log"]


def test_a_process_that_dies_within_a_write_leaves_a_part() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    file = disk.open("/data/0.log", create=True)

    def dies(operation: str, path: str) -> None:
        if operation.startswith("write"):
            raise DiedWriting(0.5)

    disk.meet = dies
    with pytest.raises(DiedWriting):
        file.write_now(b"12", b"34")
    with pytest.raises(DiedWriting):
        disk.write_atomic("/data/checkpoint", b"5678")
    assert disk.read_bytes("/data/0.log") == b"12"
    assert disk.read_bytes("/data/checkpoint.tmp") == b"56"
    assert not disk.exists("/data/checkpoint")


def test_each_kind_of_fault_is_described_and_counted() -> None:
    """What is not counted cannot be asked for by the test that every danger occurs."""
    root = Path(__file__).parents[3]
    page = (root / "docs/simulation.md").read_text("utf-8")
    counters = {each.name for kind in (ClusterCounters, StreamsGroupCounters) for each in fields(kind)}
    kinds = [
        node
        for path in sorted((root / "kafkacompat/sim/faults").glob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name == "begin" for each in node.body)
    ]
    assert kinds
    for kind in kinds:
        assert f"`{kind.name}`" in page, f"docs/simulation.md does not describe {kind.name}"
        added = {
            each.target.attr
            for each in ast.walk(kind)
            if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Attribute)
        }
        assert added & counters, f"{kind.name} adds to no counter of sim/counters.py"
