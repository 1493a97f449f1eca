"""In which directory each replica of this node lies, against what the metadata says, and what AlterReplicaLogDirs asks for.

Where the two differ the controller is told (KIP-858). Moves are begun and ended here (KIP-113); after a start those go on that a
stop cut short. The log wins: where it lies is told to the controller, it is not moved to where the metadata says. How records are
copied is moves.py's, imported when something moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ids import DIRECTORY_UNASSIGNED, NO_LEADER, is_reserved_uuid
from kafkacompat.log.directory import can_be_marked
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.manager import LogManager
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.moves import Assign, Moves

logger = logging.getLogger(__name__)

PREFERENCES_MAX = 10_000
"""Replicas that are yet to come and whose directory was asked for; more are answered all the same and forgotten."""


class Placement:
    """Told of roles by the hosted partitions, which come first."""

    def __init__(
        self,
        hosted: HostedPartitions,
        logs: LogManager,
        assign: Assign,
        make_moves: Callable[[], Moves],
    ) -> None:
        self._hosted = hosted
        self._logs = logs
        self._assign = assign
        self._make_moves = make_moves
        self._moves: Moves | None = None
        hosted.placing = self

    def close(self) -> None:
        if self._moves is not None:
            self._moves.close()

    # What the hosted partitions tell

    def recover(self, image: MetadataImage) -> None:
        """The first image, before its roles are taken: logs of no replica here any more, and future logs that a stop left behind.

        What changed while this node or a directory was away may have taken a replica from it, and its topic may have been made
        anew: such a log is a stray, as in Kafka, out of the way and not removed. A future log that the metadata names and that has
        no current log beside it was about to be alone: it becomes the current one, unless the current one may be away, which may
        have more, and no leader fills the other. The others go on when their role is taken.
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
        """Of a replica the metadata name a directory, and that may be one which is offline: what lies in another one may be of
        before a move. Led from there it would lack what was acknowledged since, unless its leader fills it first."""
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
        """A replica that its leader fills, in a directory that is online or not chosen yet."""
        named = image.directory(self._hosted.node_id)
        return self._is_filled(image) and (
            named == DIRECTORY_UNASSIGNED
            or any(each.online and each.directory_id == named for each in self._logs.directories)
        )

    def _is_filled(self, image: PartitionRegistration) -> bool:
        """Whether its leader gives it what it lacks before anybody elects it: it is neither in sync nor eligible. Without a leader
        it may be the last known one, which is out of the ISR for an unclean start alone."""
        node_id = self._hosted.node_id
        return (
            image.leader != NO_LEADER
            and node_id not in image.isr
            and node_id not in image.eligible_leader_replicas
        )

    def role_taken(self, core: PartitionCore, image: PartitionRegistration) -> None:
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
        if image.directory(self._hosted.node_id) != home.directory_id:
            self._assign(core.topic_id, name.partition, home.directory_id, None)

    def gone(self, core: PartitionCore) -> None:
        """It is not served here any more."""
        if self._moves is not None:
            self._moves.end(core.topic_partition)

    # AlterReplicaLogDirs

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        """Begin to move a replica to the directory of that path, or end a move elsewhere. One yet to come will lie there."""
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
            if len(logs.preferred) < PREFERENCES_MAX:
                logs.preferred[name] = directory
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

    def _begin(self, core: PartitionCore) -> None:
        if self._moves is None:
            self._moves = self._make_moves()
        self._moves.begin(core)
