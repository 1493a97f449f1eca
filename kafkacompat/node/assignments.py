"""Reports the log directory of each replica of this broker to the active controller: AssignReplicasToDirs (KIP-858).

Assignments are collected and sent in batches, one batch at a time, until the controller has accepted them. Replicas
that no longer belong to this broker are left out. The waits after failures are those of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.controller.features import directories_supported, metadata_version
from kafkacompat.ids import Uuid
from kafkacompat.node.controller_channel import NO_TIMEOUT_MS
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Timers

logger = logging.getLogger(__name__)

ASSIGNMENTS_PER_REQUEST_MAX = 2250
LINGER_MS = 1
"""With this delay, the assignments of one image go into one request."""
RETRY_MS, RETRY_MAX_MS = 100, 10_000

Key = tuple[Uuid, int]
"""Topic id and partition."""
Accepted = Callable[[], None]


class Sender(Protocol):
    """The part of node.controller_channel.ControllerChannel that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class DirectoryAssignments:
    """Bounded by the replicas of this broker: only the newest assignment of each replica is kept."""

    def __init__(
        self,
        node_id: int,
        channel: Sender,
        timers: Timers,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._channel = channel
        self._timers = timers
        self._image = image
        self._broker_epoch = broker_epoch
        self._ready: OrderedDict[Key, tuple[Uuid, Accepted | None]] = OrderedDict()
        self._sent = 0
        """Assignments of the request in flight."""
        self._failures = 0
        self._busy = False
        """A request is in flight, or a timer will send one."""
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
        self._send_after(LINGER_MS)

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._sent = 0

    def _send_after(self, delay_ms: int) -> None:
        if not self._busy and not self._closed:
            self._busy = True
            self._timers.call_after(delay_ms, self._send)

    def _send(self) -> None:
        self._busy = False
        sent: dict[Key, tuple[Uuid, Accepted | None]] = {}
        while self._ready and len(sent) < ASSIGNMENTS_PER_REQUEST_MAX:
            key, assignment = self._ready.popitem(last=False)
            if self._is_ours(key):
                sent[key] = assignment
        if sent and not self._closed:
            self._busy = True
            self._sent = len(sent)
            logger.info("reporting the directories of %d replicas to the controller", len(sent))
            request = self._request(sent)
            self._channel.request(request, NO_TIMEOUT_MS).on_done(lambda done: self._answered(sent, done))

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

    def _answered(self, sent: dict[Key, tuple[Uuid, Accepted | None]], done: Deferred[Any]) -> None:
        self._busy = False
        self._sent = 0
        if self._closed:
            return
        try:
            response = done.result()
        except Exception as error:  # whatever the error is: without a retry the metadata would stay wrong
            self._again(sent, str(error))
            return
        if response.error_code:
            self._again(sent, ErrorCode(response.error_code).name)
            return
        self._failures = 0
        left = dict(sent)
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = topic.topic_id, partition.partition_index
                    if partition.error_code == ErrorCode.NONE and key in left:
                        _, accepted = left.pop(key)
                        if accepted is not None and key not in self._ready:
                            accepted()
        if left:
            self._again(left, "they were refused")
        elif self._ready:
            self._send_after(LINGER_MS)

    def _again(self, sent: dict[Key, tuple[Uuid, Accepted | None]], reason: str) -> None:
        logger.warning("the controller did not accept the directories of %d replicas: %s", len(sent), reason)
        for key, assignment in sent.items():
            self._ready.setdefault(key, assignment)
        wait_ms = min(RETRY_MS << min(self._failures, 16), RETRY_MAX_MS)
        self._failures += 1
        self._send_after(wait_ms)
