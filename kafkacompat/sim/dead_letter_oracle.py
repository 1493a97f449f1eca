"""Checks what docs/how-to/keep-dead-letters.md promises of one share group (KIP-1191): an undeliverable record is archived
after its dead letter is committed, none is given up lightly, what was accepted has none, and a topic that takes none gets
none.

It shares no code with the queue except the parser of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.records.read import records_of
from kafkacompat.share.dead_letter_queue import GROUP_ENABLE
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import DEAD_LETTERS
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ShareGroupCounters
from kafkacompat.sim.partition_history import opened
from kafkacompat.sim.processes import Environment
from kafkacompat.wire.config_resources import ConfigResourceType

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.share_model import Fate, Led
    from kafkacompat.sim.views import NodeView

PATIENCE_MS = 13_000
"""All attempts take 15 s. The clock of the node may be faster."""
PREFIX = "__dlq.errors."


class Letter(NamedTuple):
    """What a dead letter tells."""

    topic: str
    partition: int
    offset: int
    group: str
    deliveries: int


class DeadLetterOracle:
    def __init__(
        self,
        env: Environment,
        group_id: str,
        counters: ShareGroupCounters,
        fate: Callable[[Key, int], Fate],
        deleted: Callable[[Key], int],
    ) -> None:
        """`fate` tells what became of a record, `deleted` up to where records of a partition may be deleted."""
        self.is_on = env.options.share_dead_letters
        self._copies = env.options.share_letters_copy
        self._env = env
        self._group_id = group_id
        self._counters = counters
        self._fate = fate
        self._deleted = deleted
        self._positions: dict[Key, int] = {}
        self._asked: set[tuple[Key, int]] = set()
        """Records for which a leader has asked for a dead letter."""
        self.written: dict[tuple[Key, int], int] = {}
        """Record -> how many dead letters of it are committed."""
        self.given_up: set[tuple[Key, int]] = set()
        self._values: dict[tuple[Key, int], bytes | None] = {}
        """What members were shown."""
        self._images: dict[NodeView, Callable[[], MetadataImage]] = {}
        self._refused_since_us: dict[NodeView, int] = {}
        """Since when a node has known that the topic takes no dead letters."""

    # What a node does.

    def watch(self, life: NodeView, queue: Any) -> None:
        """`queue` writes the dead letters of a node that is about to start."""
        enqueue = queue.enqueue
        self._images = {each: image for each, image in self._images.items() if each.alive}
        self._images[life] = queue._image

        def watched(
            key: Any, source: Any, letters: Any, is_wanted: Callable[[], bool] = lambda: True
        ) -> Deferred[bool]:
            answer: Deferred[bool]
            if key.group_id != self._group_id:
                answer = enqueue(key, source, letters, is_wanted)
                return answer
            place = key.topic_id, key.partition
            offsets = range(letters.first_offset, letters.last_offset + 1)
            self._ask(life, place, offsets, letters.delivery_count)
            asked_us = self._env.scheduler.now_us
            answer = enqueue(key, source, letters, is_wanted)

            def answered(done: Deferred[bool]) -> None:
                if is_wanted():  # otherwise the next leader asks again
                    self._answered(life, place, offsets, asked_us, done.result())

            answer.on_done(answered)
            return answer

        queue.enqueue = watched

    def _ask(self, life: NodeView, key: Key, offsets: Iterable[int], count: int) -> None:
        image = self._env.metadata.partition(key)
        leads = image is not None and image.leader == life.id
        for offset in offsets:
            fate = self._fate(key, offset)
            what = f"node {life.id} asks for a dead letter of offset {offset} in partition {key[1]}"
            if leads and fate.is_accepted:
                raise Breach("what was accepted has no dead letter", what)
            if count > fate.deliveries:
                raise Breach("dead letters count deliveries", f"{what}, delivery {count} of {fate}")
            self._asked.add((key, offset))

    def _answered(self, life: NodeView, key: Key, offsets: range, asked_us: int, is_written: bool) -> None:
        if not life.alive:
            return
        where = f"node {life.id}, offsets {offsets.start} to {offsets.stop - 1} of partition {key[1]}"
        if not is_written:
            waited_ms = (self._env.scheduler.now_us - asked_us) // 1000
            if self._is_refused(life):
                self._counters.letters_refused += len(offsets)
            elif waited_ms < PATIENCE_MS:
                raise Breach("dead letters are not given up lightly", f"{where} after {waited_ms} ms")
            self.given_up.update((key, offset) for offset in offsets)
            return
        if self._refused_since_us.get(life, asked_us + 1) <= asked_us:
            raise Breach("dead letters go where they are taken", where)
        self.follow(life)
        missing = [offset for offset in offsets if (key, offset) not in self.written]
        if missing:
            raise Breach("dead letters are written before it is said", f"{where}: {missing} is missing")

    def _is_refused(self, life: NodeView) -> bool:
        """Whether the topic takes no dead letters, as far as the node knows."""
        image = self._images.get(life)
        if image is None or DEAD_LETTERS not in image().topics:
            return False
        return image().config(int(ConfigResourceType.TOPIC), DEAD_LETTERS).get(GROUP_ENABLE) != "true"

    # What is committed.

    def follow(self, life: NodeView) -> None:
        """Read the dead letters that a node has committed as a leader."""
        partitions = life.partitions
        if not self.is_on or partitions is None or not life.alive:
            return
        if not self._is_refused(life):
            self._refused_since_us.pop(life, None)
        else:
            self._refused_since_us.setdefault(life, self._env.scheduler.now_us)
        for key, core in partitions.by_id.items():
            if core.topic_partition.topic == DEAD_LETTERS and core.is_leader:
                end = core.log.high_watermark
                if end > self._positions.get(key, 0):
                    with life.machine.watched():
                        self._read(key, core.log, end)

    def _read(self, key: Key, log: Any, end: int) -> None:
        position = self._positions.get(key, 0)
        for header, view in opened(log, position, end):
            for offset, record in records_of(view, header):
                if position <= offset < end:
                    self._take(key, record)
        self._positions[key] = end

    def _take(self, lies_in: Key, record: Any) -> None:
        letter = _letter_of(record)
        topic = self._env.metadata.newest.topics[letter.topic]
        source = topic.id, letter.partition
        known = source, letter.offset
        count = len(self._env.metadata.newest.topics[DEAD_LETTERS].partitions)
        if (
            letter.group != self._group_id
            or known not in self._asked
            or letter.partition % count != lies_in[1]
        ):
            raise Breach("dead letters tell what happened", f"{letter} in partition {lies_in[1]} of {count}")
        self.written[known] = self.written.get(known, 0) + 1
        self._counters.letters += 1
        self._counters.letters_again += self.written[known] > 1
        if record.value is None:
            return
        self._counters.letters_with_copy += 1
        if not self._copies or self._values.get(known, record.value) != bytes(record.value):
            raise Breach("dead letters tell what happened", f"{letter} copies {bytes(record.value)!r}")

    def shown(self, key: Key, offset: int, value: Any) -> None:
        """A member got the record."""
        self._values[key, offset] = None if value is None else bytes(value)

    # Records that are over.

    def archived(self, key: Key, offsets: Iterable[int]) -> None:
        """It is committed that these records are archived."""
        if self.is_on:
            self._check(f"partition {key[1]} has archived", key, offsets)

    def passed(self, where: str, key: Key, first: int, start: int) -> None:
        """The group does not deliver these records any more."""
        if self.is_on:
            offsets = [each for each in range(first, start) if not self._fate(key, each).is_accept_asked]
            self._check(f"{where} begins at {start} after", key, offsets)

    def _check(self, what: str, key: Key, offsets: Iterable[int]) -> None:
        start = self._deleted(key)
        for offset in offsets:
            known = key, offset
            if offset >= start and known not in self.written and known not in self.given_up:
                raise Breach("dead letters come first", f"{what} {offset}: {self._fate(key, offset)}")

    def delivered(self, led: Led, offset: int) -> None:
        """A leader gives a record to a member. It may have had a dead letter from a leader that could not say so."""
        self._counters.letters_in_vain += (led.key, offset) in self.written


def _letter_of(record: Any) -> Letter:
    told = {
        name[len(PREFIX) :]: bytes(value).decode()
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    return Letter(
        told["topic"],
        int(told["partition"]),
        int(told["offset"]),
        told["group"],
        int(told["delivery.count"]),
    )
