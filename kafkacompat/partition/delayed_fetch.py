"""A parked fetch: its request, what each partition has for it so far, and the key under which it is found
(DelayedFetch)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.partition.delayed_operations import (
    ANSWER_US,
    DelayedOperation,
    DelayedOperationPurgatory,
)

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.fetch_reads import Counted, FetchReads
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.sessions import FetchContext
    from kafkacompat.wire.messages.fetch_response import FetchResponse


PARTITION_US = 6
"""Of an answer: it is read again, remembered in the session, and encoded."""
RECORDS_US = 40
"""Of a partition whose records were there before the fetch waited, or before they were committed: their place may be far
from the log's end, and is found by a scan then."""
ABORTED_US = 5
"""Of an aborted transaction that an answer names."""


class DelayedFetch(DelayedOperation):
    """A fetch that waits for min_bytes. `counted` has the bytes that each partition can give, `total` their sum.

    For a follower only partitions with something to send are listed. It is found by its replica id, because it may
    follow thousands.
    """

    __slots__ = ("_reads", "asked", "context", "counted", "parameters", "parked_in", "total")

    answer: Deferred[FetchResponse]

    def __init__(
        self,
        reads: FetchReads,
        context: FetchContext,
        parameters: FetchParameters,
        parked_in: DelayedOperationPurgatory[DelayedFetch],
    ) -> None:
        super().__init__()
        self._reads = reads
        self.context = context
        self.parameters = parameters
        self.parked_in = parked_in
        self.asked: dict[tuple[str, int], Any] = {}
        self.counted: dict[tuple[str, int], Counted] = {}
        self.total = 0

    def expire(self) -> None:
        self.finish(self.context.partitions)

    def moved(self) -> Iterable[Any]:
        """The partitions with something to send. A full fetch (without a session) gets all its partitions, because its
        new session starts from them."""
        if self.context.session is None:
            return self.context.partitions
        return [self.asked[key] for key, counted in self.counted.items() if counted.size]

    def finish(self, partitions: Iterable[Any]) -> None:
        """Answer with what these partitions can give now."""
        reads = self._reads
        try:
            answers = reads.read_all(self.context, self.parameters, partitions, arrived=False)[0]
            self.cost_us = ANSWER_US + PARTITION_US * len(answers)
            if self.parameters.read_committed or self.parameters.min_bytes > 1:
                self.cost_us += RECORDS_US * sum([bool(each.records) for _, each in answers])
            if self.parameters.read_committed:
                self.cost_us += ABORTED_US * sum(
                    [len(each.aborted_transactions or ()) for _, each in answers]
                )
            response = reads.answers.respond(self.context, self.parameters, answers)
        except Exception as error:
            self.answer.fail(error)
        else:
            self.answer.resolve(response)


class LongFetch(DelayedFetch):
    """A fetch that is read in steps. Its answer gives the partitions to read then."""

    __slots__ = ("noted",)

    def __init__(
        self,
        reads: FetchReads,
        context: FetchContext,
        parameters: FetchParameters,
        parked_in: DelayedOperationPurgatory[DelayedFetch],
    ) -> None:
        super().__init__(reads, context, parameters, parked_in)
        self.noted: dict[tuple[str, int], Partition] = {}
        """Partitions that changed while the fetch was read: the high watermark for consumers, log end and start for
        followers, the role for both."""

    def finish(self, partitions: Iterable[Any]) -> None:
        self.cost_us = ANSWER_US
        self.answer.resolve(partitions)  # type: ignore[arg-type]  # its answer is the partitions, not the response

    def asks_of(self, core: Partition) -> Any:
        """The request for one partition. None if the fetch does not include it."""
        return asked_of(self.context, core) or self.asked.get(core.topic_partition)


def asked_of(context: FetchContext, core: Partition) -> Any:
    """The request for a partition in a fetch's session. None without a session, or if the session does not include it."""
    session = context.session
    if session is None:
        return None
    name = core.topic_partition
    key = (core.topic_id if session.uses_topic_ids else name.topic, name.partition)
    return session.partitions.get(key)


def replica_key(replica_id: int) -> tuple[str, int]:
    """The key of a follower's parked fetch. No topic has an empty name."""
    return "", replica_id
