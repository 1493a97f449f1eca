"""Ranges of dead letters that wait to be written, and when one has waited long enough.

Pure. What fails is tried again after a pause, because a leader may be about to change. The records are in flight meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.api.share_services import SharePartitionKey
    from kafkacompat.ids import TopicPartition
    from kafkacompat.share.dead_letters import DeadLetters

ATTEMPTS = 5
BACKOFF_MS = 1_000
"""After the first attempt that fails; twice as long after each further one."""
TIMEOUT_MS = 10_000
"""Of one request, and for the replicas."""
HELD_MAX_MS = 30_000
"""A range that is older is given up at its next failure, whichever attempt that is: its records are in flight meanwhile,
and with enough of them the group stands still."""
GIVEN_UP_AT_ONCE = 50
"""Ranges in one turn of the loop."""


class Delivery:
    """A range of dead letters on its way."""

    __slots__ = (
        "answer",
        "failures_before",
        "is_wanted",
        "key",
        "letters",
        "next_offset",
        "since_ms",
        "source",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        source: TopicPartition,
        letters: DeadLetters,
        is_wanted: Callable[[], bool],
        failures_before: int,
        since_ms: int,
    ) -> None:
        self.key = key
        self.source = source
        self.letters = letters
        self.next_offset = letters.first_offset
        self.is_wanted = is_wanted
        self.failures_before = failures_before
        """Of the queue, when this range came."""
        self.since_ms = since_ms
        self.answer: Deferred[bool] = Deferred()


class Deliveries:
    """The ranges of one share-partition, in order. The first one is on its way. Those that came first are over first."""

    __slots__ = (
        "failures",
        "failures_before_success",
        "last_reason",
        "succeeded_at_ms",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        """Bounded by the records in flight of the share-partition."""
        self.failures = 0
        self.failures_before_success = 0
        """At the last success, after which all have their attempts and their time again."""
        self.succeeded_at_ms = 0
        self.last_reason = ""

    def failed(self, reason: str) -> None:
        """An attempt has failed, for all that wait: they go to the same partition."""
        self.failures += 1
        self.last_reason = reason

    def succeeded(self, now_ms: int) -> None:
        self.failures_before_success = self.failures
        self.succeeded_at_ms = now_ms

    def delay_ms(self) -> int:
        """Until the next attempt."""
        attempts = self.attempts_of(self.waiting[0])
        return BACKOFF_MS << attempts - 1 if attempts else 0

    def attempts_of(self, delivery: Delivery) -> int:
        """How many attempts have failed for the range."""
        return self.failures - max(delivery.failures_before, self.failures_before_success)

    def is_at_last_attempt(self, delivery: Delivery, now_ms: int) -> bool:
        """Whether the range is given up if the present attempt fails too."""
        held_ms = now_ms - max(delivery.since_ms, self.succeeded_at_ms)
        return self.attempts_of(delivery) >= ATTEMPTS - 1 or held_ms >= HELD_MAX_MS

    def is_over(self, delivery: Delivery, now_ms: int) -> bool:
        attempts = self.attempts_of(delivery)
        held_ms = now_ms - max(delivery.since_ms, self.succeeded_at_ms)
        return attempts >= ATTEMPTS or (attempts > 0 and held_ms >= HELD_MAX_MS)
