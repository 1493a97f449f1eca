"""What the oracles of share groups know about records: what became of them, and who holds them. And how they read requests
and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.sim.committed_metadata import Key
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.sim.views import NodeView

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = frozenset({GAP, ACCEPT, REJECT})
ACQUIRED = 1
FREE = -1


class Fate(NamedTuple):
    """What became of one record, over all leaders."""

    is_settled: bool = False
    """An answer that it was accepted or rejected has left."""
    is_asked: bool = False
    """A leader has taken up an acknowledgement that ends it."""
    is_accepted: bool = False
    """An answer that it was accepted has left."""
    is_accept_asked: bool = False
    """A leader has taken up that it is accepted, or that there is no record."""
    released: int = 0
    """The highest delivery count of which an answered release told."""
    deliveries: int = 0
    """The highest delivery count."""


NO_FATE = Fate()


class Holding(NamedTuple):
    member_id: str
    until_ms: int
    """By the clock of the node. FREE once the member has given it up."""


class Led:
    """One share-partition at one leader, from when it is loaded until it is dropped."""

    def __init__(self, life: NodeView, key: Key, core: Any, changes: int) -> None:
        self.life = life
        self.key = key
        self.core = core
        self.changes_before = changes
        """Of the committed state, when the load began."""
        self.counts: dict[int, int] = {}
        self.ended: set[int] = set()
        """Records that are acknowledged or archived, by the state that was loaded."""
        self.holdings: dict[int, Holding] = {}

    def __str__(self) -> str:
        return f"partition {self.key[1]} at node {self.life.id} in epoch {self.core.leader_epoch}"


def each_of(batches: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield offset and type of each acknowledgement."""
    for batch in batches:
        types: list[int] = list(batch.acknowledge_types)
        for position, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
            yield offset, types[position] if len(types) > 1 else types[0]


def states_of(core: Any) -> Iterator[tuple[int, int]]:
    """Yield offset and state of each record in flight."""
    for run in chain.from_iterable(batch.runs for batch in core._records.batches):
        for offset in range(run.first, run.last + 1):
            yield offset, int(run.state)


def rows_of(response: Any) -> Iterator[tuple[Key, Any]]:
    for topic in response.responses:
        for row in topic.partitions:
            yield (topic.topic_id, row.partition_index), row


def acknowledge_error(row: Any) -> ErrorCode:
    """The error of a partition's acknowledgements in an answer of either kind."""
    code = getattr(row, "acknowledge_error_code", None)
    return ErrorCode(row.error_code if code is None else code)
