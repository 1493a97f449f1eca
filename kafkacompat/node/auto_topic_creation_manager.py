"""Automatic topic creation: for a Metadata request with an unknown name, and of internal topics at their first use.

The caller checks whether creation is allowed. A failed creation is forgotten, so the next request tries again. Follows
Kafka's AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkacompat.api.request_context import ControllerTimedOut
from kafkacompat.config import ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kafkacompat.node.forwarding_manager import EnvelopeRefused
from kafkacompat.node.node_to_controller_channel_manager import UNANSWERED
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.tasks import Tasks

UNCREATED = (*UNANSWERED, ControllerTimedOut, EnvelopeRefused, CloseConnection)
"""Why the controller's answer may be missing."""
MAX_IN_FLIGHT = 1000
"""Names whose creation is in flight. Further names wait for the next request, which every client repeats."""


def creatable_topic(config: ServerConfig, name: str) -> CreatableTopic:
    """Return the topic to request: an internal topic with its settings, any other topic with the node's defaults."""
    settings: dict[str, str]
    if name == OFFSETS_TOPIC:
        partitions = config.get_int("offsets.topic.num.partitions")
        replication = config.get_int("offsets.topic.replication.factor")
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
            "compression.type": "producer",
        }
    elif name == TRANSACTION_TOPIC:
        partitions = config.get_int("transaction.state.log.num.partitions")
        replication = config.get_int("transaction.state.log.replication.factor")
        settings = {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
            "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
        }
    elif name == SHARE_STATE_TOPIC:
        partitions = config.get_int("share.coordinator.state.topic.num.partitions")
        replication = config.get_int("share.coordinator.state.topic.replication.factor")
        settings = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
            "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
            "retention.ms": "-1",
        }
    else:
        partitions = config.get_int("num.partitions")
        replication = config.get_int("default.replication.factor")
        settings = {}
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )


class AutoTopicCreationManager:
    """Creates topics. `create` sends a CreateTopicsRequest to the controller, in the name of the asker or of this
    node.

    `failed(name, code, message)` is called for each refusal, for the log.
    """

    __slots__ = ("_config", "_create", "_failed", "_in_flight", "_tasks")

    def __init__(
        self,
        config: ServerConfig,
        create: Callable[[CreateTopicsRequest, RequestContext | None], Deferred[Any]],
        failed: Callable[[str, int, str | None], None],
        tasks: Tasks,
    ) -> None:
        self._config = config
        self._create = create
        self._failed = failed
        self._tasks = tasks
        self._in_flight: set[str] = set()

    def request(self, topics: Sequence[str], asker: RequestContext | None = None) -> None:
        room = MAX_IN_FLIGHT - len(self._in_flight)
        if room <= 0:
            return
        # A request may name half a million topics. Read no more of them than there is room for.
        new = (name for name in topics if name not in self._in_flight)
        wanted = list(dict.fromkeys(islice(new, room)))
        if not wanted:
            return
        self._in_flight.update(wanted)
        request = CreateTopicsRequest(topics=[creatable_topic(self._config, name) for name in wanted])

        self._tasks.start("automatic creation of topics", self._send(request, asker, wanted))

    async def _send(
        self, request: CreateTopicsRequest, asker: RequestContext | None, names: Sequence[str]
    ) -> None:
        try:
            response = await self._create(request, asker)
        except Exception as error:  # the next request for the topic starts again
            if not isinstance(error, UNCREATED):
                report("automatic creation of topics", error)
            for name in names:
                self._failed(name, ErrorCode.REQUEST_TIMED_OUT, str(error))
        else:
            for topic in response.topics:
                if topic.error_code:
                    self._failed(topic.name, topic.error_code, topic.error_message)
        finally:
            self._in_flight.difference_update(names)
