"""What a coordinator of any kind has of its node, and how the group coordinator asks the one of transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Clock, Timers, Workers
    from kafkacompat.tasks import Tasks
    from kafkacompat.wire.errors import ErrorCode


def _keep_nothing() -> None:
    """For nodes whose garbage collector needs no hint."""


@dataclass(frozen=True, slots=True)
class CoordinatorServices:
    node_id: int
    partitions: PartitionService
    clock: Clock
    timers: Timers
    tasks: Tasks
    workers: Workers | None
    """For loads. None: cold reads block (the simulator's disk has none)."""
    keep: Callable[[], None] = _keep_nothing
    """Called when many long-lived objects have been created (`server.garbage.keep_long_lived`)."""


class TransactionVerifier(Protocol):
    """Asks the coordinator to verify that partitions belong to a transaction, or to add them (KIP-890)."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """Return an error code for each partition. With `adds`, missing partitions are added (transaction.version 2)."""
        ...
