"""Producers whose transaction in a partition waits for verification by their coordinator (KIP-890).

A producer has one `VerificationGuard` from the request to the append. The guard has the sequence number that the
producer begins with.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkacompat.ports import LogRefused, VerificationGuard
from kafkacompat.wire.errors import ErrorCode

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
