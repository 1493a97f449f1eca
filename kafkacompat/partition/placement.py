"""The directory of each replica of this node, compared with the metadata, and the requests of AlterReplicaLogDirs.

If the two differ, the controller is told (KIP-858): the log is not moved to the directory in the metadata. Moves begin
and end here (KIP-113), and interrupted ones continue after a start.
replica_alter_log_dirs_manager.py copies the records; it is imported when something moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, NO_LEADER, is_reserved_uuid
from kafkacompat.log.directory import can_be_marked
from kafkacompat.ports import FileSlice, LogRefused
from kafkacompat.records.batch import has_valid_crc, iterate_batches
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replica_alter_log_dirs_manager import Assign, ReplicaAlterLogDirsManager
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import Log, Records

logger = logging.getLogger(__name__)

PREFERENCES_MAX = 10_000
"""Replicas that do not exist yet and whose directory was requested. Of more, the newest are remembered: some never come."""


class Placement:
    """Compares directories and starts moves. HostedPartitions reports the roles."""

    def __init__(
        self,
        services: PartitionServices,
        hosted: HostedPartitions,
        assign: Assign,
    ) -> None:
        self._services = services
        self._logs = services.logs
        self._hosted = hosted
        self._assign = assign
        self._moves: ReplicaAlterLogDirsManager | None = None
        self._damaged = DamagedReplicas(services, self._repaired)
        hosted.placing = self

    def close(self) -> None:
        if self._moves is not None:
            self._moves.close()

    def max_move_lag(self) -> int:
        """Of the replicas that are being moved between directories."""
        return 0 if self._moves is None else max(self._moves.max_lag(), 0)

    def moved_bytes_per_second(self) -> float | None:
        """None: nothing has been moved between directories yet."""
        return None if self._moves is None else self._moves.bytes_per_second()

    # Calls from HostedPartitions.

    def recover(self, image: MetadataImage) -> None:
        """Handle the first image, before its roles are applied: logs without a replica here, and future logs that a
        stop left behind.

        While this node or a directory was offline, a replica may have been moved away and its topic recreated. Such a
        log becomes a stray, as in Kafka, and is not removed. A future log whose directory the metadata names, without
        a current log beside it, was about to replace it and becomes the current log. The exception is a current log
        that may be in an offline directory: it may have more records, if no leader restores the other. Other future
        logs continue when their roles are taken.
        """
        node_id, futures = self._hosted.node_id, self._logs.futures
        ids = {name: topic.id for name, topic in image.topics.items()}
        self._logs.settle_rivals(ids.get)
        self._set_strays_aside(image)
        self._withhold_former(image)
        for name, log in sorted(futures.logs.items()):
            home = futures.home(name)
            assert home is not None
            topic = image.topics_by_id.get(log.topic_id)
            partition = None if topic is None else topic.partitions.get(name.partition)
            try:
                if partition is None or node_id not in partition.replicas:
                    logger.warning(
                        "the future log of %s in %s is of no replica here: a stray", name, home.path
                    )
                    futures.set_aside(name)
                elif (
                    self._logs.get(name) is None
                    and partition.directory(node_id) == home.directory_id
                    and (self._is_filled(partition) or not self._logs.may_have(name))
                ):
                    logger.info("the future log of %s in %s becomes the current one", name, home.path)
                    self._logs.promote_future(name)
            except OSError as error:
                self._logs.directory_failed(home, error)
            except LogRefused as refused:
                logger.error("the future log of %s cannot become the current one: %s", name, refused)

    def _set_strays_aside(self, image: MetadataImage) -> None:
        def is_ours(name: TopicPartition) -> bool:
            topic = image.topics.get(name.topic)
            partition = None if topic is None else topic.partitions.get(name.partition)
            return partition is not None and self._hosted.node_id in partition.replicas

        self._logs.set_refused_aside(is_ours)
        for name, log in sorted(self._logs.logs.items()):
            if is_ours(name) and log.topic_id == image.topics[name.topic].id:
                continue
            logger.warning("%s is of no replica here: a stray", log.directory)
            self._logs.mark_stray(name)

    def _withhold_former(self, image: MetadataImage) -> None:
        """Withhold logs if the metadata may name an offline directory for their replica. The log found in another
        directory may be from before a move. As a leader it would lack later acknowledged records, unless its own
        leader restores them first."""
        directories = self._logs.directories
        if all(each.online for each in directories):
            return
        known = {each.directory_id for each in directories if each.online}
        for name in sorted(self._logs.logs):
            partition = image.topics[name.topic].partitions[name.partition]
            named = partition.directory(self._hosted.node_id)
            is_filled = self._is_filled(partition)
            if not is_filled and named not in known and not is_reserved_uuid(named):
                reason = (
                    "the metadata name another directory for it, perhaps one that is offline; "
                    "once that is not in log.dirs any more, this log counts"
                )
                self._logs.withhold(name, reason)

    def may_begin_empty(self, image: PartitionRegistration) -> bool:
        """Whether the replica may start empty: its leader restores it, and its directory is online or not chosen yet."""
        named = image.directory(self._hosted.node_id)
        return self._is_filled(image) and (
            named == DIRECTORY_UNASSIGNED
            or any(each.online and each.directory_id == named for each in self._logs.directories)
        )

    def _is_filled(self, image: PartitionRegistration) -> bool:
        """Whether the leader restores the replica before it can be elected: it is neither in the ISR nor an eligible
        leader replica. Without a leader it may be the last known leader, which is outside the ISR only until an
        unclean election."""
        node_id = self._hosted.node_id
        return (
            image.leader != NO_LEADER
            and node_id not in image.isr
            and node_id not in image.eligible_leader_replicas
        )

    def role_taken(self, core: Partition, image: PartitionRegistration) -> None:
        name = core.topic_partition
        home = self._logs.directory_of(name)
        if home is None:
            return
        move = None if self._moves is None else self._moves.get(name)
        target = self._logs.futures.home(name)
        if move is None and target is not None:
            self._begin(core)
        if move is not None and move.is_being_told:
            return
        directory_id = DIRECTORY_LOST if self._is_given_up(core, image) else home.directory_id
        if image.directory(self._hosted.node_id) != directory_id:
            self._assign(core.topic_id, name.partition, directory_id, None)

    def gone(self, core: Partition) -> None:
        """The replica is no longer on this node."""
        self._damaged.discard(core.topic_partition)
        if self._moves is not None:
            self._moves.end(core.topic_partition)

    # Damaged replicas. A broker cannot name another leader. But it can tell the controller that a replica's directory is
    # lost, as it does for one that fails (KIP-858): the controller then elects another leader from the ISR. The replica
    # goes on following, and may even be in sync, but is not elected while it is lost.

    def give_up(self, core: Partition, damaged_offset: int) -> bool:
        image = self._image_of(core)
        if image is None:
            return False
        self._damaged.add(core, damaged_offset)
        if not self._is_given_up(core, image):
            return False
        self.role_taken(core, image)
        return True

    def _repaired(self, core: Partition) -> None:
        image = self._image_of(core)
        if image is not None and self._hosted.core(core.topic_partition) is core:
            self.role_taken(core, image)

    def _image_of(self, core: Partition) -> PartitionRegistration | None:
        topic = self._hosted.image.topics_by_id.get(core.topic_id)
        return None if topic is None else topic.partitions.get(core.topic_partition.partition)

    def _is_given_up(self, core: Partition, image: PartitionRegistration) -> bool:
        """Whether the replica is damaged, and another one leads or could."""
        if not self._damaged.has(core):
            return False
        if image.leader != self._hosted.node_id:
            return image.leader != NO_LEADER
        return any(self._could_lead(replica, image) for replica in image.isr)

    def _could_lead(self, replica: int, image: PartitionRegistration) -> bool:
        here, broker = (self._hosted.image.brokers.get(each) for each in (self._hosted.node_id, replica))
        if here is None or not here.directories:
            return False  # the metadata version has no directories
        return (
            broker is not None
            and broker is not here
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and image.directory(replica) != DIRECTORY_LOST
        )

    # AlterReplicaLogDirs

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        """Begin to move a replica to the directory with this path, or cancel a move to another one. A replica that
        does not exist yet will be created there."""
        if not can_be_marked(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        logs = self._logs
        directory = logs.directory_at(path)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not directory.online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if directory.directory_id in logs.cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        core = self._hosted.core(name)
        if core is None:
            error = self._hosted.leader_error(name)
            if error is ErrorCode.KAFKA_STORAGE_ERROR:
                return error
            logs.preferred.pop(name, None)
            logs.preferred[name] = directory
            if len(logs.preferred) > PREFERENCES_MAX:
                del logs.preferred[next(iter(logs.preferred))]
            is_elsewhere = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error
        target = logs.futures.home(name)
        if target is directory:
            return ErrorCode.NONE
        try:
            if target is not None:
                if self._moves is not None:
                    self._moves.end(name)
                logs.discard_future(name)
            if logs.directory_of(name) is not directory:
                logs.begin_future(name, directory)
                self._begin(core)
        except LogRefused as refused:
            logger.warning("%s cannot be moved to %s: %s", name, path, refused)
            return refused.code
        return ErrorCode.NONE

    def _begin(self, core: Partition) -> None:
        if self._moves is None:
            from kafkacompat.partition.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager

            self._moves = ReplicaAlterLogDirsManager(
                self._services,
                self._assign,
                failed=self._hosted.storage_failed,
                moved=self._hosted.log_replaced,
            )
        self._moves.begin(core)


LOOK_MS = 60_000


class DamagedReplicas:
    """Replicas of this node that are given up because their log cannot be read at an offset, until it can be read again.

    The file may be repaired, the damaged segment may be deleted, and a disk that refused a read several times may be
    well again. So each of them is looked at now and then. Bounded by the replicas of this node.
    """

    def __init__(self, services: PartitionServices, repaired: Callable[[Partition], None]) -> None:
        self._tasks = services.tasks
        self._workers = services.workers.reads
        self._repaired = repaired
        self._damaged: dict[TopicPartition, tuple[Partition, Log, int]] = {}
        """With an offset at which the log cannot be read."""
        self._is_watching = False

    def add(self, core: Partition, offset: int) -> None:
        self._damaged[core.topic_partition] = core, core.log, offset
        if not self._is_watching:
            self._is_watching = True
            self._tasks.start("watching damaged replicas", self._watch())

    def discard(self, name: TopicPartition) -> None:
        self._damaged.pop(name, None)

    def has(self, core: Partition) -> bool:
        """Whether the replica is damaged, as far as is known. Another log in its place is not, nor one that begins or ends
        elsewhere by now."""
        found = self._damaged.get(core.topic_partition)
        if found is None:
            return False
        _, log, offset = found
        if core.log is not log or not log.log_start_offset <= offset < log.log_end_offset:
            del self._damaged[core.topic_partition]
        return core.topic_partition in self._damaged

    async def _watch(self) -> None:
        while self._damaged:
            await self._tasks.sleep(LOOK_MS)
            for core, log, offset in list(self._damaged.values()):
                # Side by side: a disk that does not answer holds up no look at another.
                self._tasks.start(f"looking at {core.topic_partition}", self._look(core, log, offset))
        self._is_watching = False

    async def _look(self, core: Partition, log: Log, offset: int) -> None:
        if not self.has(core):
            self._repaired(core)
            return
        try:
            records = log.read(offset, 1, log.log_end_offset, True).records
            is_whole = await self._workers.submit(partial(_is_whole, records))
        except Exception as error:  # it stays damaged: another look follows
            logger.info("%s is still damaged: %s", core.topic_partition, error)
            return
        if is_whole and self.has(core) and core.log is log:
            del self._damaged[core.topic_partition]
            logger.warning("%s can be read again", core.topic_partition)
            self._repaired(core)


def _is_whole(records: Records) -> bool:
    """Whether the first batch of a slice is what was written. Blocks. Raises OSError or BatchCorrupt."""
    data = records.read() if isinstance(records, FileSlice) else records
    for header in iterate_batches(data):
        return has_valid_crc(memoryview(data)[header.position : header.position + header.size], header)
    return False
