"""What is known of the records of share-partitions: what members did with each, and what the committed records of
`__share_group_state` say of it, a model of the share coordinator.

It has a state and a count for each offset, and no batches. It shares no code with the coordinator except the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.ids import SHARE_STATE_TOPIC, Uuid
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ShareGroupCounters
from kafkacompat.sim.partition_history import opened
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_snapshot_key import ShareSnapshotKey
from kafkacompat.wire.messages.share_snapshot_value import ShareSnapshotValue
from kafkacompat.wire.messages.share_update_key import ShareUpdateKey
from kafkacompat.wire.messages.share_update_value import ShareUpdateValue

if TYPE_CHECKING:
    from kafkacompat.ports import Log
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


SNAPSHOT, VERSION, KIND_BYTES = 0, 0, 2
UNSET = -1
ARCHIVING, ARCHIVED = 3, 4
TERMINAL = frozenset({2, ARCHIVED})
"""Acknowledged and archived."""
Name = tuple[str, Uuid, int]
"""A share-partition: group, topic, partition."""


class Standing(NamedTuple):
    """One record. Of two standings the greater one counts."""

    deliveries: int
    state: int


class Kept:
    """The state of one share-partition."""

    def __init__(self) -> None:
        self.start = UNSET
        self.state_epoch = self.leader_epoch = UNSET
        self.records: dict[int, Standing] = {}
        self.changes = 0
        """The number of changes of start or records."""
        self.snapshot_at = 0
        """The offset of its last snapshot in the log."""

    def is_terminal(self, offset: int) -> bool:
        if offset < self.start:
            return True
        standing = self.records.get(offset)
        return standing is not None and standing.state in TERMINAL

    def is_ended(self, offset: int) -> bool:
        """Whether it is not delivered any more. It may still wait for its dead letter."""
        standing = self.records.get(offset)
        return self.is_terminal(offset) or (standing is not None and standing.state == ARCHIVING)

    def count(self, offset: int) -> int:
        standing = self.records.get(offset)
        return 0 if standing is None else standing.deliveries

    def archived(self) -> set[int]:
        return {offset for offset, standing in self.records.items() if standing.state == ARCHIVED}

    def put(self, start: int, batches: Any) -> None:
        if start != UNSET:
            self.start = start
        self.changes += 1
        for offset, standing in expanded(batches):
            known = self.records.get(offset)
            self.records[offset] = standing if known is None else max(known, standing)
        self.records = {each: found for each, found in self.records.items() if each >= self.start}


def expanded(batches: Any) -> Iterator[tuple[int, Standing]]:
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            yield offset, Standing(batch.delivery_count, batch.delivery_state)


class KeptStates:
    """The states of all share-partitions. `follow` reads on."""

    def __init__(self, counters: ShareGroupCounters, archived: Callable[[Name, Iterable[int]], None]) -> None:
        """`archived` is called with records that are archived from now on."""
        self._counters = counters
        self._archived = archived
        self.states: dict[Name, Kept] = {}
        self._partition_of: dict[Name, int] = {}
        self._positions: dict[Key, int] = {}
        self._starts: dict[Key, int] = {}

    def of(self, name: Name) -> Kept:
        return self.states.get(name) or Kept()

    def follow(self, life: NodeView) -> None:
        """Read what a node has committed as a leader."""
        partitions = life.partitions
        if partitions is None or not life.alive:
            return
        for key, core in partitions.by_id.items():
            if core.topic_partition.topic != SHARE_STATE_TOPIC or not core.is_leader:
                continue
            log = core.log
            if log.high_watermark > self._positions.get(key, 0):
                with life.machine.watched():
                    self._read(key, log)
            if log.log_start_offset > self._starts.get(key, 0):
                self._starts[key] = log.log_start_offset
                self._counters.prunings += 1
                self._check_start(key, log.log_start_offset, life.id)

    def _read(self, key: Key, log: Log) -> None:
        position, end = self._positions.get(key, 0), log.high_watermark
        if position < log.log_start_offset:
            raise Breach("states are not pruned unread", f"the log begins at {log.log_start_offset}")
        for header, view in opened(log, position, end):
            if header.is_control:
                continue
            for offset, record in records_of(view, header):
                if position <= offset < end:
                    self._take(key, offset, bytes(record.key or b""), record.value)
        self._positions[key] = end

    def _take(self, partition: Key, offset: int, key: bytes, value: Any) -> None:
        kind = int.from_bytes(key[:KIND_BYTES], "big")
        named: Any = decode(
            ShareSnapshotKey if kind == SNAPSHOT else ShareUpdateKey, VERSION, key[KIND_BYTES:]
        )
        name = named.group_id, named.topic_id, named.partition
        self._counters.state_records += 1
        if self._partition_of.setdefault(name, partition[1]) != partition[1]:
            raise Breach("a state is in one place", f"{name} is in {partition[1]} as well")
        if value is None:
            self.states.pop(name, None)
            return
        body = bytes(value)[KIND_BYTES:]
        if kind == SNAPSHOT:
            self._take_snapshot(name, offset, decode(ShareSnapshotValue, VERSION, body))
            return
        update = decode(ShareUpdateValue, VERSION, body)
        kept = self.states.get(name)
        if kept is None:
            raise Breach("states are initialized first", f"{name} begins with an update at {offset}")
        if update.start_offset != UNSET and update.start_offset < kept.start:
            raise Breach(
                "start offsets never retreat",
                f"{name} from {kept.start} to {update.start_offset} at {offset}",
            )
        if update.leader_epoch != UNSET:
            if update.leader_epoch < kept.leader_epoch:
                raise Breach(
                    "deposed leaders write no state",
                    f"{name} is written in {update.leader_epoch} after {kept.leader_epoch}",
                )
            kept.leader_epoch = update.leader_epoch
        if update.state_batches or update.start_offset not in (UNSET, kept.start):
            before = kept.archived()
            kept.put(update.start_offset, update.state_batches)
            self._archived(name, kept.archived() - before)

    def _take_snapshot(self, name: Name, offset: int, snapshot: Any) -> None:
        kept = self.states.get(name)
        taken = Kept()
        taken.put(snapshot.start_offset, snapshot.state_batches)
        taken.state_epoch, taken.leader_epoch = snapshot.state_epoch, snapshot.leader_epoch
        taken.snapshot_at = offset
        if kept is not None:
            taken.changes = kept.changes
            self._counters.snapshots += 1
            if (taken.start, taken.records) != (kept.start, kept.records):
                taken.changes += 1
            if taken.start < kept.start:
                raise Breach(
                    "start offsets never retreat",
                    f"{name} from {kept.start} to {taken.start} with the snapshot at {offset}",
                )
            forgotten = [each for each in kept.records if each >= taken.start and each not in taken.records]
            if forgotten:
                raise Breach("snapshots are whole", f"{name} at {offset} lacks {forgotten}")
        self.states[name] = taken
        self._archived(name, taken.archived() - (set() if kept is None else kept.archived()))

    def _check_start(self, key: Key, start: int, node_id: int) -> None:
        for name, kept in self.states.items():
            if self._partition_of[name] == key[1] and kept.snapshot_at < start:
                raise Breach(
                    "only what is replaced is pruned",
                    f"on node {node_id} states begin at {start}, the snapshot of {name} was at {kept.snapshot_at}",
                )
