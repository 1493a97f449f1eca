"""A fetch that waits: what it asked, what each partition could give it by now, and how it is found (DelayedFetch)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.partition.delayed_operations import DelayedOperation, DelayedOperationPurgatory

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.fetch_reads import FetchReads
    from kafkacompat.partition.sessions import FetchContext
    from kafkacompat.wire.messages.fetch_response import FetchResponse


class DelayedFetch(DelayedOperation):
    """A fetch that waits for min_bytes. `sizes` is what each partition could give, `total` their sum, in bytes.

    A follower's has only those of which there is something to tell; it is found by the replica's id, for it may follow thousands.
    """

    __slots__ = ("_reads", "asked", "context", "parameters", "parked_in", "sizes", "total")

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
        self.sizes: dict[tuple[str, int], int] = {}
        self.total = 0

    def expire(self) -> None:
        self.finish(self.context.partitions)

    def moved(self) -> Iterable[Any]:
        """The partitions that can give something. A full fetch is told of all: its session is made of what it was told."""
        if self.context.session is None:
            return self.context.partitions
        return [self.asked[key] for key, size in self.sizes.items() if size]

    def finish(self, partitions: Iterable[Any]) -> None:
        """Answer with what these can give now."""
        try:
            response = self._reads.read_again(self.context, self.parameters, partitions)
        except Exception as error:
            self.answer.fail(error)
        else:
            self.answer.resolve(response)


class LongFetch(DelayedFetch):
    """A fetch in steps. What it waits for is which partitions to read then."""

    __slots__ = ("noted",)

    def __init__(
        self,
        reads: FetchReads,
        context: FetchContext,
        parameters: FetchParameters,
        parked_in: DelayedOperationPurgatory[DelayedFetch],
    ) -> None:
        super().__init__(reads, context, parameters, parked_in)
        self.noted: dict[tuple[str, int], PartitionCore] = {}
        """Partitions that moved while it was read: a consumer's high watermarks, ends and starts for a follower, roles for both."""

    def finish(self, partitions: Iterable[Any]) -> None:
        self.answer.resolve(partitions)  # type: ignore[arg-type]  # its answer is not the response

    def asks_of(self, core: PartitionCore) -> Any:
        """What it asks of a partition; None when it does not."""
        return asked_of(self.context, core) or self.asked.get(core.topic_partition)


def asked_of(context: FetchContext, core: PartitionCore) -> Any:
    """What a fetch's session asks of a partition; None when it does not, or there is no session."""
    session = context.session
    if session is None:
        return None
    name = core.topic_partition
    key = (core.topic_id if session.uses_topic_ids else name.topic, name.partition)
    return session.partitions.get(key)


def replica_key(replica_id: int) -> tuple[str, int]:
    """What a follower's parked fetch is found by; no topic has an empty name."""
    return "", replica_id
