"""The producers of one partition, compared with a model that keeps the whole log and derives everything from it each
time."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkacompat.log.producer_snapshots import decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import (
    RETAINED_BATCHES,
    BatchMetadata,
    ProducerStateManager,
)
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode as E

NOW_MS = 1_700_000_000_000
PRODUCERS = st.integers(1, 3)


class Entry(NamedTuple):
    """A batch, or a marker if `committed` is not None."""

    producer_id: int
    epoch: int
    sequence: int
    first_offset: int
    last_offset: int
    transactional: bool
    committed: bool | None = None


class Transaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int | None
    """None while it is open."""


class Producers(RuleBasedStateMachine):
    """Markers have transaction.version 0 or 2; with version 2 the producer may have a new epoch per transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerStateManager()
        self.log: list[Entry] = []
        self.high_watermark = 0
        self.forgotten = 0
        """Offset of the last snapshot loaded. Transactions that ended below it hold back nothing."""
        self.remembered: dict[int, int] = {}
        """Producer id -> number of batches that can be recognised as duplicates. A snapshot keeps one."""

    # --- the model

    @property
    def end(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    def transactions(self) -> list[Transaction]:
        found: list[Transaction] = []
        opened: dict[int, int] = {}
        for entry in self.log:
            if entry.committed is not None:
                first = opened.pop(entry.producer_id, None)
                if first is not None:
                    found.append(Transaction(entry.producer_id, first, entry.first_offset))
            elif entry.transactional:
                opened.setdefault(entry.producer_id, entry.first_offset)
        return found + [Transaction(producer_id, first, None) for producer_id, first in opened.items()]

    def open_since(self, producer_id: int) -> int | None:
        return next(
            (
                each.first_offset
                for each in self.transactions()
                if each.producer_id == producer_id and each.marker_offset is None
            ),
            None,
        )

    def entries(self, producer_id: int) -> list[Entry]:
        return [entry for entry in self.log if entry.producer_id == producer_id]

    def of_this_epoch(self, producer_id: int) -> list[Entry]:
        """Data batches after the last change of epoch."""
        mine = self.entries(producer_id)
        found: list[Entry] = []
        for entry in mine:
            if entry.epoch != mine[-1].epoch:
                found = []
            elif entry.committed is None:
                found.append(entry)
        return found

    def expected(
        self, producer_id: int, epoch: int, sequence: int, count: int, transactional: bool
    ) -> E | Entry | None:
        mine = self.entries(producer_id)
        if not mine:
            return None
        batches = self.of_this_epoch(producer_id)
        current = mine[-1].epoch
        if epoch < current:
            return E.INVALID_PRODUCER_EPOCH
        if epoch == current:
            for batch in batches[len(batches) - self.remembered.get(producer_id, 0) :]:
                if (batch.sequence, batch.last_offset - batch.first_offset + 1) == (sequence, count):
                    return batch
        last = -1
        if epoch == current and batches:
            last = batches[-1].sequence + batches[-1].last_offset - batches[-1].first_offset
        if sequence != last + 1:
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not transactional and self.open_since(producer_id) is not None:
            return E.INVALID_TXN_STATE
        return None

    # --- what happens

    def judged(self, *what: int, **options: Any) -> E | BatchMetadata | None:
        try:
            return self.state.check(*what, **options)
        except LogRefused as refused:
            return refused.code

    @rule(
        producer_id=PRODUCERS,
        bump=st.sampled_from([-1, 0, 0, 0, 0, 1]),
        step=st.sampled_from([0, 0, 0, 0, 1, -1, -2, -4]),
        count=st.integers(1, 2),
        transactional=st.booleans(),
    )
    def write(self, producer_id: int, bump: int, step: int, count: int, transactional: bool) -> None:
        mine = self.entries(producer_id)
        epoch = max(0, (mine[-1].epoch if mine else 0) + bump)
        batches = self.of_this_epoch(producer_id) if mine and epoch == mine[-1].epoch else []
        following = (
            batches[-1].sequence + batches[-1].last_offset - batches[-1].first_offset + 1 if batches else 0
        )
        sequence = max(0, following + step)
        expected = self.expected(producer_id, epoch, sequence, count, transactional)
        if self.state.follows(producer_id, epoch, sequence, transactional):
            assert expected is None
        found = self.judged(producer_id, epoch, sequence, count - 1, is_transactional=transactional)
        if isinstance(found, BatchMetadata):
            assert isinstance(expected, Entry)
            assert (found.first_offset, found.last_offset) == expected[3:5]
            return
        assert found == expected
        if found is not None:
            return
        first = self.end
        entry = Entry(producer_id, epoch, sequence, first, first + count - 1, transactional)
        changes = not mine or epoch != mine[-1].epoch
        self.log.append(entry)
        self.state.apply_data(producer_id, epoch, sequence, first, first + count - 1, NOW_MS, transactional)
        kept = 0 if changes else self.remembered.get(producer_id, 0)
        self.remembered[producer_id] = min(RETAINED_BATCHES, kept + 1)

    @rule(producer_id=PRODUCERS, bump=st.sampled_from([-1, 0, 1]), committed=st.booleans())
    def end_transaction(self, producer_id: int, bump: int, committed: bool) -> None:
        mine = self.entries(producer_id)
        epoch = max(0, (mine[-1].epoch if mine else 0) + bump)
        version = 2 if bump == 1 else 0
        since = self.open_since(producer_id)
        found = self.judged(
            producer_id, epoch, -1, 0, is_transactional=True, is_control=True, transaction_version=version
        )
        is_old = bool(mine) and epoch < mine[-1].epoch
        assert found == (E.INVALID_PRODUCER_EPOCH if is_old else None)
        if is_old:
            return
        offset = self.end
        completed = self.state.apply_marker(producer_id, epoch, -1, offset, NOW_MS, committed)
        self.log.append(Entry(producer_id, epoch, -1, offset, offset, True, committed))
        if mine and epoch != mine[-1].epoch:
            self.remembered[producer_id] = 0
        if since is None:
            assert completed is None
            return
        assert completed == (producer_id, since, offset, committed)
        others = [each.first_offset for each in self.transactions() if each.marker_offset is None]
        assert self.state.stable_offset_after(completed) == min(others, default=offset + 1)

    @rule(share=st.integers(0, 4))
    def replicate(self, share: int) -> None:
        if self.state.first_unstable_offset < 0:
            # The log then leaves out `on_high_watermark`.
            assert not self.state._unreplicated
        self.high_watermark += (self.end - self.high_watermark) * share // 4
        self.state.on_high_watermark(self.high_watermark)

    @rule()
    def restart(self) -> None:
        """Reload from a snapshot at the end of the log. A snapshot has the last batch of each producer."""
        again = ProducerStateManager()
        again.load(decode_snapshot(encode_snapshot(self.state.producers.values())), self.end)
        assert list(again.active()) == list(self.state.active())
        self.state = again
        self.forgotten = self.end
        self.remembered = {producer_id: min(1, count) for producer_id, count in self.remembered.items()}

    # --- what always holds

    @invariant()
    def the_first_unstable_offset_is_that_of_the_first_transaction_whose_end_is_not_replicated(self) -> None:
        held = [
            each.first_offset
            for each in self.transactions()
            if each.marker_offset is None or each.marker_offset >= max(self.high_watermark, self.forgotten)
        ]
        assert self.state.first_unstable_offset == min(held, default=-1)

    @invariant()
    def each_producer_is_known_by_its_last_entry(self) -> None:
        for entry in self.state.active():
            last = self.entries(entry.producer_id)[-1]
            since = self.open_since(entry.producer_id)
            assert entry.producer_epoch == last.epoch
            assert entry.current_transaction_first_offset == (-1 if since is None else since)
        assert {entry.producer_id for entry in self.state.active()} == {
            entry.producer_id for entry in self.log
        }


Producers.TestCase.settings = settings(max_examples=200, stateful_step_count=50)
TestProducers = Producers.TestCase
