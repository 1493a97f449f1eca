"""Removals from the groups' shards: expired offsets, offsets of deleted topics, and deleted groups.

They walk a shard in stretches and write the tombstones of each stretch before the loop continues. A shard or stretch
that fails is reported, and the others continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused, RecordRun
from kafkacompat.coordinator.shard import OPERATION_COST, Shard, ShardState
from kafkacompat.coordinator.shards import STRETCH, TOMBSTONE_COST, Rounds, Shards, in_order, stretches
from kafkacompat.deferred import Deferred, gather
from kafkacompat.faults import report
from kafkacompat.group.group_metadata_manager import (
    begin_deletion,
    deleted_topic_records,
    deletion_records,
    expired_offset_records,
    machine_of,
    mark_dead,
    places,
    places_of_group,
    places_of_topics,
)
from kafkacompat.group.offset_metadata_manager import delete_offsets
from kafkacompat.group.records import GroupRecord, OffsetRecord
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.state_partitions import NO_STATES
from kafkacompat.group.share.states import forget_absent_topics
from kafkacompat.tasks import pause
from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse, OffsetDeleteResponseTopic

if TYPE_CHECKING:
    from kafkacompat.group.group import Group
    from kafkacompat.group.meters import GroupMeters
    from kafkacompat.ids import Uuid
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Tasks, Work

T = TypeVar("T")

PLACE_COST = 2
TOPICS_A_MICROSECOND = 5
"""Topics of a share group that are looked up in a microsecond."""
BATCH_BYTES_MAX = 16_384
"""Bytes of keys in one batch of tombstones, as for transactional ids in Kafka. A batch has at least one."""
KEY_OVERHEAD_BYTES = 32


def batches(records: Iterable[GroupRecord]) -> Iterator[list[GroupRecord]]:
    """The records in order, in batches that are small enough for any log."""
    batch: list[GroupRecord] = []
    size = 0
    for record in records:
        assert not isinstance(record, RecordRun)  # it has to be in one batch
        name = record.group_id + record.topic if isinstance(record, OffsetRecord) else record.group_id
        own = len(name.encode("utf-8", "surrogatepass")) + KEY_OVERHEAD_BYTES
        if batch and size + own > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += own
    if batch:
        yield batch


class GroupSweeps:
    """Call `start`, then `stop`."""

    def __init__(self, clock: Clock, meters: GroupMeters, tasks: Tasks) -> None:
        self._clock = clock
        self._meters = meters
        self._tasks = tasks
        self._rounds: Rounds | None = None
        self._dropping: set[Shard] = set()

    # --- expiry

    def start(self, shards: Shards, expiry_interval_ms: int) -> None:
        """A round of the expiry also repeats what the log has refused of the removals after the deletion of a topic."""
        self._rounds = Rounds(self._tasks, shards.started)
        self._rounds.plan("the expiry of offsets", expiry_interval_ms, self._expire)

    def stop(self) -> None:
        if self._rounds is not None:
            self._rounds.stop()

    def _expire(self, shard: Shard) -> Work[None]:
        machine = machine_of(shard)
        for stretch in stretches(places(machine)):
            records = expired_offset_records(machine, stretch, self._clock.now_ms())
            self._meters.expired(sum(isinstance(each, OffsetRecord) for each in records))
            self._write(shard, records)
            yield _cost(records)
        yield from self._forget_absent_topics(shard)
        self.drop_topics(shard, now=False)

    # --- deletion of topics

    def drop_topics(
        self, shard: Shard, deleted: dict[str, Uuid] | None = None, end_offset: int = 0, *, now: bool = True
    ) -> None:
        """Drop the offsets of deleted topics (name -> id), and what share groups know of them, including topics deleted
        while the shard was loading. `end_offset`: the shard's when they were deleted.

        With `now` False the start is delayed: other shards start at once, and one image may cause as many of these as
        there are shards.
        """
        deleting = machine_of(shard).offsets.deleting
        for name, topic_id in (deleted or {}).items():
            deleting.setdefault(name, {})[topic_id] = end_offset
        if deleting and shard.state is ShardState.ACTIVE and shard not in self._dropping:
            self._dropping.add(shard)
            self._tasks.start("forgetting the offsets of deleted topics", self._drop_topics(shard, now))

    async def _drop_topics(self, shard: Shard, now: bool) -> None:
        machine = machine_of(shard)
        try:
            if not now:
                await pause()
            while machine.offsets.deleting:
                topics = {name: dict(ids) for name, ids in machine.offsets.deleting.items()}
                is_all_written = True
                for stretch in stretches(places_of_topics(machine, topics)):
                    await shard.when_free()
                    if shard.state is not ShardState.ACTIVE:
                        return
                    records = deleted_topic_records(machine, stretch, topics)
                    is_all_written = self._write(shard, records) and is_all_written
                    await pause(_cost(records))
                await in_order(shard, self._forget_absent_topics(shard))
                if shard.state is not ShardState.ACTIVE or not is_all_written:
                    return  # the next pass of the expiry begins again
                for name, ids in topics.items():
                    if machine.offsets.deleting[name] == ids:
                        del machine.offsets.deleting[name]
        finally:
            self._dropping.discard(shard)

    def _forget_absent_topics(self, shard: Shard) -> Work[None]:
        """Each share group is looked at in every pass of the expiry as well, so nothing is to be done if the log refuses
        its record."""
        machine = machine_of(shard)
        for group in list(machine.groups.values()):
            if shard.state is not ShardState.ACTIVE:
                return
            cost = PLACE_COST
            if isinstance(group, ShareGroup) and machine.groups.get(group.group_id) is group:
                states = NO_STATES if group.states is None else group.states
                cost += (len(states.initializing) + len(states.initialized)) // TOPICS_A_MICROSECOND
                record = forget_absent_topics(machine.env, group)
                if record is not None:
                    self._write(shard, [record])
                    cost += OPERATION_COST
            yield cost

    # --- deletion of a group

    def delete_group(self, shard: Shard, group_id: str) -> Deferred[None]:
        """Delete a group. Raises OperationRefused, or the Deferred fails with it. A group that fits into a stretch is deleted at
        once. For a larger one the offsets are deleted first, and it cannot be used meanwhile."""
        return shard.in_turn(lambda: self._delete_group(shard, group_id))

    def _delete_group(self, shard: Shard, group_id: str) -> Deferred[None]:
        shard.require_active()
        machine = machine_of(shard)
        group = begin_deletion(machine, group_id)
        found = places_of_group(machine, group_id)
        first = list(islice(found, STRETCH))
        if len(first) < STRETCH:
            return shard.write(lambda _: CoordinatorResult(tuple(deletion_records(machine, first)), None))
        mark_dead(machine, group, self._clock.now_ms())
        return self._tasks.run("the deletion of a group", self._delete_dead_group(shard, group))

    async def _delete_dead_group(self, shard: Shard, group: Group) -> None:
        """What the log has not refused when the last tombstone is written may still not be committed. Each stretch is written in
        its turn, so that a refusal is known before the next one."""
        machine = machine_of(shard)
        written: Deferred[None] | None = None
        try:
            for stretch in stretches(places_of_group(machine, group.group_id)):
                await shard.when_free()
                for batch in batches(deletion_records(machine, stretch)):
                    written = self._write_batch(shard, batch)
                    if written.done:
                        written.result()
                await pause(STRETCH * (PLACE_COST + TOMBSTONE_COST))
        except Exception:
            if group.is_dead() and machine.groups.get(group.group_id) is group:
                group.mark_alive()
            raise
        assert written is not None
        await written

    # --- deletion of offsets

    def delete_offsets(self, shard: Shard, request: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
        """Delete offsets. Raises OperationRefused. A request for more partitions than a stretch is carried out in pieces, like
        many small requests."""
        if sum(len(topic.partitions) for topic in request.topics) <= STRETCH:
            return shard.write(
                lambda _: self._meters.deleted(delete_offsets(machine_of(shard).offsets, request))
            )
        shard.require_active()
        return self._tasks.run("the deletion of offsets", self._delete_many_offsets(shard, request))

    async def _delete_many_offsets(self, shard: Shard, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        answers: list[Deferred[OffsetDeleteResponse]] = []
        for topic in request.topics:
            for start in range(0, len(topic.partitions), STRETCH):
                part = OffsetDeleteRequestTopic(
                    name=topic.name, partitions=topic.partitions[start : start + STRETCH]
                )
                piece = OffsetDeleteRequest(group_id=request.group_id, topics=[part])
                answers.append(
                    shard.write(
                        lambda _, piece=piece: self._meters.deleted(  # type: ignore[misc]
                            delete_offsets(machine_of(shard).offsets, piece)
                        )
                    )
                )
                await pause(len(part.partitions) * (PLACE_COST + TOMBSTONE_COST))
        return _joined(await gather(answers))

    def _write_batch(self, shard: Shard, batch: list[GroupRecord]) -> Deferred[None]:
        return shard.write(lambda _: CoordinatorResult(tuple(batch), None))

    def _write(self, shard: Shard, records: list[GroupRecord]) -> bool:
        """Whether the log has taken them all."""
        for batch in batches(records):
            try:
                written = self._write_batch(shard, batch)
            except Exception as error:
                if not isinstance(error, OperationRefused):
                    report(f"writing to coordinator partition {shard.partition}", error)
                return False
            if written.done and written.has_failed:
                return False  # later steps, such as the end of the group, depend on this one
        return True


def _cost(records: list[GroupRecord]) -> int:
    return STRETCH * PLACE_COST + len(records) * TOMBSTONE_COST


def _joined(parts: list[OffsetDeleteResponse]) -> OffsetDeleteResponse:
    """One response from those of the pieces, each of which has one topic."""
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    for part in parts:
        for topic in part.topics:
            known = topics.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name, partitions=[]))
            known.partitions.extend(topic.partitions)
    return OffsetDeleteResponse(topics=list(topics.values()))
