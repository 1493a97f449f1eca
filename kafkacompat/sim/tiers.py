"""Tiered topics of a simulated cluster: a reader that reads them from their start again and again, and the oracles of the tier.

Nothing is lost between a log's start and its end, wherever it lies. Whatever the store sends, a reader gets what was committed, or
an error. In the end everything is copied that is due, and the store has what the metadata know, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import has_valid_crc, iterate_batches
from kafkacompat.remote.metadata import RemoteLogSegmentState, TopicIdPartition
from kafkacompat.remote.ports import RemoteStorageException
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import UNCLEAN, is_tiered
from kafkacompat.sim.committed_metadata import Key, partitions_of
from kafkacompat.sim.consumers import Reader
from kafkacompat.sim.remote_store import SimulatedRemoteStore
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.links import Links
    from kafkacompat.sim.oracles import ClusterOracles
    from kafkacompat.sim.views import MachineView, NodeView

PAUSE_MS = 400
"""Between two readings of a partition."""


class TierReader(Reader):
    """Reads each tiered partition from its start to its end, and then again."""

    def __init__(self, links: Links, client_id: int, oracles: ClusterOracles, counters: Any) -> None:
        super().__init__(links, client_id, oracles.clients)
        self._ledgers = oracles.partitions.ledgers
        self._counters = counters
        self._begun_us: dict[Key, int] = {}
        self.read_since_us: dict[Key, int] = {}
        """When the last reading that came to the end began."""
        self.read_to: dict[Key, int] = {}

    def found(self, key: Key) -> None:
        if is_tiered(self.env.options, self.places[key].topic):
            self._begun_us[key] = self.env.scheduler.now_us
            super().found(key)

    def _may_be_gone(self, key: Key) -> bool:
        return True

    def _check(self, key: Key, answer: Any) -> None:
        ledger, position = self._ledgers.get(key), self.positions[key]
        is_kept = ledger is not None and ledger.starts.start <= position <= ledger.end
        if (
            answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            and is_kept
            and self.places[key].topic != UNCLEAN
        ):
            raise Breach(
                "what is kept is readable",
                f"{self.places[key]} has no offset {position} any more, and is kept from {ledger.starts.start if ledger else None}",
            )

    def _seek_beginning(self, key: Key) -> None:
        if self.env.metadata.is_deleted(key):
            self.positions.pop(key, None)
            return
        if self.places[key].leader == NO_LEADER:
            self.refresh()
            self.later(lambda: self._seek_beginning(key))
            return
        self._begun_us[key] = self.env.scheduler.now_us
        super()._seek_beginning(key)

    def _sought(self, key: Key, done: Deferred[Any]) -> None:
        try:
            answer = done.result().topics[0].partitions[0]
        except ChannelError:
            answer = None
        if answer is None or answer.error_code:
            self.refresh()
            self.later(lambda: self._seek_beginning(key))
            return
        ledger = self._ledgers[key]
        if answer.offset > ledger.starts.start and self.places[key].topic != UNCLEAN:
            raise Breach(
                "what is kept is readable",
                f"{self.places[key]} says that it begins at {answer.offset}, and has all from {ledger.starts.start}",
            )
        self.positions[key] = answer.offset
        self._fetch(key)

    def _read(self, key: Key, answer: Any) -> None:
        records = answer.records or b""
        for header in iterate_batches(records):
            batch = memoryview(records)[header.position : header.position + header.size]
            if not has_valid_crc(batch, header):
                raise Breach(
                    "readers get what was stored", f"{self.places[key]} at {header.base_offset} is damaged"
                )
        self._oracle.consumed(key, records)
        for header in iterate_batches(records):
            if header.last_offset >= self.positions[key]:
                self._advance(key, max(self.positions[key], header.base_offset))
                self.positions[key] = header.last_offset + 1

    def _advance(self, key: Key, offset: int) -> None:
        if self.places[key].topic != UNCLEAN:
            super()._advance(key, offset)

    def _fetch(self, key: Key) -> None:
        ledger = self._ledgers.get(key)
        if ledger is not None and self.positions[key] >= ledger.end > 0:
            self._counters.readings += 1
            self.read_since_us[key], self.read_to[key] = self._begun_us[key], self.positions[key]
            self.later(lambda: self._seek_beginning(key), PAUSE_MS)
            return
        super()._fetch(key)


class Tiers:
    """The oracles of the tier. `published` is called with every image of every node."""

    def __init__(
        self,
        store: SimulatedRemoteStore,
        reader: TierReader,
        machines: Mapping[int, MachineView],
        oracles: ClusterOracles,
    ) -> None:
        self._store = store
        self._reader = reader
        self._machines = machines
        self._oracles = oracles
        self._deleters: dict[Key, NodeView | None] = {}
        """Partitions of deleted topics, and who led them then. That node deletes what is in the store, as in Kafka. None if it
        had not taken its role: another one deletes then, much later."""
        self.rests_since_us = 0

    def published(self, old: MetadataImage, new: MetadataImage) -> None:
        for topic_id, topic in old.topics_by_id.items():
            if topic_id in new.topics_by_id:
                continue
            for index, partition in topic.partitions.items():
                key = topic_id, index
                leader = None if partition.leader == NO_LEADER else self._machines[partition.leader].life
                if leader is not None and (leader.partitions is None or key not in leader.partitions.by_id):
                    leader = None
                self._deleters.setdefault(key, leader)

    def missing(self, image: MetadataImage) -> str | None:
        """What a cluster at rest owes to its tier. None: nothing."""
        options = self._reader.env.options
        known = set()
        for key, partition in partitions_of(image):
            name = image.topics_by_id[key[0]].name
            if not is_tiered(options, name):
                continue
            where = f"{name}-{key[1]} on node {partition.leader}"
            life = self._machines[partition.leader].life if partition.leader != NO_LEADER else None
            remote = None if life is None else life.remote
            if life is None or remote is None or life.partitions is None:
                return f"nobody serves {where}"
            log = life.partitions.by_id[key].log
            active = log.segments_from(log.local_log_start_offset)[-1].base_offset  # type: ignore[attr-defined]
            if log.highest_offset_in_remote_storage + 1 < active:
                return f"{where} is copied to {log.highest_offset_in_remote_storage}, and closed to {active}"
            try:
                copies = remote.metadata.list_remote_log_segments(TopicIdPartition(key[0], name, key[1]))
            except RemoteStorageException as error:
                return f"{where}: {error}"
            for each in copies:
                segment = each.remote_log_segment_id.id
                known.add(segment)
                if each.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                    return f"{where} has a copy whose deletion does not end: {each}"
                if each.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                    continue  # whoever has begun it might still end it, for an hour
                stored = self._store.objects.get(segment)
                if stored is None or not stored.is_whole:
                    raise Breach("finished copies are whole", f"{where}: {each} is stored as {stored}")
            ledger = self._oracles.partitions.ledgers[key]
            since_us = self._reader.read_since_us.get(key, 0)
            if ledger.end and (since_us < self.rests_since_us or self._reader.read_to[key] < ledger.end):
                return f"{where} is not read from its start since {self.rests_since_us}"
        strangers = [each for segment, each in self._store.objects.items() if segment not in known]
        for stored in strangers:
            if (owed := self._owed(stored, image)) is not None:
                return owed
        counters = self._store.counters
        counters.orphans += len(strangers)
        left = {
            (each.metadata.topic_id_partition.topic_id, each.metadata.topic_id_partition.partition)
            for each in strangers
        }
        counters.topics_emptied += len(self._deleters.keys() - left)
        return None

    def _owed(self, stored: Any, image: MetadataImage) -> str | None:
        topic_id, _, partition = stored.metadata.topic_id_partition
        is_gone = not self._is_alive(stored.writer)
        if stored.is_late and is_gone:
            return None  # its upload ended after its deletion, and whoever has sent it is gone
        if topic_id not in image.topics_by_id:
            deleter = self._deleters.get((topic_id, partition))
            if deleter is None or not self._is_alive(deleter):
                return None
            return f"of a deleted topic is left: {stored.metadata}"
        return f"the metadata do not know what is stored: {stored.metadata}"

    def _is_alive(self, life: NodeView) -> bool:
        return self._machines[life.id].life is life
