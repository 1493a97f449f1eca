"""`append_next`, in both gaits, among all else that changes a log: truncations, rolls, flushes, failed writes, restarts.

Beside it a log takes the same batches by `append_as_leader` alone. In the end both have the same state and the same files."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple
from weakref import ref

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kafkacompat.config import LogConfig
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, batch_of, config, look_up, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log._tests.test_append_next import AppendNext, append_next, state
from kafkacompat.log.producer_state import MAX_SEQUENCE
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import LogRefused

assert append_next  # a fixture

LEADER_EPOCH = 3


class Append(NamedTuple):
    records: int
    timestamp_ms: int
    producer_id: int
    skipped: int
    """How far the sequence is from the next one."""
    epoch: int
    fails: bool


appends = st.builds(
    Append,
    st.sampled_from([1, 1, 2, 5]),
    st.sampled_from([NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 900, NOW_MS - 900, -1]),
    st.sampled_from([-1, 1, 1, 2, 2]),
    st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1]),
    st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1]),
    st.sampled_from([False] * 9 + [True]),
)
others = st.one_of(
    st.tuples(st.just("truncate"), st.integers(0, 7)),
    st.sampled_from(
        [
            ("roll", 0),
            ("flush", 0),
            ("release", 0),
            ("reopen", 0),
            ("recover", 0),
            ("look up", 0),
            ("expire", 0),
        ]
    ),
)


class Replica:
    """A log and its disk. Without `append_next` it takes the long way, and decides at each batch whether to roll."""

    def __init__(self, append_next: AppendNext | None, settings: dict[str, Any]) -> None:
        self.disk = MemoryDisk()
        self.append_next = append_next
        self.config = config(**settings)
        self.log = open_log(self.disk, self.config)
        self.short = 0

    def do(self, step: Any) -> Any:
        if isinstance(step, Append):
            self.disk.failing = ".log" if step.fails else None
            try:
                return self._append(step)
            except LogRefused as refused:
                return refused.code
            except OSError as error:
                return error.errno
            finally:
                self.disk.failing = None
        name, number = step
        log = self.log
        if name == "truncate":
            log.truncate_to(max(0, log.log_end_offset - number), NOW_MS)
        elif name == "roll":
            log.roll(log.log_end_offset, NOW_MS)
        elif name == "flush":
            log.flush()
        elif name == "release":
            log.segments[-1].release()
        elif name == "look up":
            return look_up(log, None)
        elif name == "expire":
            for _ in log.expire_producers(NOW_MS + 500, 1000):
                pass
        else:
            log.close()
            self.log = open_log(self.disk, self.config, clean=name == "reopen")
        return log.log_end_offset

    def _append(self, step: Append) -> Any:
        log = self.log
        producer, has_id = log.producer_state.producers.get(step.producer_id), step.producer_id >= 0
        # The second one comes to the end of its sequence numbers soon.
        following = 0 if step.producer_id == 1 else MAX_SEQUENCE - 6
        if producer is not None and producer.batches:
            following = (producer.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        sequence = (following + step.skipped) & MAX_SEQUENCE if has_id else -1
        batch = batch_of(
            [b"v" * 40] * step.records,
            step.timestamp_ms,
            step_ms=0,
            producer_id=step.producer_id,
            producer_epoch=step.epoch if has_id else -1,
            base_sequence=sequence,
        )
        if self.append_next is not None:
            first_offset = self.append_next(
                log,
                batch.buffer,
                batch.size,
                step.records,
                batch.max_timestamp_ms,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                LEADER_EPOCH,
            )
            if first_offset >= 0:
                self.short += 1
                return first_offset
        else:
            log._bounded = None
        info = log.append_as_leader(batch, LEADER_EPOCH, NOW_MS)
        return info.first_offset


ROLLING: dict[str, st.SearchStrategy[Any]] = {
    "segment_bytes": st.sampled_from([3000, 3000, 700]),
    "internal_segment_bytes": st.sampled_from([None, None, 1500]),
    "segment_ms": st.sampled_from([800, 5000]),
    "segment_jitter_ms": st.just(0),
    "segment_index_bytes": st.sampled_from([10 << 20, 10 << 20, 60, 24]),
    "index_interval_bytes": st.sampled_from([1, 100, 1000]),
    "cleanup_policy": st.sampled_from([("delete",), ("compact",)]),
    "max_compaction_lag_ms": st.sampled_from([2**63 - 1, 500]),
}
"""The settings on which it depends when a segment is closed."""
OTHERS = {"mirror_leader_epoch", "remote_storage_enable"}
"""What else an append reads."""


def plain(interval: int) -> dict[str, Any]:
    return {
        "segment_bytes": 3000,
        "index_interval_bytes": interval,
        "segment_ms": 800,
        "segment_jitter_ms": 0,
    }


def test_each_setting_that_may_close_a_segment_is_drawn_here() -> None:
    """The appends look at bounds that are set when a segment begins. With another condition they must still roll at the same
    batch."""
    read: set[str] = set()

    class Watched(LogConfig):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    leader, follower = open_log(MemoryDisk()), open_log(MemoryDisk())
    # So small an index is looked at for each batch, and all other conditions before it.
    values = {"segment_bytes": 400, "segment_index_bytes": 24, "cleanup_policy": ("compact",)}
    leader.config = follower.config = Watched(**values)  # type: ignore[arg-type]
    for _ in range(9):
        batch = batch_of([b"v" * 40])
        leader.append_as_leader(batch, LEADER_EPOCH, NOW_MS)
        follower.append_as_follower(bytes(batch.buffer), LEADER_EPOCH)
    assert len(leader.segments) == len(follower.segments) > 2
    assert read & {each.name for each in fields(LogConfig)} - OTHERS == ROLLING.keys()


WRAPPED = [Append(1, NOW_MS, 2, 0, 0, False)] * 20
ACROSS = [Append(5, NOW_MS, 2, 0, 0, False)] * 4
LATER = [Append(1, NOW_MS + late, -1, 0, 0, False) for late in (0, 0, 900)]
FAILED = [Append(2, NOW_MS + at, 1, 0, 0, at == 6) for at in range(12)]
CUT = [*FAILED, ("truncate", 5), *WRAPPED, ("release", 0), *FAILED, ("reopen", 0), *WRAPPED]


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.one_of(appends, appends, appends, appends, others), max_size=40),
    st.fixed_dictionaries(ROLLING),
    st.booleans(),
)
@example(WRAPPED, plain(1), True)
@example(ACROSS, plain(100), True)
@example(LATER, plain(100), True)
@example(FAILED, plain(100), False)
@example(CUT, plain(1), False)
@example(WRAPPED, plain(1) | {"segment_index_bytes": 60}, True)
def test_both_ways_leave_the_same_files(
    append_next: AppendNext, steps: list[Any], settings: dict[str, Any], looks: bool
) -> None:
    """To look at the state opens the indexes, so it is not always looked at."""
    replicas = [Replica(append_next, settings), Replica(None, settings)]
    for step in steps:
        first, second = [each.do(step) for each in replicas]
        assert first == second
        if looks:
            assert state(replicas[0].log) == state(replicas[1].log)
    states = [state(each.log) for each in replicas]
    assert states[0] == states[1]
    files = []
    for each in replicas:
        each.log.close()
        names = each.disk.list_directory(DIRECTORY)
        files.append({name: each.disk.read_bytes(f"{DIRECTORY}/{name}") for name in names})
    assert files[0] == files[1]
    reopened: list[UnifiedLog] = [open_log(each.disk, each.config) for each in replicas]
    assert [log.log_end_offset for log in reopened] == [each.log.log_end_offset for each in replicas]
    assert state(reopened[0]) == state(reopened[1])


def test_a_segment_that_is_gone_is_not_kept_open() -> None:
    log = open_log(MemoryDisk())
    for _ in range(2):
        log.append_as_leader(batch_of([b"v"]), LEADER_EPOCH, NOW_MS)
    gone = ref(log.segments[-1])
    log.truncate_fully_and_start_at(7, NOW_MS)
    assert gone() is None


def test_most_of_them_go_the_short_way(append_next: AppendNext) -> None:
    replica = Replica(append_next, plain(1))
    for step in CUT:
        replica.do(step)
    assert replica.short > len(CUT) // 2
