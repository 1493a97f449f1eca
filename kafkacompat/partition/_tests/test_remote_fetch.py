"""Fetch and ListOffsets over the border between local files and the remote storage."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition import remote_fetch
from kafkacompat.partition._tests.kit import LedPartitions, partition_image, topic_image
from kafkacompat.partition._tests.services import SettingsInForce
from kafkacompat.partition._tests.test_fetch import FOLLOWER, bytes_of, now, one, parameters, rows, want
from kafkacompat.partition.remote_fetch import BEGUN_US, RemoteFetches
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import AbortedTransaction, LogRefused, TimestampOffset
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.remote.ports import RemoteStorageException, RemoteStorageNotReadyException
from kafkacompat.tasks import TURN_COST, Tasks
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse

T0 = TopicPartition("t", 0)
TIERED = LogConfig(
    remote_storage_enable=True,
    local_retention_bytes=1,
    retention_ms=-1,
    retention_bytes=-1,
    segment_bytes=1 << 20,
)


@dataclass
class Records:
    data: bytes
    aborted_transactions: Sequence[AbortedTransaction] = ()

    @property
    def records(self) -> memoryview:
        return memoryview(self.data)


class Remote:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int, bool]] = []
        self.answers: list[Deferred[Any]] = []
        self.throttle_ms = 0
        self.found: Deferred[TimestampOffset | None] = Deferred()

    def fetch_throttle_ms(self) -> int:
        return self.throttle_ms

    async def read(
        self, core: Any, offset: int, max_bytes: int, *, minimum_one_batch: bool, read_committed: bool
    ) -> Any:
        self.reads.append((offset, max_bytes, minimum_one_batch))
        answer: Deferred[Any] = Deferred()
        self.answers.append(answer)
        return await answer

    async def find_offset(self, core: Any, timestamp_ms: int) -> TimestampOffset | None:
        return await self.found


@dataclass
class TieredWorld:
    """Partitions whose first segments are in the remote storage only: offsets 0 and 1 of each."""

    partitions: int = 1
    world: LedPartitions = field(init=False)
    remote: Remote = field(init=False, default_factory=Remote)

    def __post_init__(self) -> None:
        images = {
            index: partition_image(replicas=(1, FOLLOWER), isr=(1,)) for index in range(self.partitions)
        }
        self.world = world = LedPartitions(topic_image("t", images))
        for index in range(self.partitions):
            world.manager.core(("t", index))
        world.settle()
        for index in range(self.partitions):
            log = world.log("t", index)
            log._has_remote_storage = True
            log.config = TIERED
            for value in (b"0", b"1", b"2", b"3"):
                if log.log_end_offset == 2:
                    log.roll(2, world.time.now_ms())
                world.produce("t", index, value)
                world.time.ms += 10
            log.set_high_watermark(4)
            log.note_copied_to(1)
            assert log.enforce_retention(world.time.now_ms()) == 1
        settings = SettingsInForce(
            lambda topic: TIERED,
            Counter({"remote.fetch.max.wait.ms": 500, "remote.list.offsets.request.timeout.ms": 30_000}),
        )
        fetches = RemoteFetches(Tasks(world.time), settings, self.remote)
        world.engine.remote = world.manager.remote = fetches

    @property
    def log(self) -> UnifiedLog:
        return self.world.log()

    def fetch(self, *partitions: Any, **changes: Any) -> Deferred[FetchResponse]:
        answer = self.world.engine.fetch(parameters(**changes), partitions, ())
        assert not isinstance(answer, FetchResponse | Deferred)
        return Tasks(self.world.time).run("a fetch", answer)


def test_a_fetch_below_the_local_start_waits_for_the_remote_storage() -> None:
    tiered = TieredWorld()
    answer = tiered.fetch(want(tiered.world, 0, 1, max_bytes=5000))
    assert not answer.done
    assert tiered.remote.reads == [(1, 5000, True)]
    tiered.remote.answers[0].resolve(Records(b"of the remote storage"))
    row = one(answer.result())
    assert (row.error_code, bytes(row.records)) == (0, b"of the remote storage")  # type: ignore[arg-type]
    assert (row.log_start_offset, row.high_watermark) == (0, 4)
    assert row.aborted_transactions is None


def test_local_reads_do_not_ask_the_remote_storage() -> None:
    tiered = TieredWorld()
    assert len(bytes_of(one(now(tiered.world, want(tiered.world, 0, 2))))) > 0
    assert one(now(tiered.world, want(tiered.world, 0, 9))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    tiered.log.increment_log_start_offset(1)
    assert one(now(tiered.world, want(tiered.world, 0, 0))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert tiered.remote.reads == []


def test_aborted_transactions_of_the_remote_storage_are_told() -> None:
    tiered = TieredWorld()
    answer = tiered.fetch(want(tiered.world, 0, 0), read_committed=True)
    tiered.remote.answers[0].resolve(Records(b"r", [AbortedTransaction(7, 0)]))
    told = one(answer.result()).aborted_transactions or []
    assert [(each.producer_id, each.first_offset) for each in told] == [(7, 0)]


def test_local_partitions_of_the_same_fetch_are_answered_with_it() -> None:
    tiered = TieredWorld(2)
    answer = tiered.fetch(want(tiered.world, 0, 2), want(tiered.world, 1, 0))
    (read,) = tiered.remote.reads
    assert not read[2]  # the local partition has given a batch
    tiered.remote.answers[0].resolve(Records(b"remote"))
    assert [len(row.records) > 0 for row in rows(answer.result())] == [True, True]  # type: ignore[arg-type]


def test_partitions_of_the_remote_storage_share_the_bytes_of_the_fetch() -> None:
    tiered = TieredWorld(3)
    tiered.fetch(*(want(tiered.world, index, 0) for index in range(3)), max_bytes=3000)
    assert tiered.remote.reads == [(0, 1000, True), (0, 1000, False), (0, 1000, False)]


def test_reads_of_many_partitions_are_begun_and_taken_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    tiered = TieredWorld(150)
    time, reads = tiered.world.time, tiered.remote.reads
    answer = tiered.fetch(*(want(tiered.world, index, 0) for index in range(150)))
    begun = [len(reads)]
    while time.step():
        begun.append(len(reads))
    most = TURN_COST // BEGUN_US + 1
    assert max(later - before for before, later in pairwise([0, *begun])) <= most
    assert len(reads) == 150
    taken = 0
    ends: list[int] = []
    original = remote_fetch._end_of

    def counted(*arguments: Any) -> int:
        nonlocal taken
        taken += 1
        return original(*arguments)

    monkeypatch.setattr(remote_fetch, "_end_of", counted)
    monkeypatch.setattr(remote_fetch, "TAKEN_US", BEGUN_US)
    for each in tiered.remote.answers:
        each.resolve(Records(b"remote"))
    while not answer.done:
        ends.append(taken)
        taken = 0
        assert time.step()
    assert max(ends) <= most
    assert [row.records for row in rows(answer.result())] == [b"remote"] * 150


def test_a_slow_store_costs_a_fetch_its_time_and_the_next_fetch_waits_for_the_same_read() -> None:
    tiered = TieredWorld()
    answer = tiered.fetch(want(tiered.world, 0, 0))
    tiered.world.time.advance(499)
    assert not answer.done
    tiered.world.time.advance(1)
    row = one(answer.result())
    assert (row.error_code, row.records) == (0, b"")
    again = tiered.fetch(want(tiered.world, 0, 0))
    assert len(tiered.remote.reads) == 1
    tiered.remote.answers[0].resolve(Records(b"late"))
    assert one(again.result()).records == b"late"
    tiered.fetch(want(tiered.world, 0, 0))
    assert len(tiered.remote.reads) == 2


def test_a_read_that_hangs_keeps_nothing_of_the_fetches_that_came_to_their_time() -> None:
    tiered = TieredWorld()
    for _ in range(3):
        answer = tiered.fetch(want(tiered.world, 0, 0))
        tiered.world.time.advance(500)
        assert answer.done
    assert tiered.world.engine.remote is not None
    (read,) = tiered.world.engine.remote._reading.values()
    assert len(read.task._callbacks or ()) == 1


def test_a_fetch_gets_no_more_than_it_wants_of_a_read_for_another() -> None:
    tiered = TieredWorld()
    batches = [bytes(build_batch([Record(0, 0, None, b"x" * 100)])) for _ in range(3)]
    size = len(batches[0])
    answers = [
        tiered.fetch(want(tiered.world, 0, 0, max_bytes=most)) for most in (3 * size, 2 * size + 1, 10)
    ]
    assert len(tiered.remote.reads) == 1
    tiered.remote.answers[0].resolve(Records(b"".join(batches)))
    assert [len(bytes_of(one(each.result()))) for each in answers] == [3 * size, 2 * size, size]


def test_what_clients_have_not_taken_yet_bounds_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = bytes(build_batch([Record(0, 0, None, b"x" * 100)]))
    size = len(batch)
    monkeypatch.setattr(remote_fetch, "HELD_BYTES_MAX", 4 * size)
    tiered = TieredWorld()
    answers = [tiered.fetch(want(tiered.world, 0, 0))]
    assert tiered.remote.reads == [(0, size, True)]
    other = tiered.fetch(want(tiered.world, 0, 1))  # what is being read counts too
    assert tiered.remote.reads.pop() == (1, 3 * size // 4, True)
    tiered.remote.answers.pop().resolve(Records(b""))
    other.result()
    for held in range(1, 5):
        tiered.remote.answers.pop().resolve(Records(batch))
        assert len(bytes_of(one(answers[-1].result()))) == size
        answers.append(tiered.fetch(want(tiered.world, 0, 0)))
        # With so much in memory each client still gets one batch.
        assert tiered.remote.reads.pop() == (0, (4 - held) * size // 4, True)
    tiered.remote.answers.pop().resolve(Records(b""))
    answers.clear()
    gc.collect()
    tiered.fetch(want(tiered.world, 0, 0))
    assert tiered.remote.reads.pop() == (0, size, True)


def test_a_fetch_that_wants_much_waits_for_no_read_that_gives_little() -> None:
    tiered = TieredWorld()
    first = tiered.fetch(want(tiered.world, 0, 0, max_bytes=100))
    second = tiered.fetch(want(tiered.world, 0, 0, max_bytes=1000))
    assert [most for _, most, _ in tiered.remote.reads] == [100, 1000]
    tiered.remote.answers[1].resolve(Records(b"much"))
    tiered.remote.answers[0].resolve(Records(b"little"))
    assert [one(each.result()).records for each in (first, second)] == [b"little", b"much"]
    tiered.fetch(want(tiered.world, 0, 0, max_bytes=1000))
    assert len(tiered.remote.reads) == 3


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (RemoteStorageException("of the store"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (LogRefused(ErrorCode.OFFSET_OUT_OF_RANGE, "nowhere"), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_failed_read_is_an_error_of_its_partition(problem: Exception, code: ErrorCode) -> None:
    tiered = TieredWorld(2)
    answer = tiered.fetch(want(tiered.world, 0, 0), want(tiered.world, 1, 0))
    tiered.remote.answers[0].fail(problem)
    tiered.remote.answers[1].resolve(Records(b"fine"))
    assert [(row.error_code, row.records) for row in rows(answer.result())] == [(code, b""), (0, b"fine")]


def test_a_bug_in_a_read_is_reported(faults: Any) -> None:
    tiered = TieredWorld()
    answer = tiered.fetch(want(tiered.world, 0, 0))
    tiered.remote.answers[0].fail(KeyError("a bug"))
    assert one(answer.result()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [type(error) for error in faults.take()] == [KeyError]


def test_metadata_that_is_not_loaded_yet_is_no_error() -> None:
    tiered = TieredWorld()
    answer = tiered.fetch(want(tiered.world, 0, 0))
    tiered.remote.answers[0].fail(RemoteStorageNotReadyException("loading"))
    assert not answer.done
    tiered.world.time.advance(100)
    row = one(answer.result())
    assert (row.error_code, row.records) == (0, b"")


def test_the_quota_on_remote_reads_makes_fetches_wait() -> None:
    tiered = TieredWorld()
    tiered.remote.throttle_ms = 300
    answer = tiered.fetch(want(tiered.world, 0, 0))
    tiered.world.time.advance(299)
    assert not answer.done
    tiered.world.time.advance(1)
    assert one(answer.result()).records == b""
    assert tiered.remote.reads == []


def test_a_follower_is_told_that_the_offset_is_not_local_any_more() -> None:
    tiered = TieredWorld()
    tiered.log.increment_log_start_offset(1)
    row = one(now(tiered.world, want(tiered.world, 0, 1), replica_id=FOLLOWER))
    assert row.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert row.log_start_offset == 1
    assert tiered.remote.reads == []


def test_a_fetch_of_very_many_partitions_reads_the_remote_storage_too() -> None:
    tiered = TieredWorld(1)
    unknown = [want(tiered.world, index, 0) for index in range(1, 600)]
    answer = tiered.fetch(want(tiered.world, 0, 0), *unknown)
    for _ in range(20):
        tiered.world.time.advance(0)
    tiered.remote.answers[0].resolve(Records(b"remote"))
    for _ in range(20):
        tiered.world.time.advance(0)
    assert [row.records for row in rows(answer.result()) if row.partition_index == 0] == [b"remote"]


# Offsets


def look_up(tiered: TieredWorld, timestamp_ms: int) -> tuple[int, ...]:
    found = tiered.world.manager.list_offset(T0, timestamp_ms, False, -1, -1)
    found = tiered.world.found(found)
    return found.error, found.timestamp_ms, found.offset, found.leader_epoch


def test_special_timestamps_of_a_tiered_partition() -> None:
    tiered = TieredWorld()
    assert look_up(tiered, -1) == (0, -1, 4, 0)
    assert look_up(tiered, -2) == (0, -1, 0, 0)
    assert look_up(tiered, -4) == (0, -1, 2, 0)
    assert look_up(tiered, -5) == (0, -1, 1, 0)
    assert look_up(tiered, -6) == (0, -1, 2, 0)


def test_what_is_not_known_to_be_copied_is_not_pending() -> None:
    tiered = TieredWorld()
    tiered.log.highest_offset_in_remote_storage = -1
    assert look_up(tiered, -5) == (0, -1, -1, -1)
    assert look_up(tiered, -6) == (0, -1, -1, -1)


def test_a_time_is_looked_for_in_the_remote_storage_first() -> None:
    tiered = TieredWorld()
    tiered.remote.found = Deferred.of(TimestampOffset(1, 1, 0))
    assert look_up(tiered, 0) == (0, 1, 1, 0)
    tiered.remote.found = Deferred.of(None)
    start = 1_700_000_000_000
    assert look_up(tiered, 0) == (0, start + 20, 2, 0)


def test_what_leaves_the_local_files_during_a_search_is_looked_for_in_the_remote_storage() -> None:
    tiered = TieredWorld()
    tiered.remote.found = Deferred.of(None)
    found = tiered.world.manager.list_offset(T0, 0, False, -1, -1)
    assert isinstance(found, Deferred)
    tiered.log.roll(4, tiered.world.time.now_ms())
    tiered.world.produce("t", 0, b"4")
    tiered.log.note_copied_to(3)
    assert tiered.log.enforce_retention(tiered.world.time.now_ms()) == 1
    tiered.remote.found = Deferred.of(TimestampOffset(2, 2, 0))
    assert tiered.world.found(found) == OffsetLookup(ErrorCode.NONE, 2, 2, 0)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (RemoteStorageException("of the store"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (RemoteStorageNotReadyException("loading"), ErrorCode.OFFSET_NOT_AVAILABLE),
    ],
)
def test_a_search_that_fails_gives_no_offset_of_the_local_files(problem: Exception, code: ErrorCode) -> None:
    tiered = TieredWorld()
    tiered.remote.found.fail(problem)
    assert look_up(tiered, 0)[0] == code


def test_a_search_has_its_time() -> None:
    tiered = TieredWorld()
    found = tiered.world.manager.list_offset(T0, 0, False, -1, -1)
    assert isinstance(found, Deferred)
    tiered.world.time.advance(30_000)
    assert found.result().error == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("timeout_ms", [1_000, 90_000])
def test_a_search_has_the_time_that_its_client_gives_it(timeout_ms: int) -> None:
    tiered = TieredWorld()
    found = tiered.world.manager.list_offset(T0, 0, False, -1, -1, timeout_ms=timeout_ms)
    assert isinstance(found, Deferred)
    tiered.world.time.advance(timeout_ms - 1)
    assert not found.done
    tiered.world.time.advance(1)
    assert found.result().error == ErrorCode.REQUEST_TIMED_OUT


def test_no_search_waits_for_longer_than_five_minutes() -> None:
    tiered = TieredWorld()
    found = tiered.world.manager.list_offset(T0, 0, False, -1, -1, timeout_ms=2**31 - 1)
    assert isinstance(found, Deferred)
    tiered.world.time.advance(299_999)
    assert not found.done
    tiered.world.time.advance(1)
    assert found.result().error == ErrorCode.REQUEST_TIMED_OUT


def test_a_log_without_a_remote_part_is_searched_as_ever() -> None:
    tiered = TieredWorld()
    tiered.log.increment_log_start_offset(2)
    tiered.log.config = replace(TIERED, local_retention_bytes=-2)
    assert look_up(tiered, 0)[2] == 2
