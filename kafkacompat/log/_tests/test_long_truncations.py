"""Truncations of logs in which producers have written much since the last snapshot: what is read before, in pieces."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from kafkacompat.log import replay
from kafkacompat.log._tests.logs import NOW_MS, batch_of, config, marker, open_log
from kafkacompat.log._tests.memory_disk import CountingDisk, MemoryDisk
from kafkacompat.log.cleaner._tests.cleaning import COMPACT, clean
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.replay import REPLAY_CHUNK, REPLAYED_AT_ONCE, replay_segments
from kafkacompat.log.unified_log import ProducersAsOf, UnifiedLog
from kafkacompat.tasks import Work, at_once

ROOMY = config(segment_bytes=1 << 24, index_interval_bytes=4000)


def fields_of(state: ProducerStateManager) -> object:
    """Everything that a state knows of producers and their transactions."""
    producers = {
        each.producer_id: tuple(getattr(each, name) for name in type(each).__slots__)
        for each in state.producers.values()
    }
    return (
        producers,
        state._ongoing,
        list(state._unreplicated.items()),
        list(state._begun),
        list(state._open),
        state.first_unstable_offset,
    )


def read_at_once(log: UnifiedLog, offset: int) -> ProducerStateManager:
    state = ProducerStateManager()
    at_once(log._read_state(state, log._segments.look_at(offset)))
    return state


def idempotent(log: UnifiedLog, count: int, size: int = 10) -> None:
    for number in range(count):
        log.append_as_leader(
            batch_of([b"v" * size], producer_id=7, producer_epoch=0, base_sequence=number), 0, NOW_MS
        )


def test_what_producers_have_written_is_read_in_pieces_before_a_truncation() -> None:
    disk = CountingDisk()
    log = open_log(disk, ROOMY)
    count = 4 * REPLAYED_AT_ONCE + 5
    idempotent(log, count, 500)
    work = log.producers_as_of(count - 1)
    most = log.size_bytes() // 4 + 2 * REPLAY_CHUNK
    for _ in range(4):
        disk.bytes_read = 0
        next(work)
        assert disk.bytes_read < most
    disk.bytes_read = 0
    log.truncate_to(count - 1, producers=at_once(work))
    assert disk.bytes_read < most
    assert [(each.producer_id, each.last_sequence) for each in log.active_producers()] == [(7, count - 2)]


def test_of_a_large_batch_little_is_read() -> None:
    disk = CountingDisk()
    log = open_log(disk, ROOMY)
    idempotent(log, 20, 10 * REPLAY_CHUNK)
    disk.bytes_read = 0
    log.truncate_to(19, producers=at_once(log.producers_as_of(19)))
    assert disk.bytes_read < log.size_bytes() // 5


def test_what_is_short_or_above_the_end_is_not_put_off() -> None:
    log = open_log(MemoryDisk(), ROOMY)
    for _ in range(2 * REPLAYED_AT_ONCE):
        log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    assert list(log.producers_as_of(log.log_end_offset - 1)) == [], "no producer is known"
    idempotent(log, 1)
    assert list(log.producers_as_of(log.log_end_offset)) == []
    assert list(log.producers_as_of(-1)) == []
    assert len(list(log.producers_as_of(log.log_end_offset - 1))) == 2


def test_an_error_that_is_met_before_a_truncation_is_raised_by_it() -> None:
    disk = MemoryDisk()
    log = open_log(disk, ROOMY)
    idempotent(log, 10)
    log.segments[-1].release()

    def refuse(operation: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "too many open files", path) if operation == "open" else None

    disk.refuse = refuse
    producers = at_once(log.producers_as_of(5))
    assert producers is None
    with pytest.raises(OSError, match="too many open files"):
        log.truncate_to(5, producers=producers)
    assert log.log_end_offset == 10
    disk.refuse = None
    log.truncate_to(5, producers=at_once(log.producers_as_of(5)))
    assert [each.last_sequence for each in log.active_producers()] == [4]


def test_producers_of_another_log_or_offset_or_from_before_another_truncation_are_not_taken() -> None:
    log, other = open_log(MemoryDisk(), ROOMY), open_log(MemoryDisk(), ROOMY)
    idempotent(log, 10)
    for number in range(10):
        other.append_as_leader(
            batch_of([b"v"], producer_id=8, producer_epoch=0, base_sequence=number), 0, NOW_MS
        )
    log.truncate_to(8, producers=at_once(other.producers_as_of(8)))
    log.truncate_to(7, producers=at_once(log.producers_as_of(3)))
    early = at_once(log.producers_as_of(5))
    log.truncate_to(4)
    log.append_as_leader(batch_of([b"v"], producer_id=9, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    log.truncate_to(5, producers=early)
    found = {each.producer_id: each.last_sequence for each in log.active_producers()}
    assert found == {7: 3, 9: 0}


class Writer:
    """Writes at random as idempotent and transactional producers do, and does to the log what may happen to it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.is_compacted = chance.random() < 0.4
        self.settings = replace(
            COMPACT if self.is_compacted else config(),
            segment_bytes=chance.choice([700, 2500, 1 << 20]),
            retention_ms=-1,
        )
        self.disk = MemoryDisk()
        self.log = open_log(self.disk, self.settings)
        self.is_whole = True
        """Nothing was deleted or cleaned away, so the log tells everything."""

    def write(self) -> None:
        log, chance = self.log, self.chance
        producer_id = chance.choice([-1, 1, 2, 3, 4, 5])
        if producer_id < 0:
            log.append_as_leader(batch_of([b"plain"] * chance.randrange(1, 4)), 0, NOW_MS)
            return
        known = log.producer_state.producers.get(producer_id)
        epoch = max(known.epoch, 0) if known is not None else 0
        bumps = chance.random() < 0.15
        if producer_id > 2 and known is not None and chance.random() < 0.4:
            # Also without a transaction, and of a later epoch.
            committed = chance.random() < 0.5
            log.append_as_leader(
                marker(
                    producer_id,
                    committed=committed,
                    epoch=epoch + bumps,
                    coordinator_epoch=max(known.coordinator_epoch, 0) + (chance.random() < 0.1),
                ),
                0,
                NOW_MS + chance.randrange(100),
            )
            return
        last = known.batches[-1].last_sequence if known is not None and known.batches else -1
        log.append_as_leader(
            batch_of(
                [b"%d" % chance.randrange(9)] * chance.randrange(1, 4),
                NOW_MS + chance.randrange(100),
                producer_id=producer_id,
                producer_epoch=epoch + bumps,
                base_sequence=0 if bumps else last + 1,
                is_transactional=producer_id > 2,
            ),
            0,
            NOW_MS,
        )

    def meet(self) -> None:
        """Something that happens to a log."""
        log, chance = self.log, self.chance
        what = chance.random()
        if what < 0.4:
            self.write()
        elif what < 0.5:
            log.roll(log.log_end_offset, NOW_MS)
        elif what < 0.6:
            log.set_high_watermark(chance.randrange(log.high_watermark, log.log_end_offset + 1))
        elif what < 0.7 and self.is_compacted:
            clean(self.disk, log, NOW_MS + chance.choice([0, 10**9]))
            self.is_whole = False
        elif what < 0.75 and not self.is_compacted and len(log.segments) > 3:
            log.increment_log_start_offset(min(log.segments[2].base_offset, log.high_watermark))
            log.enforce_retention(NOW_MS)
            self.is_whole = False

    def lose_a_snapshot(self) -> None:
        """As where the disk had no room for it."""
        if self.log._snapshots.offsets:
            self.log._snapshots.remove(self.chance.choice(self.log._snapshots.offsets))

    def restart(self) -> None:
        self.log.close()
        self.log = open_log(self.disk, self.settings, clean=True, high_watermark=self.log.high_watermark)


def carried_out(writer: Writer, work: Work[ProducersAsOf | None], truncates: bool) -> ProducersAsOf | None:
    """The value of a work between whose pieces much may happen."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: ProducersAsOf | None = end.value
            return found
        if writer.chance.random() < 0.3:
            writer.meet()
        if truncates and writer.chance.random() < 0.02:
            log = writer.log
            log.truncate_to(writer.chance.randrange(log.log_start_offset, log.log_end_offset + 1))
            for _ in range(20):
                writer.write()


@pytest.mark.parametrize("seed", range(60))
def test_producers_read_in_pieces_while_the_log_goes_on_are_those_of_a_whole_replay(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "REPLAYED_AT_ONCE", 1 + seed % 3)
    writer = Writer(seed)
    chance = writer.chance
    taken = 0
    for _ in range(8):
        for _ in range(chance.randrange(5, 60)):
            writer.write() if chance.random() < 0.8 else writer.meet()
        if chance.random() < 0.2:
            writer.restart()
        if writer.is_whole and chance.random() < 0.3:
            writer.lose_a_snapshot()
        log = writer.log
        offset = chance.randrange(log.log_start_offset, log.log_end_offset + 1)
        if chance.random() < 0.5:
            offset = max(offset, log.log_end_offset - chance.randrange(8))
        producers = carried_out(writer, log.producers_as_of(offset), truncates=chance.random() < 0.3)
        if not max(log.log_start_offset, log.segments[0].base_offset) <= offset < log.log_end_offset:
            continue
        assert producers is not None
        at = log._segments.look_at(offset)
        assert producers[:2] == (log._basis(), at), "it is taken"
        if log._state.producers:
            assert fields_of(producers.state) == fields_of(read_at_once(log, offset))
        whole = ProducerStateManager()
        replay_segments(whole, log.segments, at)
        log.truncate_to(offset, producers=producers)
        taken += 1
        if writer.is_whole and producers.state.producers:
            assert log.producer_state.producers.keys() == whole.producers.keys()
            for each in log.producer_state.producers.values():
                other = whole.producers[each.producer_id]
                # A snapshot has the last batch only, with the time of a marker that came after it.
                kept = [batch[:3] for batch in each.batches]
                assert kept == [batch[:3] for batch in other.batches[len(other.batches) - len(kept) :]]
                assert bool(kept) == bool(other.batches)
                for name in ("epoch", "coordinator_epoch", "last_timestamp_ms", "transaction_first_offset"):
                    assert getattr(each, name) == getattr(other, name)
            assert log.producer_state._ongoing == whole._ongoing
    assert taken
