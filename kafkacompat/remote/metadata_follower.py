"""What this node reads of the topic `__remote_log_metadata`, and what it knows by that of the partitions that it has. Pure.

A partition of the topic has the records of many partitions. It is read from its start when one of them is added, and records that
another one has had already are passed over. A partition is ready when everything is read that the topic had when it was added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.remote.metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from kafkacompat.remote.metadata_cache import RemoteLogMetadataCache
from kafkacompat.remote.ports import (
    RemoteResourceNotFoundException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
)
from kafkacompat.remote.records import decode_record, metadata_partition
from kafkacompat.wire.errors import WireError


class _User:
    """One partition whose metadata is followed."""

    __slots__ = ("cache", "index", "is_deleted", "is_ready", "read_offset", "waiting")

    def __init__(self, index: int) -> None:
        self.index = index
        self.cache = RemoteLogMetadataCache()
        self.read_offset = -1
        """Of the last record about it."""
        self.is_ready = False
        self.is_deleted = False
        """All that it had in the remote store is deleted."""
        self.waiting: list[tuple[int, Deferred[None]]] = []
        """Offsets of records about it, and who waits until they are read."""

    def lose(self, partition: TopicIdPartition, end: int) -> None:
        """The topic ends before the last record that was read: its leader has lost its power, or the topic was made again. What is
        known stays, because the store has it. But other records get these offsets, and they count."""
        self.read_offset = end - 1
        waiting, self.waiting = self.waiting, []
        for _, read in waiting:
            if not read.done:
                read.fail(RetriableRemoteStorageException(f"the topic has lost records about {partition}"))


class _Followed:
    """One partition of the topic."""

    __slots__ = ("deletions", "latest", "next_offset", "told", "users")

    def __init__(self) -> None:
        self.users: dict[TopicIdPartition, _User] = {}
        self.deletions: dict[TopicIdPartition, RemotePartitionDeleteMetadata] | None = None
        """Those that are not finished. None: nobody looks for them."""
        self.told: set[TopicIdPartition] = set()
        self.next_offset: int | None = None
        """None: it is to be read from its start, which is not known."""
        self.latest = 0
        """Its end when that was last asked for."""


class Read(NamedTuple):
    """A record of the topic."""

    offset: int
    value: bytes | None


class MetadataFollower:
    def __init__(self, partition_count: int) -> None:
        """`partition_count`: of the topic."""
        self._partition_count = partition_count
        self._users: dict[TopicIdPartition, _User] = {}
        self._followed: dict[int, _Followed] = {}
        self._unfinished: list[RemotePartitionDeleteMetadata] = []

    def add(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Follow what is said of these partitions too."""
        for each in partitions:
            if each in self._users:
                continue
            index = metadata_partition(each, self._partition_count)
            followed = self._followed.setdefault(index, _Followed())
            followed.users[each] = self._users[each] = _User(index)
            followed.next_offset = None

    def look_for_deletions(self, indexes: Collection[int]) -> None:
        """Read these partitions of the topic, and no others, for deletions that were begun and are not finished."""
        for index in indexes:
            followed = self._followed.setdefault(index, _Followed())
            if followed.deletions is None:
                followed.deletions, followed.next_offset = {}, None
        for index, followed in list(self._followed.items()):
            if followed.deletions is not None and index not in indexes:
                followed.deletions = None
                followed.told.clear()
                if not followed.users:
                    del self._followed[index]

    def unfinished_deletions(self) -> list[RemotePartitionDeleteMetadata]:
        """What was found since the last call."""
        found, self._unfinished = self._unfinished, []
        return found

    def is_unfinished(self, partition: TopicIdPartition) -> bool:
        """Whether a deletion of this partition is among those that are looked for, and not finished."""
        followed = self._followed.get(metadata_partition(partition, self._partition_count))
        return followed is not None and partition in (followed.deletions or {})

    def remove(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Forget these partitions. Whoever waits for records about them is told."""
        for each in partitions:
            user = self._users.pop(each, None)
            if user is None:
                continue
            followed = self._followed[user.index]
            del followed.users[each]
            if not followed.users and followed.deletions is None:
                del self._followed[user.index]
            waiting, user.waiting = user.waiting, []
            for _, read in waiting:
                if not read.done:
                    read.fail(RemoteResourceNotFoundException(f"{each} is not followed any more"))

    def offsets(self) -> Mapping[int, int | None]:
        """The partitions of the topic that are read, and the offset from which each is read next. None: its limits are to be
        asked for, and told to `limits_are`."""
        return {index: followed.next_offset for index, followed in self._followed.items()}

    def limits_are(self, index: int, earliest: int, latest: int, among: Collection[TopicIdPartition]) -> None:
        """What a partition of the topic had. `among`: those that were followed when it was asked for. If there are others by
        now, it is to be asked for again."""
        followed = self._followed.get(index)
        if followed is None or followed.next_offset is not None or not followed.users.keys() <= set(among):
            return
        followed.next_offset, followed.latest = earliest, latest
        for partition, user in list(followed.users.items()):
            if user.read_offset >= latest:
                user.lose(partition, latest)
        self._look_for_ready_ones(followed)

    def users_of(self, index: int) -> tuple[TopicIdPartition, ...]:
        followed = self._followed.get(index)
        return () if followed is None else tuple(followed.users)

    def is_out_of_range(self, index: int, offset: int) -> None:
        """The topic has nothing at the offset from which it was read: it is read from its start."""
        followed = self._followed.get(index)
        if followed is not None and followed.next_offset == offset:
            followed.next_offset = None

    def take(self, index: int, offset: int, records: Iterable[Read], next_offset: int) -> list[str]:
        """What was read from `offset` on, with the offset after it. Nothing happens if the partition is not to be read from there
        any more. Returns what is wrong with records that were passed over."""
        followed = self._followed.get(index)
        if followed is None or followed.next_offset != offset:
            return []
        flaws: list[str] = []
        for each in records:
            if each.offset >= offset:
                flaws += self._take(followed, index, each)
            # Whoever waited for a record may have added a partition, for which everything is read again.
            if self._followed.get(index) is not followed or followed.next_offset != offset:
                return flaws
        followed.next_offset = next_offset
        self._look_for_ready_ones(followed)
        return flaws

    def _take(self, followed: _Followed, index: int, record: Read) -> list[str]:
        try:
            if record.value is None:
                raise WireError("it has no value")
            metadata = decode_record(record.value)
        except WireError as error:
            return [f"partition {index}, offset {record.offset}: {error}"]
        if followed.deletions is not None and isinstance(metadata, RemotePartitionDeleteMetadata):
            if metadata.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
                followed.deletions.pop(metadata.topic_id_partition, None)
                followed.told.discard(metadata.topic_id_partition)
            else:
                followed.deletions[metadata.topic_id_partition] = metadata
        user = followed.users.get(partition_of(metadata))
        if user is None or user.read_offset >= record.offset:
            return []
        user.read_offset = record.offset
        if isinstance(metadata, RemoteLogSegmentMetadata):
            user.cache.add_copy_in_progress_segment(metadata)
        elif isinstance(metadata, RemoteLogSegmentMetadataUpdate):
            user.cache.update_remote_log_segment_metadata(metadata)
        elif metadata.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            user.is_deleted, user.cache = True, RemoteLogMetadataCache()
        if user.waiting:
            now = [read for offset, read in user.waiting if offset <= record.offset]
            user.waiting = [each for each in user.waiting if each[0] > record.offset]
            for read in now:
                if not read.done:
                    read.resolve(None)
        return []

    def _look_for_ready_ones(self, followed: _Followed) -> None:
        if followed.next_offset is None or followed.next_offset < followed.latest:
            return
        for user in followed.users.values():
            user.is_ready = True
        for partition, deletion in (followed.deletions or {}).items():
            if partition not in followed.told:
                followed.told.add(partition)
                self._unfinished.append(deletion)

    def when_read(self, partition: TopicIdPartition, offset: int) -> Deferred[None]:
        """Done when the record about this partition at this offset of the topic is read. Fails with
        RemoteResourceNotFoundException if the partition is not followed. Who waits no longer fails it."""
        user = self._users.get(partition)
        if user is None:
            gone: Deferred[None] = Deferred()
            gone.fail(RemoteResourceNotFoundException(f"{partition} is not followed"))
            return gone
        if user.read_offset >= offset:
            return Deferred.of(None)
        read: Deferred[None] = Deferred()
        # Records may be taken for days while they cannot be read.
        user.waiting = [each for each in user.waiting if not each[1].done]
        user.waiting.append((offset, read))
        return read

    def is_followed(self, partition: TopicIdPartition) -> bool:
        return partition in self._users

    def is_ready(self, partition: TopicIdPartition) -> bool:
        user = self._users.get(partition)
        return user is not None and user.is_ready

    def cache_of(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """What is known of a partition. Raises RemoteStorageNotReadyException while not all is read, and
        RemoteResourceNotFoundException if it is not followed or has been deleted."""
        user = self._users.get(partition)
        if user is None or (user.is_ready and user.is_deleted):
            raise RemoteResourceNotFoundException(f"nothing is known of {partition} in the remote store")
        if not user.is_ready:
            raise RemoteStorageNotReadyException(f"what is known of {partition} is being read")
        return user.cache


def partition_of(metadata: RemoteLogMetadata) -> TopicIdPartition:
    """The partition of which this says something."""
    if isinstance(metadata, RemoteLogSegmentMetadataUpdate):
        return metadata.remote_log_segment_id.topic_id_partition
    return metadata.topic_id_partition
