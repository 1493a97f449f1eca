"""The producers of a partition: sequences of idempotent producers and open transactions, the state machine of KIP-98.

No files, clocks or requests are used here. A batch is checked before it is written (`check`) and applied afterwards
(`apply_data`, `apply_marker`). A check changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple, Protocol

from kafkacompat.ports import LogRefused, ProducerStateEntry, VerificationGuard
from kafkacompat.wire.errors import ErrorCode

RETAINED_BATCHES = 5
"""Batches remembered per producer. A client may have five in flight and repeat any of them."""
MAX_SEQUENCE = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF
NO_EPOCH = -1
EPOCH_BUMP_VERSION = 2
"""From this transaction.version on, a marker has a higher epoch than the data it ends (KIP-890)."""
NO_TRANSACTION = -1
ENDED_KEPT = 1_000
"""Beginnings of ended transactions that are kept behind that of an open one, besides as many as are still needed. A transaction
may stay open for days while very many others begin and end."""
PRODUCER_IDS_MAX = 20_000
"""Default bound of the ids that a partition remembers: what looks at all of them takes less than one step may."""


class UnfinishedSnapshot(Protocol):
    def note(self, producer_id: int) -> None: ...


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


_new = tuple.__new__
"""Makes a named tuple in half the time."""


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool


class Producer:
    """The state of one producer. -1 means none in every field except the list."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "marker_offset",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.marker_offset = -1
        """Of the marker that the coordinator's epoch comes from. A snapshot does not have it: after a load it is the producer's
        last offset, at least, or without a batch the snapshot's, at most."""
        self.last_timestamp_ms = -1
        self.transaction_first_offset = NO_TRANSACTION
        self.batches: list[BatchMetadata] = []


class ProducerStateManager:
    """All producers of one partition. `end_offset` (exclusive) is the offset up to which their batches are applied."""

    __slots__ = (
        "_begun",
        "_ongoing",
        "_open",
        "_unreplicated",
        "_verifications",
        "end_offset",
        "first_unstable_offset",
        "ids_max",
        "producers",
        "snapshot",
    )

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.ids_max = PRODUCER_IDS_MAX
        self.snapshot: UnfinishedSnapshot | None = None
        """It is told of producers that are about to change."""
        self.end_offset = 0
        self.first_unstable_offset = -1
        """First offset of the earliest transaction that is open or has its marker at or above the high watermark; -1: none."""
        self._ongoing: dict[int, int] = {}
        """First offset -> producer id of open transactions."""
        self._unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker, for ended transactions whose marker is at or above the high watermark.
        Ordered by the marker's offset."""
        self._begun: deque[int] = deque()
        """First offsets of open and unreplicated transactions, ascending. Ended ones are removed from the front, and behind it
        when most of them have ended."""
        self._open: deque[int] = deque()
        """The same for open transactions only. There may be a hundred thousand, so no lookup searches all of them."""
        self._verifications = Verifications()

    def follows(self, producer_id: int, epoch: int, first_sequence: int, is_transactional: bool) -> bool:
        """Whether a client's data batch is plainly the next one of a known producer, so that `check` would find nothing.
        False if only `check` can tell."""
        producer = self.producers.get(producer_id)
        return (
            producer is not None
            and producer.epoch == epoch
            and bool(producer.batches)
            and 0 <= first_sequence == producer.batches[-1].last_sequence + 1
            and (is_transactional or producer.transaction_first_offset == NO_TRANSACTION)
            and not self._verifications.by_producer
        )

    def continued(self, producer_id: int, epoch: int, first_sequence: int) -> Producer | None:
        """The producer of a batch outside transactions of which `follows` is true."""
        producer = self.producers.get(producer_id)
        if (
            producer is None
            or producer.epoch != epoch
            or not producer.batches
            or first_sequence < 0
            or first_sequence != producer.batches[-1].last_sequence + 1
            or producer.transaction_first_offset != NO_TRANSACTION
            or self._verifications.by_producer
        ):
            return None
        return producer

    def go_on(
        self, producer: Producer, first_sequence: int, last_offset: int, delta: int, timestamp_ms: int
    ) -> None:
        """Apply a batch that is in the log, of a producer that `continued` has returned."""
        if self.snapshot is not None:
            self.snapshot.note(producer.producer_id)
        batches = producer.batches
        if len(batches) == RETAINED_BATCHES:
            del batches[0]
        batches.append(
            _new(BatchMetadata, ((first_sequence + delta) & MAX_SEQUENCE, last_offset, delta, timestamp_ms))
        )
        producer.last_timestamp_ms = timestamp_ms

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset_delta: int,
        *,
        is_transactional: bool,
        is_control: bool = False,
        coordinator_epoch: int = -1,
        transaction_version: int = 0,
        from_client: bool = True,
        verifies: bool = False,
        verification_guard: VerificationGuard | None = None,
    ) -> BatchMetadata | None:
        """Check a batch before it is written. Returns the original batch if this one is a duplicate, otherwise None.

        `verifies`: a transactional data batch that does not continue an open transaction needs the guard.

        Raises LogRefused: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, or NOT_ENOUGH_REPLICAS for an id too many: producers retry after that.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            if epoch < NO_EPOCH:
                raise LogRefused(
                    ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has the epoch {epoch}"
                )
            if verifies and is_transactional and not is_control:
                self._check_verified(producer_id, epoch, verification_guard)
            if from_client and not is_control:
                self._verifications.check_sequence(producer_id, first_sequence, is_known=False)
            if len(self.producers) >= self.ids_max and not is_control:
                raise LogRefused(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"the partition remembers {len(self.producers)} producer ids, and takes a new one when one of them "
                    f"has expired (partition.max.producer.ids)",
                )
            return None
        if from_client and epoch == producer.epoch and not is_control:
            last_sequence = (first_sequence + last_offset_delta) & MAX_SEQUENCE
            for batch in producer.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == last_offset_delta:
                    return batch
        if epoch < producer.epoch:
            raise LogRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}, but {producer.epoch} was seen",
            )
        if is_control:
            if (
                transaction_version >= EPOCH_BUMP_VERSION
                and epoch == producer.epoch != MAX_EPOCH
                and producer.transaction_first_offset != NO_TRANSACTION
            ):
                raise LogRefused(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {producer_id} has its transaction open in epoch {epoch}, which the marker is to be above",
                )
            if coordinator_epoch < producer.coordinator_epoch:
                raise LogRefused(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"coordinator epoch {coordinator_epoch} is older than {producer.coordinator_epoch}",
                )
            return None
        if verifies and is_transactional:
            self._check_verified(producer_id, epoch, verification_guard)
        if from_client:
            self._verifications.check_sequence(producer_id, first_sequence, is_known=True)
            self._check_sequence(producer, epoch, first_sequence)
        if producer.transaction_first_offset != NO_TRANSACTION and not is_transactional:
            raise LogRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} wrote outside its transaction, which is open since offset "
                f"{producer.transaction_first_offset}",
            )
        return None

    def start_verification(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        """A guard, or None if the producer's transaction is open here already. Raises LogRefused INVALID_PRODUCER_EPOCH."""
        producer = self.producers.get(producer_id)
        if producer is not None:
            if epoch < producer.epoch:
                raise LogRefused(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {producer_id} has epoch {epoch}, but {producer.epoch} was seen",
                )
            if epoch == producer.epoch and producer.transaction_first_offset != NO_TRANSACTION:
                return None
        return self._verifications.begin(producer_id, epoch, first_sequence, bumps_epochs, now_ms)

    def _check_verified(
        self, producer_id: int, epoch: int, verification_guard: VerificationGuard | None
    ) -> None:
        """Raise LogRefused INVALID_TXN_STATE unless a transactional batch continues an open transaction or may open one."""
        producer = self.producers.get(producer_id)
        if (
            producer is not None
            and producer.epoch == epoch
            and producer.transaction_first_offset != NO_TRANSACTION
        ):
            return
        if verification_guard is None or not self._verifications.holds(producer_id, verification_guard):
            raise LogRefused(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has no verified transaction here"
            )

    def apply_data(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> None:
        """Apply a data batch that is in the log."""
        if self.snapshot is not None:
            self.snapshot.note(producer_id)
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id, epoch)
        delta = last_offset - first_offset
        last_sequence = -1 if first_sequence < 0 else (first_sequence + delta) & MAX_SEQUENCE
        batches = producer.batches
        if producer.epoch != epoch:
            producer.epoch = epoch
            batches.clear()
        elif len(batches) == RETAINED_BATCHES:
            del batches[0]
        batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp_ms))
        producer.last_timestamp_ms = timestamp_ms
        if is_transactional:
            if producer.transaction_first_offset == NO_TRANSACTION:
                producer.transaction_first_offset = first_offset
                self._ongoing[first_offset] = producer_id
                self._begun.append(first_offset)
                self._open.append(first_offset)
                self._refresh_unstable()
            self._verifications.opened(producer_id)
        self.end_offset = last_offset + 1

    def apply_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
        committed: bool,
    ) -> CompletedTxn | None:
        """Apply an end marker that is in the log. Returns the transaction it ended, or None if none was open."""
        if self.snapshot is not None:
            self.snapshot.note(producer_id)
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.coordinator_epoch, producer.marker_offset = coordinator_epoch, offset
        producer.last_timestamp_ms = timestamp_ms
        self._verifications.ended(producer_id, epoch)
        self.end_offset = offset + 1
        first_offset = producer.transaction_first_offset
        if first_offset == NO_TRANSACTION:
            return None
        producer.transaction_first_offset = NO_TRANSACTION
        self._ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = offset
        self._first_open()
        if len(self._open) > 2 * len(self._ongoing) + ENDED_KEPT:
            self._open = deque([first for first in self._open if first in self._ongoing])
        self._refresh_unstable()
        return CompletedTxn(producer_id, first_offset, offset, committed)

    def stable_offset_after(self, completed: CompletedTxn) -> int:
        """The last stable offset after a transaction's end is replicated, as stored in the transaction index."""
        first = self._first_open()
        return completed.last_offset + 1 if first is None else first

    def oldest_open_timestamp_ms(self) -> int:
        """When the producer of the earliest open transaction has last written. -1: none is open."""
        first = self._first_open()
        producer = None if first is None else self.producers.get(self._ongoing[first])
        return -1 if producer is None else producer.last_timestamp_ms

    def _first_open(self) -> int | None:
        while self._open and self._open[0] not in self._ongoing:
            self._open.popleft()
        return self._open[0] if self._open else None

    def on_high_watermark(self, high_watermark: int) -> None:
        """Ended transactions whose marker is now below the high watermark no longer hold back the last stable offset."""
        if self._unreplicated:
            done = list(takewhile(lambda each: each[1] < high_watermark, self._unreplicated.items()))
            for first, _ in done:
                del self._unreplicated[first]
            if done:
                self._refresh_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Drop producers without an open transaction that were idle for `expiration_ms`. Yields after each one.

        The state may change between two steps.
        """
        producers = self.producers
        for producer_id in list(producers):
            producer = producers.get(producer_id)
            if (
                producer is not None
                and producer.transaction_first_offset == NO_TRANSACTION
                and now_ms - producer.last_timestamp_ms >= expiration_ms
            ):
                del producers[producer_id]
            yield
        yield from self._verifications.expire(now_ms, expiration_ms)

    def begun_before(self, offset: int) -> Iterator[Producer]:
        """The producers of open transactions that began below an offset, in the order of the beginnings."""
        for first in self._open:
            if first >= offset:
                return
            if first in self._ongoing:
                yield self.producers[self._ongoing[first]]

    def forget_before(self, offset: int) -> None:
        """Drop what comes from batches below an offset, which are of another cluster. Of the producers, those remain that have a
        batch or a coordinator's marker from there on, or an open transaction.

        A coordinator's epoch from below would refuse the markers of this cluster. One from this cluster stays, because it refuses
        those of a coordinator that was replaced."""
        for producer_id, producer in list(self.producers.items()):
            kept = [batch for batch in producer.batches if batch.first_offset >= offset]
            has_marker = producer.coordinator_epoch >= 0 and producer.marker_offset >= offset
            if len(kept) == len(producer.batches) and (
                has_marker or (kept and producer.coordinator_epoch < 0)
            ):
                continue
            if self.snapshot is not None:
                self.snapshot.note(producer_id)
            producer.batches = kept
            if not has_marker:
                producer.coordinator_epoch = -1
                if not kept and producer.transaction_first_offset == NO_TRANSACTION:
                    del self.producers[producer_id]

    def clear(self, end_offset: int) -> None:
        self.snapshot = None  # what it tells may be truncated
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._begun.clear()
        self._open.clear()
        self.first_unstable_offset = -1
        self.end_offset = end_offset

    def load(self, producers: Iterable[Producer], end_offset: int) -> None:
        """Replace the state by a snapshot taken at an offset."""
        self.clear(end_offset)
        for producer in producers:
            self.producers[producer.producer_id] = producer
            batches = producer.batches
            producer.marker_offset = batches[-1].last_offset if batches else end_offset - 1
            if producer.transaction_first_offset != NO_TRANSACTION:
                self._ongoing[producer.transaction_first_offset] = producer.producer_id
        self._begun.extend(sorted(self._ongoing))
        self._open.extend(self._begun)
        self._refresh_unstable()

    def take_over(self, other: ProducerStateManager, end_offset: int) -> None:
        """Replace the state by another one, which is not used any more. Verifications stay."""
        self.clear(end_offset)
        self.producers.update(other.producers)
        self._ongoing.update(other._ongoing)
        self._unreplicated.update(other._unreplicated)
        self._begun.extend(other._begun)
        self._open.extend(other._open)
        self.first_unstable_offset = other.first_unstable_offset

    def active(self) -> Iterator[ProducerStateEntry]:
        """The producers known at the call, except those dropped before their turn. The state may change between two of them."""
        for producer_id in list(self.producers):
            producer = self.producers.get(producer_id)
            if producer is None:
                continue
            yield ProducerStateEntry(
                producer_id,
                producer.epoch,
                producer.batches[-1].last_sequence if producer.batches else -1,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )

    def _check_sequence(self, producer: Producer, epoch: int, first_sequence: int) -> None:
        if epoch != producer.epoch:
            if first_sequence != 0 and producer.epoch != -1:
                raise LogRefused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer.producer_id} begins epoch {epoch} with sequence {first_sequence}",
                )
            return
        last_sequence = producer.batches[-1].last_sequence if producer.batches else -1
        if first_sequence == last_sequence + 1 or (first_sequence == 0 and last_sequence == MAX_SEQUENCE):
            return
        raise LogRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer.producer_id} gave sequence {first_sequence} after {last_sequence}",
        )

    def _refresh_unstable(self) -> None:
        begun, ongoing, unreplicated = self._begun, self._ongoing, self._unreplicated
        while begun and begun[0] not in ongoing and begun[0] not in unreplicated:
            begun.popleft()
        if len(begun) > 2 * (len(ongoing) + len(unreplicated)) + ENDED_KEPT:
            begun = self._begun = deque([each for each in begun if each in ongoing or each in unreplicated])
        self.first_unstable_offset = begun[0] if begun else -1


VERIFICATIONS_MAX = 100_000
"""The most waiting producers of one partition. Beyond it the oldest are dropped."""


class Verifications:
    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, VerificationGuard] = {}

    def begin(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard:
        """The producer's guard, with the highest epoch that was requested and the lowest sequence number in it."""
        known = self.by_producer.get(producer_id)
        if known is None:
            if len(self.by_producer) >= VERIFICATIONS_MAX:
                del self.by_producer[next(iter(self.by_producer))]
            known = VerificationGuard(epoch, first_sequence, bumps_epochs, now_ms)
            self.by_producer[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, first_sequence
        elif epoch == known.epoch and first_sequence < known.lowest_sequence:
            known.lowest_sequence = first_sequence
        return known

    def holds(self, producer_id: int, verification_guard: VerificationGuard) -> bool:
        """Whether the guard is still valid."""
        return self.by_producer.get(producer_id) is verification_guard

    def check_sequence(self, producer_id: int, first_sequence: int, *, is_known: bool) -> None:
        """Check that the producer's next batch begins with the sequence number of its verification request, in a
        transaction or not.

        `is_known`: the log has state of the producer. Raises LogRefused OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        known = self.by_producer.get(producer_id)
        if known is None:
            return
        if first_sequence > known.lowest_sequence or (
            not is_known and known.bumps_epochs and first_sequence != 0
        ):
            raise LogRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} was to begin with sequence {known.lowest_sequence}, not {first_sequence}",
            )

    def opened(self, producer_id: int) -> None:
        """Drop the guard: the transaction is in the log and needs no verification any more."""
        self.by_producer.pop(producer_id, None)

    def ended(self, producer_id: int, marker_epoch: int) -> None:
        """A marker is in the log: drop the guard, so that the ended transaction cannot be opened again.

        If a producer gets a new epoch for each transaction, a marker has the epoch after the one it ends. The next
        transaction has exactly that epoch. Its producer does not wait for the marker and may be verified before the
        marker arrives, so that guard stays.
        """
        known = self.by_producer.get(producer_id)
        if known is not None and not (known.bumps_epochs and known.epoch == marker_epoch):
            del self.by_producer[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Drop guards that were not used for `expiration_ms`. Yields after each one."""
        for producer_id in list(self.by_producer):
            known = self.by_producer.get(producer_id)
            if known is not None and now_ms - known.timestamp_ms >= expiration_ms:
                del self.by_producer[producer_id]
            yield
