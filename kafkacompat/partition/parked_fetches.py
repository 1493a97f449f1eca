"""Fetches that wait: what each asked, what each partition could give it by now, and how it is found.

Duty: hold that and hand it to the engine when the wait is over. It reads nothing and does not decide how long a fetch waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.partition.waiters import Waiter

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.sessions import FetchContext
    from kafkacompat.wire.messages.fetch_response import FetchResponse


class ParkedFetch(Waiter):
    """A fetch that waits for min_bytes. `sizes` is what each partition could give, `total` their sum, in bytes.

    A follower's has only those of which there is something to tell; it is found by the replica's id, for it may follow thousands.
    """

    __slots__ = ("asked", "context", "engine", "parameters", "parked_in", "sizes", "total")

    answer: Deferred[FetchResponse]

    def __init__(self, engine: FetchEngine, context: FetchContext, parameters: FetchParameters) -> None:
        super().__init__()
        self.engine = engine
        self.context = context
        self.parameters = parameters
        self.parked_in = engine.followers if parameters.replica_id >= 0 else engine.consumers
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
            response = self.engine.read_again(self.context, self.parameters, partitions)
        except Exception as error:
            self.answer.fail(error)
        else:
            self.answer.resolve(response)


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
