"""Upkeep of the share coordinator's shards: pruned logs, snapshots of cold share-partitions, and states of deleted
topics.

Walks all shards periodically, in steps. A shard that fails is reported, and the others continue. As in Kafka nothing is
done while the cluster has no share groups (share.version 0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.controller.image import changed_topics
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.coordinator.shard import OPERATION_COST, Shard, ShardState
from kafkacompat.coordinator.shards import TOMBSTONE_COST, Rounds, Shards, stretches
from kafkacompat.faults import report
from kafkacompat.ids import SHARE_STATE_TOPIC, TopicPartition, Uuid
from kafkacompat.share.state.share_coordinator_shard import (
    ShareCoordinatorShard,
    cold_snapshots,
    is_cold,
    is_written_again,
    machine_of,
    tombstones_of_topics,
)
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Clock
    from kafkacompat.share.service import SharePartitionKey
    from kafkacompat.share.state.records import ShareRecord
    from kafkacompat.tasks import Tasks, Work

    Decide = Callable[[Sequence[SharePartitionKey]], list[ShareRecord]]

logger = logging.getLogger(__name__)

SHARE_VERSION = "share.version"
PRUNE_TIMEOUT_MS = 30_000
"""Time for the followers to remove pruned records too. They do so later in any case."""
SNAPSHOT_BATCHES = 500
"""State batches of snapshots that are written together, beyond the first one."""
BATCH_COST = 2
_LATER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class ShareSweeps:
    """Call `start`, then `stop`. A round that is not complete at the next interval continues."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        shards: Shards,
        partitions: PartitionService,
    ) -> None:
        self._clock = clock
        self._shards = shards
        self._partitions = partitions
        self._tasks = tasks
        self._rounds = Rounds(tasks, lambda: shards, lambda: self._has_share_groups)
        self._has_share_groups = False
        self._image: MetadataImage | None = None
        self._deleted: dict[Shard, set[Uuid]] = {}
        """Topics that were deleted while a shard was loading, or whose states are being removed. They stay here until the
        log has taken all of their tombstones."""
        self._dropping: set[Shard] = set()
        self.pruned: dict[int, int] = {}
        """Partition -> offset at which it was last pruned."""

    def start(self, prune_interval_ms: int, cold_interval_ms: int) -> None:
        self._rounds.plan("prune the share coordinator's partitions", prune_interval_ms, self._prune)
        self._rounds.plan("snapshot cold share-partitions", cold_interval_ms, self._snapshot)

    def stop(self) -> None:
        self._rounds.stop()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the shards have followed the image."""
        self._has_share_groups = new.features.get(SHARE_VERSION, 0) > 0
        self._image = new
        if old.topics is new.topics:
            return
        shards = set(self._shards)
        present = {shard.partition for shard in shards}
        self.pruned = {index: offset for index, offset in self.pruned.items() if index in present}
        self._deleted = {shard: ids for shard, ids in self._deleted.items() if shard in shards}
        if not present:
            return
        deleted = {
            former.id
            for former, present in changed_topics(old, new)
            if present is None and former is not None
        }
        if deleted:
            for shard in self._shards.with_state():
                self._deleted.setdefault(shard, set()).update(deleted)
                self.drop_topics(shard)

    # --- pruning

    def _prune(self, shard: Shard) -> Work[None]:
        """Remove the records below the oldest snapshot that is needed, once what replaces them is committed."""
        yield from self._look_for_deleted(shard)
        yield OPERATION_COST
        self._tasks.start("pruning the share coordinator's partitions", self._delete_redundant(shard))

    async def _delete_redundant(self, shard: Shard) -> None:
        name = TopicPartition(SHARE_STATE_TOPIC, shard.partition)
        try:
            offset = await shard.write(
                lambda _: CoordinatorResult((), machine_of(shard).offsets.last_redundant_offset())
            )
            if offset is None or self.pruned.get(shard.partition) == offset:
                return
            deleted = await self._partitions.delete_records(
                {name: offset}, PRUNE_TIMEOUT_MS, of_internal_topics=True
            )
        except Exception as error:
            _failed("pruning", shard, error)
            return
        code, _ = deleted[name]
        if code is ErrorCode.NONE:
            self.pruned[shard.partition] = offset
        elif code is not ErrorCode.REQUEST_TIMED_OUT:
            logger.warning("%s could not be pruned up to offset %d: %s", name, offset, code.name)

    # --- cold share-partitions

    def _snapshot(self, shard: Shard) -> Work[None]:
        machine = machine_of(shard)
        keys = list(machine.states)
        is_quiet = True
        for stretch in stretches(iter(keys)):
            is_quiet = is_quiet and all(is_written_again(machine, key) for key in stretch)
            yield len(stretch)
        if is_quiet:
            return  # no share-partition changes, so there is nothing to prune
        for stretch in stretches(iter(keys)):
            now_ms = self._clock.now_ms()
            cold = [key for key in stretch if is_cold(machine, key, now_ms)]
            yield from self._write(
                "snapshotting cold share-partitions",
                shard,
                cold,
                lambda together: cold_snapshots(machine, together, self._clock.now_ms()),
            )
            yield len(stretch)

    # --- deleted topics

    def drop_topics(self, shard: Shard) -> None:
        """Delete the states of deleted topics, including those deleted while the shard was loading."""
        if shard in self._deleted and shard.state is ShardState.ACTIVE and shard not in self._dropping:
            self._dropping.add(shard)
            self._tasks.start("deleting states of deleted topics", self._drop(shard))

    def _look_for_deleted(self, shard: Shard) -> Work[None]:
        """Begin again where the log has refused tombstones, and where a topic was deleted while no node coordinated this
        partition."""
        image = self._image
        assert image is not None  # there is no shard before the first one
        absent: set[Uuid] = set()
        for stretch in stretches(iter(list(machine_of(shard).states))):
            absent.update(key.topic_id for key in stretch if key.topic_id not in image.topics_by_id)
            yield len(stretch)
        if absent:
            self._deleted.setdefault(shard, set()).update(absent)
        self.drop_topics(shard)

    async def _drop(self, shard: Shard) -> None:
        machine = machine_of(shard)
        try:
            while deleted := set(self._deleted.get(shard, ())):
                is_all_written = True
                for stretch in stretches(iter(list(machine.states))):
                    is_written = await in_turns(
                        self._write(
                            "deleting states of deleted topics",
                            shard,
                            [key for key in stretch if key.topic_id in deleted],
                            partial(tombstones_of_topics, machine, deleted=deleted),
                        )
                    )
                    is_all_written = is_all_written and is_written
                    await pause(len(stretch))
                    if shard.state is not ShardState.ACTIVE:
                        return
                if not is_all_written:
                    return  # the next round begins again
                self._deleted[shard] -= deleted
        finally:
            self._dropping.discard(shard)
            if not self._deleted.get(shard) or shard.state is not ShardState.ACTIVE:
                self._deleted.pop(shard, None)

    def _write(
        self, what: str, shard: Shard, keys: Sequence[SharePartitionKey], decide: Decide
    ) -> Generator[int, None, bool]:
        """Each portion is decided on when it is written. Other requests come between two of them, and a snapshot of what
        was before such a request would take back what it has written. Returns whether the log has taken all."""
        for together in _portions(machine_of(shard), keys):
            if shard.state is not ShardState.ACTIVE:
                return False
            size = sum(_size(machine_of(shard), key) for key in together)
            try:
                written = shard.write(partial(_decided, decide, together))
            except Exception as error:
                _failed(what, shard, error)
                return False
            self._tasks.start(what, _heed(what, shard, written))
            if written.done and written.has_failed:
                return False
            yield len(together) * TOMBSTONE_COST + size * BATCH_COST
        return True


def _decided(
    decide: Decide, keys: Sequence[SharePartitionKey], now_ms: int
) -> CoordinatorResult[ShareRecord, None]:
    return CoordinatorResult(tuple(decide(keys)), None)


def _portions(
    machine: ShareCoordinatorShard, keys: Iterable[SharePartitionKey]
) -> Iterator[list[SharePartitionKey]]:
    portion: list[SharePartitionKey] = []
    size = 0
    for key in keys:
        own = _size(machine, key)
        if portion and (size + own > SNAPSHOT_BATCHES or len(portion) == 100):
            yield portion
            portion, size = [], 0
        portion.append(key)
        size += own
    if portion:
        yield portion


def _size(machine: ShareCoordinatorShard, key: SharePartitionKey) -> int:
    state = machine.states.get(key)
    return 0 if state is None else len(state.offset.batches.items)


async def _heed(what: str, shard: Shard, written: Deferred[None]) -> None:
    try:
        await written
    except Exception as error:
        _failed(what, shard, error)


def _failed(what: str, shard: Shard, error: Exception) -> None:
    if not isinstance(error, OperationRefused):
        report(f"{what} of share coordinator partition {shard.partition}", error)
    elif error.code not in _LATER:
        logger.warning("%s of share coordinator partition %d: %s", what, shard.partition, error)
