"""Periodic work: the settings that give its intervals, one job of an executor at a time, and its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from conftest import Faults
from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig, ServerConfig, defaults_without_file
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import batch_of
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import parse_offsets
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.node.log_maintenance import PeriodicWork, SerialExecutor
from kafkacompat.node.settings import NodeSettings
from kafkacompat.ports import WorkerPools
from kafkacompat.tasks import Tasks


class Machinery(HandTime):
    """Clock, timers and workers. Work runs at once or, with `later`, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = HandWorkers()
        self.later = False

    def submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        answer = self.workers.submit(function)
        if not self.later:
            self.workers.run()
        return answer


class Plan:
    def __init__(self, name: str, trace: list[str], problem: Exception | None = None) -> None:
        self.name, self.trace, self.problem = name, trace, problem

    def run(self) -> None:
        self.trace.append(f"run {self.name}")
        if self.problem is not None:
            raise self.problem

    def finish(self) -> None:
        self.trace.append(f"finish {self.name}")


class Retention:
    removed = 0

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace

    def next(self) -> None:
        self.trace.append("retain")


class Upkeep:
    """Records the time of every call."""

    def __init__(self, machinery: Machinery) -> None:
        self.machinery = machinery
        self.calls: dict[str, list[int]] = {}
        self.trace: list[str] = []
        self.problem: OSError | None = None
        self.paths = ["/a"]
        self.is_tiered = False

    def places(self) -> list[str]:
        return self.paths

    def has_tiered_logs(self) -> bool:
        return self.is_tiered

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def called(*_: Any) -> Any:
            self.calls.setdefault(name, []).append(self.machinery.ms)
            if name.startswith(("flush", "checkpoint")):
                return Plan(name, self.trace, self.problem)
            if name == "remove_expired_producers":
                return iter((1, 1, 1))
            return Retention(self.trace) if name == "begin_retention" else None

        return called


def start(settings: dict[str, str]) -> tuple[PeriodicWork, Machinery, Upkeep]:
    machinery = Machinery()
    upkeep = Upkeep(machinery)
    config = ServerConfig.from_properties(defaults_without_file(), settings)
    work = PeriodicWork(
        config, NodeSettings(config, 1), upkeep, machinery, Tasks(machinery), WorkerPools.of_one(machinery)
    )  # type: ignore[arg-type]
    work.start()
    return work, machinery, upkeep


def test_each_duty_has_its_own_interval() -> None:
    work, machinery, upkeep = start(
        {
            "log.initial.task.delay.ms": "10",
            "log.flush.offset.checkpoint.interval.ms": "100",
            "log.flush.start.offset.checkpoint.interval.ms": "200",
            "log.flush.scheduler.interval.ms": "50",
            "log.retention.check.interval.ms": "150",
            "replica.high.watermark.checkpoint.interval.ms": "120",
            "producer.id.expiration.check.interval.ms": "90",
        }
    )
    machinery.advance(260 - machinery.ms)
    assert upkeep.calls.pop("watch_damage") == [0]
    assert upkeep.calls.pop("watch_rolls") == [0]
    assert upkeep.calls == {
        "flush_closed_segments": [10, 110, 210],
        "checkpoint_recovery_points": [10, 110, 210],
        "checkpoint_log_starts": [10, 210],
        "flush_overdue": [10, 60, 110, 160, 210, 260],
        "begin_retention": [10, 160],
        "checkpoint_high_watermarks": [120, 240],
        "remove_expired_producers": [90, 180],
    }
    machinery.advance(5_000 - machinery.ms)
    assert upkeep.calls["remove_expired_deletions"] == [5_000]
    work.stop()
    upkeep.calls.clear()
    machinery.advance(20_000 - machinery.ms)
    assert upkeep.calls == {}


def test_retention_of_tiered_logs_begins_when_their_starts_are_written() -> None:
    work, machinery, upkeep = start(
        {"log.initial.task.delay.ms": "10", "log.flush.start.offset.checkpoint.interval.ms": "9000000"}
    )
    machinery.advance(20 - machinery.ms)
    assert "retain" in upkeep.trace
    upkeep.is_tiered = machinery.later = True
    upkeep.trace.clear()
    machinery.advance(300_010 - machinery.ms)
    machinery.workers.run_all()
    written = upkeep.trace.index("finish checkpoint_log_starts")
    assert upkeep.trace.index("retain") > written
    work.stop()


def test_an_interval_of_zero_runs_once() -> None:
    _, machinery, upkeep = start(
        {"log.flush.offset.checkpoint.interval.ms": "0", "log.initial.task.delay.ms": "5"}
    )
    machinery.advance(1000 - machinery.ms)
    assert upkeep.calls["flush_closed_segments"] == [5]


def test_a_failed_job_finishes_nothing_and_is_done_again() -> None:
    _, machinery, upkeep = start(
        {"log.flush.offset.checkpoint.interval.ms": "100", "log.initial.task.delay.ms": "5"}
    )
    upkeep.problem = OSError(28, "no space left")
    machinery.advance(105 - machinery.ms)
    assert upkeep.calls["flush_closed_segments"] == [5, 105]
    assert upkeep.trace.count("run flush_closed_segments") == 2
    assert "finish flush_closed_segments" not in upkeep.trace


def test_a_serial_executor_runs_one_job_at_a_time_and_queues_once_for_each_kind() -> None:
    machinery = Machinery()
    machinery.later = True
    trace: list[str] = []
    executor = SerialExecutor(Tasks(machinery), machinery)
    for kind in ("a", "b", "b", "none", "c"):
        executor.submit(kind, lambda kind=kind: None if kind == "none" else Plan(kind, trace))  # type: ignore[misc]
    for _ in range(3):
        assert len(machinery.workers.submitted) == 1
        machinery.workers.run()
    assert trace == ["run a", "finish a", "run b", "finish b", "run c", "finish c"]
    assert machinery.workers.submitted == []


def test_a_job_that_cannot_begin_keeps_no_other_from_its_turn() -> None:
    machinery = Machinery()
    machinery.later = True
    trace: list[str] = []

    def begin() -> Plan:
        raise OSError(28, "no space left")

    executor = SerialExecutor(Tasks(machinery), machinery)
    executor.submit("a", lambda: Plan("a", trace))
    executor.submit("b", begin)
    executor.submit("c", lambda: Plan("c", trace))
    machinery.workers.run()
    machinery.workers.run()
    assert trace == ["run a", "finish a", "run c", "finish c"]
    executor.submit("b", begin)
    assert machinery.workers.submitted == []


def test_a_bug_in_a_job_is_reported_and_keeps_no_other_from_its_turn(faults: Faults) -> None:
    machinery = Machinery()
    trace: list[str] = []
    bug = KeyError("a bug")
    executor = SerialExecutor(Tasks(machinery), machinery)
    for kind, problem in (("a", bug), ("b", None), ("a", None)):
        executor.submit(kind, lambda kind=kind, problem=problem: Plan(kind, trace, problem))  # type: ignore[misc]
    assert faults.take() == [bug]
    assert trace == ["run a", "run b", "finish b", "run a", "finish a"]


def test_stopping_waits_for_what_runs_and_forgets_the_rest() -> None:
    work, machinery, upkeep = start(
        {"log.flush.offset.checkpoint.interval.ms": "100", "log.initial.task.delay.ms": "5"}
    )
    machinery.later = True
    machinery.advance(5 - machinery.ms)
    assert len(machinery.workers.submitted) == 2
    stopped = work.stop()
    assert not stopped.done
    machinery.workers.run()
    assert stopped.done
    assert machinery.workers.submitted == []
    assert "finish flush_closed_segments" in upkeep.trace


def test_what_checkpoints_say_of_logs_that_go_is_written_anew_twice_at_most() -> None:
    disk, machinery = MemoryDisk(), Machinery()
    disk.make_directory("/data")
    logs = LogManager(disk, [("/data", b"\1" * 16)], LogConfig(), machinery)
    names = [TopicPartition("t", number) for number in range(100)]
    for name in names:
        logs.get_or_create(name, b"\2" * 16, LogConfig()).truncate_fully_and_start_at(5)
        logs.logs[name].recovery_point = logs.logs[name].cleaned_to = 5
        logs.logs[name].increment_log_start_offset(5)
    logs.checkpoint_now()
    synced: list[str] = []
    disk.refuse = lambda operation, path: synced.append(path) if operation == "sync" else None
    machinery.later = True
    config = ServerConfig.from_properties(defaults_without_file(), {})
    pools = WorkerPools.of_one(machinery)
    work = PeriodicWork(config, NodeSettings(config, 1), LogUpkeep(logs), machinery, Tasks(machinery), pools)  # type: ignore[arg-type]
    logs.on_stale = work.checkpoint_soon
    for name in names[:90]:
        logs.delete_later(name)
        assert not logs.may_make(name)
    while machinery.workers.submitted:
        machinery.workers.run()
    assert all(map(logs.may_make, names[:90]))
    files = Counter(path.removesuffix(".tmp") for path in synced)
    assert len(files) == 3
    assert set(files.values()) == {2, 1}
    for path in files:
        assert set(parse_offsets(disk.read_bytes(path))) == set(names[90:])


def test_a_slow_directory_holds_up_the_syncs_of_no_other() -> None:
    machinery = Machinery()
    upkeep = Upkeep(machinery)
    upkeep.paths = ["/slow", "/quick"]
    submitted: list[str] = []

    def at(place: str) -> Any:
        def submit(job: Callable[[], None]) -> Deferred[None]:
            submitted.append(place)
            if place == "/slow":
                return Deferred()
            job()
            return Deferred.of(None)

        return SimpleNamespace(submit=submit)

    config = ServerConfig.from_properties(
        defaults_without_file(),
        {
            "log.initial.task.delay.ms": "10",
            "log.flush.offset.checkpoint.interval.ms": "100",
            "log.flush.scheduler.interval.ms": "50",
        },
    )
    pools = replace(WorkerPools.of_one(machinery), log_sync=SimpleNamespace(at=at))  # type: ignore[arg-type]
    PeriodicWork(config, NodeSettings(config, 1), upkeep, machinery, Tasks(machinery), pools).start()  # type: ignore[arg-type]
    machinery.advance(310 - machinery.ms)
    assert submitted.count("/slow") == 1
    assert submitted.count("/quick") == 4 + 7


def test_what_a_roll_has_closed_is_synced_at_once() -> None:
    """Before the sync, a power loss may lose its end but keep what was written after it."""
    disk = MemoryDisk()
    disk.make_directory("/a")
    machinery = Machinery()
    config = ServerConfig.from_properties(defaults_without_file(), {})
    logs = LogManager(disk, [("/a", b"\1" * 16)], LogConfig(segment_bytes=300), machinery)
    log = logs.get_or_create(TopicPartition("t", 0), b"\2" * 16, logs.default_config)
    work = PeriodicWork(
        config,
        NodeSettings(config, 1),
        LogUpkeep(logs),
        machinery,
        Tasks(machinery),
        WorkerPools.of_one(machinery),  # type: ignore[arg-type]
    )
    work.start()
    for _ in range(3):
        while log.segments[-1].base_offset == log.recovery_point:
            log.append_as_leader(batch_of([b"." * 50]), 0, machinery.ms)
        machinery.advance(0)
        assert log.recovery_point == log.segments[-1].base_offset > 0
        left = disk.lose_power()
        for segment in log.segments[:-1]:
            assert len(left.files[f"{segment.stem}.log"]) == segment.size
    work.stop()
    while log.segments[-1].base_offset == log.recovery_point:
        log.append_as_leader(batch_of([b"." * 50]), 0, machinery.ms)
    machinery.advance(0)
    assert log.recovery_point < log.segments[-1].base_offset
    # After a kill, the next start does it.
    again = LogManager(disk.copy(), [("/a", b"\1" * 16)], LogConfig(segment_bytes=300), machinery)
    (log,) = again.load_all().values()
    assert log.recovery_point < log.segments[-1].base_offset
    PeriodicWork(
        config,
        NodeSettings(config, 1),
        LogUpkeep(again),
        machinery,
        Tasks(machinery),
        WorkerPools.of_one(machinery),  # type: ignore[arg-type]
    ).start()
    machinery.advance(0)
    assert log.recovery_point == log.segments[-1].base_offset
