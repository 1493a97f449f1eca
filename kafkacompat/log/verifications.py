"""Which producers may open a transaction at a partition once their coordinator has said so. KIP-890.

A producer has one `VerificationGuard` from the question to the append. It bears the sequence that the producer begins with.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkacompat.ports import LogRefused, VerificationGuard
from kafkacompat.wire.errors import ErrorCode

VERIFICATIONS_MAX = 100_000
"""Producers of one partition that wait for their coordinator's word; the oldest are forgotten beyond."""


class Verifications:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, VerificationGuard] = {}

    def begin(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard:
        """The producer's own, with the highest epoch and its lowest sequence that have asked."""
        known = self._by_producer.get(producer_id)
        if known is None:
            if len(self._by_producer) >= VERIFICATIONS_MAX:
                del self._by_producer[next(iter(self._by_producer))]
            known = VerificationGuard(epoch, first_sequence, bumps_epochs, now_ms)
            self._by_producer[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, first_sequence
        elif epoch == known.epoch and first_sequence < known.lowest_sequence:
            known.lowest_sequence = first_sequence
        return known

    def holds(self, producer_id: int, verification_guard: VerificationGuard) -> bool:
        """Whether it still counts."""
        return self._by_producer.get(producer_id) is verification_guard

    def check_sequence(self, producer_id: int, first_sequence: int, *, is_known: bool) -> None:
        """Whatever this producer writes next, in its transaction or not, begins where it has begun to ask.

        `is_known`: the log has something of the producer. Raises LogRefused OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        known = self._by_producer.get(producer_id)
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
        """The transaction is in the log and needs nobody's word any more."""
        self._by_producer.pop(producer_id, None)

    def ended(self, producer_id: int, marker_epoch: int) -> None:
        """A marker is in the log: what it ends may not be opened any more.

        Where a producer has an epoch a transaction, a marker bears the one above what it ends. The next transaction has just that
        epoch; its producer does not wait for the marker, and may be verified before the marker comes.
        """
        known = self._by_producer.get(producer_id)
        if known is not None and not (known.bumps_epochs and known.epoch == marker_epoch):
            del self._by_producer[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Forget those that nobody used for that long, one look after another."""
        for producer_id in list(self._by_producer):
            known = self._by_producer.get(producer_id)
            if known is not None and now_ms - known.timestamp_ms >= expiration_ms:
                del self._by_producer[producer_id]
            yield
