"""Reports the log directory of each replica of this broker to the active controller: AssignReplicasToDirs (KIP-858).

Assignments are collected and sent in batches, one batch at a time, until the controller has accepted them. Replicas
that no longer belong to this broker are left out. The waits after failures are those of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.controller.features import directories_supported, metadata_version
from kafkacompat.faults import for_each, report
from kafkacompat.ids import Uuid
from kafkacompat.node.node_to_controller_channel_manager import NO_TIMEOUT_MS, UNANSWERED
from kafkacompat.wire.errors import ErrorCode, code_of

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.tasks import Started, Tasks

logger = logging.getLogger(__name__)

ASSIGNMENTS_PER_REQUEST_MAX = 2250
LINGER_MS = 1
"""With this delay, the assignments of one image go into one request."""
RETRY_MS, RETRY_MAX_MS = 100, 10_000

Key = tuple[Uuid, int]
"""Topic id and partition."""
Accepted = Callable[[], None]


class Sender(Protocol):
    """The part of NodeToControllerChannelManager that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class AssignmentsManager:
    """Bounded by the replicas of this broker: only the newest assignment of each replica is kept."""

    def __init__(
        self,
        node_id: int,
        channel: Sender,
        tasks: Tasks,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._channel = channel
        self._tasks = tasks
        self._image = image
        self._broker_epoch = broker_epoch
        self._ready: OrderedDict[Key, tuple[Uuid, Accepted | None]] = OrderedDict()
        self._sent = 0
        """Assignments of the request in flight."""
        self._sending: Started | None = None
        self._closed = False

    @property
    def queued(self) -> int:
        """Assignments that the controller has not accepted yet."""
        return len(self._ready) + self._sent

    def assign(
        self, topic_id: Uuid, partition: int, directory_id: Uuid, accepted: Accepted | None = None
    ) -> None:
        """`accepted` is called once the metadata contain the assignment. A newer assignment of the replica cancels the call."""
        if not directories_supported(metadata_version(self._image().features)):
            if accepted is not None:
                accepted()
            return
        self._ready.pop((topic_id, partition), None)
        self._ready[topic_id, partition] = directory_id, accepted
        if not self._closed and (self._sending is None or self._sending.done):
            self._sending = self._tasks.start("AssignReplicasToDirs", self._send())

    def close(self) -> None:
        self._closed = True
        if self._sending is not None:
            self._sending.cancel()
        self._ready.clear()
        self._sent = 0

    async def _send(self) -> None:
        """One request after another, until the controller has accepted everything."""
        failures = 0
        while self._ready:
            await self._tasks.sleep(
                min(RETRY_MS << min(failures - 1, 16), RETRY_MAX_MS) if failures else LINGER_MS
            )
            sent = self._take()
            if not sent:
                continue
            self._sent = len(sent)
            logger.info("Sending %d assignments of replicas to directories to the controller", len(sent))
            try:
                response = await self._channel.request(self._request(sent), NO_TIMEOUT_MS)
                left, reason = self._handle(sent, response)
            except UNANSWERED as error:
                left, reason = sent, str(error)
            except Exception as error:  # without a retry the metadata would stay wrong
                report("AssignReplicasToDirs", error)
                left, reason = sent, str(error)
            else:
                if not response.error_code:
                    failures = 0
            self._sent = 0
            if left:
                failures += 1
                logger.warning("%d assignments failed: %s. Retrying", len(left), reason)
                for key, assignment in left.items():
                    self._ready.setdefault(key, assignment)

    def _take(self) -> dict[Key, tuple[Uuid, Accepted | None]]:
        sent: dict[Key, tuple[Uuid, Accepted | None]] = {}
        while self._ready and len(sent) < ASSIGNMENTS_PER_REQUEST_MAX:
            key, assignment = self._ready.popitem(last=False)
            if self._is_ours(key):
                sent[key] = assignment
        return sent

    def _is_ours(self, key: Key) -> bool:
        topic = self._image().topics_by_id.get(key[0])
        partition = None if topic is None else topic.partitions.get(key[1])
        return partition is not None and self._node_id in partition.replicas

    def _request(self, sent: dict[Key, tuple[Uuid, Accepted | None]]) -> Any:
        from kafkacompat.wire.messages.assign_replicas_to_dirs_request import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        directories: dict[Uuid, dict[Uuid, list[PartitionData]]] = {}
        for (topic_id, partition), (directory_id, _) in sent.items():
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=partition))
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=directory_id,
                    topics=[
                        TopicData(topic_id=topic_id, partitions=those) for topic_id, those in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )

    def _handle(
        self, sent: dict[Key, tuple[Uuid, Accepted | None]], response: Any
    ) -> tuple[dict[Key, tuple[Uuid, Accepted | None]], str]:
        """Returns what the controller has not accepted, and why."""
        if response.error_code:
            return sent, code_of(response.error_code).name
        self._sent = 0
        left = dict(sent)
        told: list[Accepted] = []
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = topic.topic_id, partition.partition_index
                    if partition.error_code == ErrorCode.NONE and key in left:
                        _, accepted = left.pop(key)
                        if accepted is not None and key not in self._ready:
                            told.append(accepted)
        for_each(told, lambda accepted: accepted(), "accepting an assignment to a directory")
        return left, "they were refused"
