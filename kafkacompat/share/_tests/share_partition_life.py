"""A share-partition with everything around it: a log, members, a persister that answers late or fails, and a model beside it."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafkacompat.share._tests.model import Buried, Change, Model, Refusal
from kafkacompat.share.dead_letters import Cause, DeadLetters
from kafkacompat.share.service import ReadState, ShareError, SharePartitionKey, StateBatch
from kafkacompat.share.share_partition import SharePartition
from kafkacompat.share.transitions import AS_KAFKA_MAX, joined
from kafkacompat.share.values import (
    AbortedTransaction,
    AcknowledgementBatch,
    AcquireMode,
    FetchedBatch,
    PendingWrite,
    RecordState,
    SharePartitionState,
    ShareSettings,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.one_by_one import read

KEY = SharePartitionKey("g", bytes(16), 0)
FAILED = ShareError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")
TERMINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
ALWAYS, AT_TIMES, NEVER = 1.0, 0.5, 0.0


@dataclass
class Write:
    pending: PendingWrite
    change: Change | None
    """None for locks that have ended, and for dead letters that are written."""
    buried: Buried = field(default_factory=list)
    """Records whose dead letters wait for the answer."""
    is_applied: bool = False


@dataclass
class Hold:
    member: str
    until_ms: int
    is_acknowledged: bool = False


@dataclass
class Persisted:
    """What the share coordinator keeps."""

    start: int
    entries: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply(self, write: Write) -> None:
        state = write.pending.state
        self.start = max(self.start, state.start_offset)
        for first, last, delivery_state, count in state.batches:
            for offset in range(first, last + 1):
                # Writes may overtake each other. What was delivered more often is newer.
                before = self.entries.get(offset, (0, -1))
                self.entries[offset] = max(before, (delivery_state, count), key=lambda each: each[::-1])
        self.entries = {offset: each for offset, each in self.entries.items() if offset >= self.start}

    def batches(self) -> list[StateBatch]:
        result: list[StateBatch] = []
        for offset in sorted(self.entries):
            state, count = self.entries[offset]
            if result and result[-1] == (result[-1].first_offset, offset - 1, state, count):
                result[-1] = result[-1]._replace(last_offset=offset)
            else:
                result.append(StateBatch(offset, offset, state, count))
        return result


class SharePartitionLife:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.has_dead_letters = (ALWAYS, NEVER, AT_TIMES, ALWAYS)[seed % 4]
        self.settings = ShareSettings(
            record_lock_duration_ms=100,
            delivery_count_limit=self.random.choice([2, 3, 5, 10]),
            max_record_locks=60,
            has_dead_letters=self.has_dead_letters == ALWAYS,
        )
        self.log: list[FetchedBatch] = []
        self.log_start = 0
        self.log_end = self.random.randrange(10)
        self.aborted: list[tuple[AbortedTransaction, int]] = []
        """With the offsets of their markers."""
        self.is_committed_only = self.random.random() < 0.4
        self.aborted_offsets: set[int] = set()
        self.grow(3)
        self.persisted = Persisted(self.random.randrange(self.log_end))
        self.writes: list[Write] = []
        self.holds: dict[int, Hold] = {}
        self.done: set[int] = set()
        """Offsets whose acceptance is persisted."""
        self.letters: list[DeadLetters] = []
        """Those on their way."""
        self.lettered: set[int] = set()
        """Offsets whose dead letters were written or given up."""
        self.needs_no_letter: set[int] = set()
        """Offsets that have no record, or that were archived while the group had no dead-letter topic."""
        self.in_doubt: set[int] = set()
        """Undeliverable offsets of a write that failed. The persister may have written it or not."""
        self.lead()

    # The log

    def grow(self, batches: int) -> None:
        for _ in range(batches):
            begin = self.log_end
            self.log_end += self.random.choice([1, 1, 2, 3, 5, 10, 25])
            batch = FetchedBatch(begin, self.log_end - 1)
            if self.random.random() < 0.2:
                batch = batch._replace(producer_id=self.random.randrange(2), is_transactional=True)
                if self.random.random() < 0.5:
                    self.aborted.append((AbortedTransaction(batch.producer_id, begin), self.log_end))
                    self.aborted_offsets.update(range(begin, self.log_end))
                    marker = FetchedBatch(self.log_end, self.log_end, batch.producer_id, True, True)
                    self.log += [batch, marker]
                    self.log_end += 1
                    continue
            self.log.append(batch)

    def compact(self) -> None:
        """The log loses a batch that is not its last one, and with a marker the transaction that it ends."""
        plain = [batch for batch in self.log[:-1] if batch.producer_id < 0]
        if plain:
            self.log.remove(self.random.choice(plain))

    def move_log_start(self) -> None:
        self.log_start = min(self.log_end, self.log_start + self.random.randrange(1, 30))
        self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        self.partition.update_cache_and_offsets(self.log_start)
        self.model.follow_log_start(self.log_start)

    # Leadership

    def lead(self) -> None:
        """A new leader reads what is persisted. Writes that are under way may still be applied, but nobody hears of it."""
        for write in self.writes:
            if not write.is_applied and self.random.random() < 0.5:
                self.apply(write)
        self.writes = []
        for letters in self.letters:
            if self.random.random() < 0.5:
                self.deliver(letters)
        self.letters = []
        self.holds = {}
        self.waiting: set[str] = set()
        """Members whose fetches wait until something makes records acquirable."""
        self.counts: dict[int, int] = {}
        self.partition = SharePartition(KEY, "t", 1, lambda: self.settings)
        self.model = Model(self.settings)
        assert self.partition.begin_initialization() is None
        batches = self.persisted.batches()
        outcome = self.partition.initialize(ReadState(start_offset=self.persisted.start, batches=batches), 0)
        assert outcome.code is ErrorCode.NONE
        assert self.partition.state is SharePartitionState.ACTIVE
        self.model.load(self.persisted.start, batches)
        self.terminal: set[int] = set()
        self.note_terminal(self.persisted.entries)
        self.lowest_start = self.persisted.start
        self.done.update(offset for offset, (state, _) in self.persisted.entries.items() if state == 2)
        self.take_letters()

    # Members

    def fetch(self, member: str) -> int:
        self.model.settings = self.settings
        can_acquire = self.partition.can_acquire_records()
        assert can_acquire == self.model.can_acquire()
        if self.partition.take_wakeup():
            self.waiting.clear()
        if not can_acquire:
            self.waiting.add(member)
            return 0
        assert member not in self.waiting, "nothing has woken the fetch that waits"
        offset = self.partition.next_fetch_offset()
        assert offset == self.model.next_fetch_offset()
        if offset < self.log_start:
            self.partition.update_cache_and_offsets(self.log_start)
            self.model.follow_log_start(self.log_start)
            return 0
        found = [batch for batch in self.log if batch.last_offset >= offset][: self.random.randrange(1, 6)]
        if not found:
            return 0
        exact = self.random.random() < 0.5
        size = self.random.choice([1, 5, 500])
        most = self.random.choice([1, 3, 10, 500])
        aborted = [
            each
            for each, marker in self.aborted
            if each.first_offset <= found[-1].last_offset and marker >= found[0].base_offset
        ]
        mode = AcquireMode.RECORD_LIMIT if exact else AcquireMode.BATCH_OPTIMIZED
        acquired = self.partition.acquire(
            member, mode, size, most, offset, found, aborted, self.is_committed_only, self.now
        )
        hidden = aborted if self.is_committed_only else []
        expected = self.model.acquire(member, exact, size, most, offset, found, hidden, self.now)
        assert list(acquired.records) == expected
        assert acquired.count == sum(last - first + 1 for first, last, _ in expected)
        if exact:
            assert acquired.count <= most
        for first, last, count in acquired.records:
            for each in range(first, last + 1):
                self.hold(each, member, count)
        return acquired.count

    def hold(self, offset: int, member: str, count: int) -> None:
        hold = self.holds.get(offset)
        assert hold is None or hold.until_ms <= self.now, f"{offset} is held by {hold}"
        assert offset not in self.done, f"{offset} was accepted"
        assert not (self.is_committed_only and offset in self.aborted_offsets)
        assert count > self.counts.get(offset, 0)
        self.counts[offset] = count
        self.holds[offset] = Hold(member, self.now + self.settings.record_lock_duration_ms)

    def acknowledge(self, member: str) -> None:
        self.acknowledge_these(member, self.some_batches(member))

    def accept_all(self, member: str) -> None:
        for offset, entry in sorted(self.model.entries.items()):
            if entry.member == member and offset >= self.model.start:
                self.acknowledge_these(member, [AcknowledgementBatch(offset, offset, [1])])

    def is_drained(self) -> bool:
        return self.partition.next_fetch_offset() >= self.log_end and all(
            entry.is_settled for entry in self.model.entries.values()
        )

    def some_batches(self, member: str) -> list[AcknowledgementBatch]:
        """Mostly of what the member holds, at times of anything."""
        held = sorted(offset for offset, hold in self.holds.items() if hold.member == member)
        if self.random.random() < 0.15 or not held:
            first = self.random.randrange(self.log_end + 5)
            held = list(range(first, first + self.random.randrange(1, 12)))
        batches: list[AcknowledgementBatch] = []
        at = self.random.randrange(len(held))
        ones = self.random.random() < 0.4
        while at < len(held) and len(batches) < (25 if ones else 5):
            begin = at
            most = self.random.choice([1, 2, 5, 30])
            while at + 1 < len(held) and held[at + 1] == held[at] + 1 and at - begin + 1 < most:
                at += 1
            size = held[at] - held[begin] + 1
            kinds = [0, 1, 1, 1, 2, 2, 3, 4] + ([5] if self.random.random() < 0.02 else [])
            each = self.random.random() < 0.4
            if ones:
                batches += [
                    AcknowledgementBatch(held[i], held[i], [self.random.choice(kinds)])
                    for i in range(begin, at + 1)
                ]
                at += self.random.choice([1, 1, 3])
                continue
            types = [self.random.choice(kinds) for _ in range(size if each else 1)]
            batches.append(AcknowledgementBatch(held[begin], held[at], types))
            at += self.random.choice([1, 1, 3])
        return batches

    def acknowledge_these(self, member: str, batches: list[AcknowledgementBatch]) -> None:
        self.model.settings = self.settings
        told = together(batches) if self.random.random() < 0.8 else batches
        outcome = self.partition.acknowledge(member, told, self.now)
        try:
            change = self.model.acknowledge(member, batches, self.now)
        except Refusal as refusal:
            self.refused(outcome, str(refusal))
        else:
            self.needs_no_letter.update(gaps_of(batches) & set(change.offsets))
            self.written(outcome, change)
        self.take_letters()
        self.renew_holds(member)

    def refused(self, outcome: PendingWrite | ShareError, message: str) -> None:
        assert isinstance(outcome, ShareError)
        assert outcome.message == message

    def renew_holds(self, member: str) -> None:
        """A renewed lock lasts from now on, whatever became of the rest of the request."""
        for offset, entry in self.model.entries.items():
            hold = self.holds.get(offset)
            if hold is not None and entry.member == hold.member == member and entry.deadline is not None:
                hold.until_ms = entry.deadline

    def written(self, outcome: PendingWrite | ShareError, change: Change) -> None:
        if not change.offsets:
            assert outcome == ShareError()
            return
        assert isinstance(outcome, PendingWrite)
        state = outcome.state
        assert expanded(state.batches) == change.written
        batches = self.model.batches_of(change)
        assert state.batches == (batches if len(batches) <= AS_KAFKA_MAX else joined(batches))
        assert state.start_offset == self.model.start
        assert state.delivery_complete_count == self.model.complete_count
        self.note_archived(change.written)
        self.writes.append(Write(outcome, change))
        for offset in change.offsets:
            if offset in self.holds:
                self.holds[offset].is_acknowledged = True

    def release(self, member: str) -> None:
        self.model.settings = self.settings
        self.written(self.partition.release_acquired_records(member), self.model.release(member))

    # Time and the persister

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.model.settings = self.settings
        deadline = self.partition.next_lock_deadline_ms()
        locked = [
            entry.deadline
            for entry in self.model.entries.values()
            if entry.state is RecordState.ACQUIRED and entry.deadline is not None
        ]
        assert not locked or (deadline is not None and deadline <= min(locked))
        if deadline is None or deadline > self.now:
            return
        write = self.partition.expire_locks(self.now)
        expected = self.model.expire(self.now)
        assert (expanded(write.state.batches) if write else {}) == expected
        if write is not None:
            assert write.state.delivery_complete_count == self.model.complete_count
            self.note_archived(expected)
            self.writes.append(Write(write, None, buried_of(expected)))
        self.note_terminal(expected)
        for offset in expected:
            self.holds.pop(offset, None)

    def apply(self, write: Write) -> None:
        write.is_applied = True
        for offset, (state, _) in expanded(write.pending.state.batches).items():
            assert state != RecordState.ARCHIVED or self.may_be_archived(offset), (
                f"{offset} has no dead letter"
            )
        self.persisted.apply(write)

    def answer(self, succeeds: bool = True) -> None:
        """The persister answers one of its writes, at times with an error although it has written."""
        if not self.writes:
            return
        write = self.writes.pop(0 if self.random.random() < 0.8 else self.random.randrange(len(self.writes)))
        if succeeds or self.random.random() < 0.3:
            self.apply(write)
        if succeeds or write.change is None:
            self.note_terminal(expanded(write.pending.state.batches))
        if not succeeds:
            self.in_doubt.update(offset for offset, _, _ in buried_of(expanded(write.pending.state.batches)))
        self.partition.write_completed(write.pending.token, ShareError() if succeeds else FAILED, self.now)
        change = write.change
        if change is None:
            self.model.buried += write.buried
            self.model.advance()
        elif succeeds:
            self.done.update(offset for offset, each in change.written.items() if each[0] == 2)
            self.model.complete(change)
        else:
            self.model.undo(change, self.now)
            self.undone(change, write.is_applied)
        self.take_letters()
        for offset in change.offsets if change is not None else ():
            entry = self.model.entries.get(offset)
            if entry is None or entry.state is not RecordState.ACQUIRED:
                self.holds.pop(offset, None)

    def undone(self, change: Change, is_applied: bool) -> None:
        states = {offset: self.state_of(offset) for offset in change.offsets}
        if not is_applied:
            kept = self.persisted.entries
            self.needs_no_letter.difference_update(
                each for each in change.offsets if kept.get(each, (0, 0))[0] != RecordState.ARCHIVED
            )
        if change.undeliverable is RecordState.ARCHIVED:
            self.needs_no_letter.update(
                offset for offset, (state, _) in states.items() if state == RecordState.ARCHIVED
            )
        self.in_doubt.update(offset for offset, _, _ in buried_of(states))
        self.note_terminal(states)

    # Dead letters

    def take_letters(self) -> None:
        taken = self.partition.take_dead_letters()
        told = [
            (offset, each.delivery_count, each.cause)
            for each in taken
            for offset in range(each.first_offset, each.last_offset + 1)
        ]
        assert sorted(told, key=str) == sorted(self.model.take_buried(), key=str)
        self.letters += taken

    def write_letter(self) -> None:
        """One is written, or given up."""
        if not self.letters:
            return
        letters = self.letters.pop(
            0 if self.random.random() < 0.8 else self.random.randrange(len(self.letters))
        )
        self.deliver(letters)
        write = self.partition.dead_letters_written(letters)
        expected = self.model.letters_written(range(letters.first_offset, letters.last_offset + 1))
        assert (expanded(write.state.batches) if write else {}) == expected
        self.note_terminal(expected)
        if write is not None:
            assert write.state.delivery_complete_count == self.model.complete_count
            self.writes.append(Write(write, None))

    def deliver(self, letters: DeadLetters) -> None:
        for offset in range(letters.first_offset, letters.last_offset + 1):
            assert offset not in self.done or offset in self.in_doubt, f"{offset} was accepted"
            self.lettered.add(offset)

    def note_archived(self, states: dict[int, tuple[int, int]]) -> None:
        """Records are archived at once if their group has no dead-letter topic, or if the log has lost them."""
        for offset, (state, _) in states.items():
            if state == RecordState.ARCHIVED and (
                not self.settings.has_dead_letters or offset < self.model.start
            ):
                self.needs_no_letter.add(offset)

    def may_be_archived(self, offset: int) -> bool:
        is_hidden = self.is_committed_only and offset in self.aborted_offsets
        return (
            offset in self.lettered or offset in self.needs_no_letter or is_hidden or not self.exists(offset)
        )

    def change_settings(self) -> None:
        self.waiting.clear()  # a setting wakes nobody
        self.settings = replace(
            self.settings,
            record_lock_duration_ms=self.random.choice([50, 100, 200]),
            delivery_count_limit=self.random.choice([2, 3, 5, 10]),
            max_record_locks=self.random.choice([20, 60, 100]),
            renew_acknowledge_enabled=self.random.random() < 0.8,
            has_dead_letters=self.random.random() < self.has_dead_letters,
        )

    # What always holds

    def check(self) -> None:
        partition, model = self.partition, self.model
        assert (partition.start_offset, partition.end_offset) == (model.start, model.end)
        assert partition.delivery_complete_count == model.complete_count
        assert partition.in_flight_records() == model.in_flight
        assert partition.in_flight_batches() == len(model.batches)
        records = partition._records
        for batch, expected in zip(records.batches, model.batches, strict=True):
            assert (batch.first, batch.last, batch.per_offset) == (
                expected.first,
                expected.last,
                expected.is_split,
            )
            assert (batch.runs[0].first, batch.runs[-1].last) == (batch.first, batch.last)
            assert batch.per_offset or len(batch.runs) == 1
            for run, after in zip(batch.runs, batch.runs[1:], strict=False):
                assert run.last + 1 == after.first
                assert not run.is_alike(after)
            for run in batch.runs:
                for offset in range(run.first, run.last + 1):
                    entry = model.entries[offset]
                    assert (run.state, run.delivery_count, run.member_id, run.deadline_ms) == (
                        entry.state,
                        entry.count,
                        entry.member,
                        entry.deadline,
                    ), offset
                    assert (run.transition is None) == (entry.pending is None)
        assert partition.start_offset >= self.lowest_start
        for offset in range(self.lowest_start, partition.start_offset):
            self.check_passed(offset)
        self.lowest_start = partition.start_offset

        if model.batches and model.start <= model.batches[-1].last:
            for written in self.log:
                for offset in range(
                    max(written.base_offset, model.start), min(written.last_offset, model.end) + 1
                ):
                    assert offset in model.entries or (
                        model.gap is not None and model.has_gaps and model.gap[0] <= offset
                    ), f"{offset} is lost"

    def check_passed(self, offset: int) -> None:
        """The start offset moves over what is terminal or not in the log."""
        is_hidden = self.is_committed_only and offset in self.aborted_offsets
        assert offset in self.terminal or is_hidden or not self.exists(offset), f"{offset} is skipped"
        assert offset in self.done or self.may_be_archived(offset), f"{offset} has no dead letter"

    def note_terminal(self, states: dict[int, tuple[int, int]]) -> None:
        for offset, (state, _) in states.items():
            if state in TERMINAL:
                self.terminal.add(offset)

    def state_of(self, offset: int) -> tuple[int, int]:
        entry = self.model.entries[offset]
        return int(entry.state), entry.count

    def exists(self, offset: int) -> bool:
        return offset >= self.log_start and any(
            batch.base_offset <= offset <= batch.last_offset for batch in self.log
        )


def together(batches: Sequence[AcknowledgementBatch]) -> Sequence[AcknowledgementBatch]:
    """As a request has them: if they are of one offset each, they are read together."""
    if any(first != last or len(types) != 1 for first, last, types in batches):
        return batches
    data = b"".join([struct.pack(">qqBBB", first, first, 2, types[0], 0) for first, _, types in batches])
    return read(AcknowledgementBatch, data, 0, len(batches)) or batches


def gaps_of(batches: list[AcknowledgementBatch]) -> set[int]:
    return {
        offset
        for first, last, types in batches
        for offset in range(first, last + 1)
        if types[0 if len(types) == 1 else offset - first] == 0
    }


def buried_of(states: dict[int, tuple[int, int]]) -> Buried:
    """Of locks that have ended."""
    return [
        (offset, count, Cause.DELIVERY_COUNT_EXCEEDED)
        for offset, (state, count) in states.items()
        if state == RecordState.ARCHIVING
    ]


def expanded(batches: object) -> dict[int, tuple[int, int]]:
    entries: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:  # type: ignore[attr-defined]
        for offset in range(first, last + 1):
            assert offset not in entries
            entries[offset] = (state, count)
    return entries
