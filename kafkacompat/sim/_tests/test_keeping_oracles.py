"""The oracles of cleaning and retention find the errors they exist for, and accept correct behaviour."""

from __future__ import annotations

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.records.batch import BatchHeader, build_batch, parse_header, stamp_offset_and_epoch
from kafkacompat.records.record import Record
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import DELETE_RETENTION_MS, UNCLEAN
from kafkacompat.sim.partition_history import (
    COMMIT_MARKER,
    Content,
    KeyHistory,
    LogStartHistory,
    PartitionHistory,
    contents_of,
    written,
)
from kafkacompat.sim.processes import BYTES_MAX, CALLS_MAX, StepWork

ABORT_MARKER = b"\x00\x00\x00\x00"
LONG_AFTER_US = 1000 * (DELETE_RETENTION_MS + 1)


def batch(
    base_offset: int, *contents: tuple[bytes | None, bytes | None], timestamp_ms: int = 0, **options: int
) -> tuple[BatchHeader, bytes]:
    records = [Record(index, timestamp_ms, *content, ()) for index, content in enumerate(contents)]
    data = build_batch(records, **options)  # type: ignore[arg-type]
    stamp_offset_and_epoch(data, base_offset, 0)
    return parse_header(data), bytes(data)


def keys_of(*batches: tuple[BatchHeader, bytes]) -> KeyHistory:
    ledger = KeyHistory()
    for header, data in batches:
        ledger.commit(header, contents_of(header, data), 0)
    return ledger


def judge(
    ledger: KeyHistory, present: dict[int, Content], now_us: int = 0, met: frozenset[int] = frozenset()
) -> None:
    ledger.check("a log", present, 1 + max(ledger.entries), now_us, set(met))


def only(ledger: KeyHistory, *offsets: int) -> dict[int, Content]:
    return {offset: ledger.entries[offset].content for offset in offsets}


def test_only_what_is_replaced_may_be_gone() -> None:
    ledger = keys_of(batch(0, (b"a", b"1"), (b"b", b"1")), batch(2, (b"a", b"2")))
    judge(ledger, only(ledger, 0, 1, 2))
    judge(ledger, only(ledger, 1, 2))
    for offsets in ((1,), (0, 2), (0,)):
        with pytest.raises(Breach, match="each key's last value stays"):
            judge(ledger, only(ledger, *offsets))


def test_what_was_aborted_may_be_gone_and_replaces_nothing() -> None:
    ledger = keys_of(
        batch(0, (b"a", b"1")),
        batch(1, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        batch(
            2, (ABORT_MARKER, b""), producer_id=7, producer_epoch=0, is_transactional=True, is_control=True
        ),
    )
    judge(ledger, only(ledger, 0))
    with pytest.raises(Breach, match="each key's last value stays"):
        judge(ledger, only(ledger, 1, 2))


def test_an_open_transaction_stays_and_replaces_nothing() -> None:
    opened = batch(1, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = batch(
        2, (COMMIT_MARKER, b""), producer_id=7, producer_epoch=0, is_transactional=True, is_control=True
    )
    ledger = keys_of(batch(0, (b"a", b"1")), opened)
    for offsets in ((0,), (1,)):
        with pytest.raises(Breach, match="each key's last value stays"):
            judge(ledger, only(ledger, *offsets))
    ledger.commit(marker[0], contents_of(*marker), 0)
    judge(ledger, only(ledger, 1))


def test_a_tombstone_goes_after_its_time_and_not_before_what_it_replaces() -> None:
    ledger = keys_of(batch(0, (b"a", b"1")), batch(1, (b"a", None)))
    judge(ledger, only(ledger, 1))
    with pytest.raises(Breach, match="each key's last value stays"):
        judge(ledger, {})
    judge(ledger, {}, LONG_AFTER_US)
    judge(ledger, only(ledger, 0), LONG_AFTER_US)  # for a log that never had the tombstone
    with pytest.raises(Breach, match="tombstones are respected"):
        judge(ledger, only(ledger, 0), LONG_AFTER_US, frozenset({1}))


def test_a_log_start_moves_by_time_by_size_or_where_it_was_asked_for() -> None:
    def starts(retention_ms: int, retention_bytes: int) -> LogStartHistory:
        ledger = LogStartHistory(retention_ms, retention_bytes)
        for offset in range(3):
            ledger.commit(batch(offset, (None, b"x"), timestamp_ms=offset * 100)[0])
        return ledger

    assert starts(100, -1).moved("a log", 2, 0, 201)
    assert starts(-1, 500).moved("a log", 2, 500, 0)
    for ledger, bytes_left, now_ms in (
        (starts(100, -1), 0, 200),
        (starts(-1, 500), 499, 0),
        (starts(-1, -1), 9, 9),
    ):
        with pytest.raises(Breach, match="log starts move for a reason"):
            ledger.moved("a log", 2, bytes_left, now_ms)
    asked = LogStartHistory()
    asked.asked = 2
    assert not asked.moved("a log", 2, 0, 0)
    with pytest.raises(Breach, match="asked for was 2"):
        asked.moved("a log", 3, 0, 0)


def test_an_unclean_election_loses_what_the_leader_lacks_and_nothing_else() -> None:
    ledger = PartitionHistory(TopicPartition(UNCLEAN, 0), LogStartHistory())
    batches = [written(batch(offset, (None, b"%d" % offset))[0]) for offset in range(4)]
    ledger.batches = dict(enumerate(batches))
    ledger.end, ledger.ends = 4, [(0, 2), (1, 4)]
    assert ledger.history.begins_with(5) is None
    ledger.history.elections.add(3)
    assert ledger.history.begins_with(2) is None
    assert ledger.history.begins_with(4) == 3
    ledger.cut(3)
    ledger.history.line = 3
    assert ledger.history.begins_with(4) is None
    assert (ledger.end, ledger.end_before(2), sorted(ledger.batches)) == (3, 3, [0, 1, 2])
    assert ledger.was_committed(3, batches[3])
    assert not ledger.was_committed(3, batches[2])


def test_a_step_that_does_much_is_found_and_a_workers_job_is_none() -> None:
    work = StepWork()
    work.begin("a step")
    for _ in range(CALLS_MAX):
        work.disk_called()
    work.duty = "reads"
    work.disk_called()
    work.moved(BYTES_MAX + 1)
    work.duty = None
    work.check(1)
    work.disk_called()
    with pytest.raises(Breach, match=f"node 1 takes {CALLS_MAX + 1} calls of the disk in one step: a step"):
        work.check(1)
    work.begin("the next")
    work.check(1)
