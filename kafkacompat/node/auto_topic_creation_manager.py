"""Automatic topic creation: for a Metadata request with an unknown name, and of internal topics at their first use.

The caller checks whether creation is allowed. A failed creation is forgotten, so the next request tries again. Only of the
internal topics of a streams group (KIP-1071) the reason is kept for a while: its members are told. Follows Kafka's
AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from kafkacompat.tasks import pause
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Tasks

UNCREATED = (*UNANSWERED, ControllerTimedOut, EnvelopeRefused, CloseConnection)
"""Why the controller's answer may be missing."""
MAX_ERRORS = 1000
MAX_IN_FLIGHT = 1000
"""Names whose creation is in flight. Further names wait for the next request, which every client repeats."""
FAILED_US = 20
"""Of a topic that was not made: a line in the log."""
CONTROLLERS_DEFAULT = -1
"""A count of partitions or replicas that the controller chooses."""
CREATED_WITHIN_MS = 1_000
"""How long a request waits for the topic that it needs. Its client then asks again."""


def creatable_topic(config: ServerConfig, name: str) -> CreatableTopic:
    """Return the topic to request: an internal topic with its settings, any other topic with the defaults that are set on
    this node. Others are the controller's."""
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
        partitions = _set_or_unset(config, "num.partitions")
        replication = _set_or_unset(config, "default.replication.factor")
        settings = {}
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )


def _set_or_unset(config: ServerConfig, name: str) -> int:
    return config.get_int(name) if name in config.originals else CONTROLLERS_DEFAULT


class AutoTopicCreationManager:
    """Creates topics. `create` sends a CreateTopicsRequest to the controller, in the name of the asker or of this
    node.

    `failed(name, code, message)` is called for each refusal, for the log.
    """

    __slots__ = ("_awaited", "_clock", "_config", "_create", "_errors", "_failed", "_in_flight", "_tasks")

    def __init__(
        self,
        config: ServerConfig,
        create: Callable[[CreateTopicsRequest, RequestContext | None], Deferred[Any]],
        failed: Callable[[str, int, str | None], None],
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._config = config
        self._clock = clock
        self._errors: dict[str, tuple[int, str]] = {}
        """Internal topic of a streams group -> until when its error is told, and the error."""
        self._create = create
        self._failed = failed
        self._tasks = tasks
        self._in_flight: set[str] = set()
        self._awaited: dict[str, list[Deferred[None]]] = {}
        """Name -> what `created` waits for."""

    async def created(self, name: str) -> None:
        """Wait for a topic that was requested. Return when this node knows it, when its creation has failed, after
        CREATED_WITHIN_MS, or at once if it is not being created: so the caller looks whether it is there."""
        if name not in self._in_flight:
            return
        over = self._tasks.sleep(CREATED_WITHIN_MS)
        self._awaited.setdefault(name, []).append(over)
        try:
            await over
        finally:
            over.abandon()
            waiting = self._awaited.get(name, [])
            if over in waiting:
                waiting.remove(over)
                if not waiting:
                    del self._awaited[name]

    def on_image(self, image: MetadataImage) -> None:
        for name in [name for name in self._awaited if name in image.topics]:
            self._release(name)

    def _release(self, name: str) -> None:
        for over in self._awaited.pop(name, []):
            over.abandon()
            over.resolve(None)

    def request(self, topics: Sequence[str], asker: RequestContext | None = None) -> None:
        room = MAX_IN_FLIGHT - len(self._in_flight)
        if room <= 0:
            return
        # A request may name half a million topics. Read no more of them than there is room for.
        new = (name for name in topics if name not in self._in_flight)
        wanted = list(dict.fromkeys(islice(new, room)))
        if not wanted:
            return
        request = CreateTopicsRequest(topics=[creatable_topic(self._config, name) for name in wanted])
        self._in_flight.update(wanted)
        self._tasks.start("automatic creation of topics", self._send(request, asker, wanted))

    def create_streams_internal_topics(
        self, topics: Sequence[CreatableTopic], asker: RequestContext, error_kept_ms: int
    ) -> None:
        """Create topics that are not being created and have no recent error."""
        now_ms = self._clock.monotonic_ms()
        room = MAX_IN_FLIGHT - len(self._in_flight)
        new = (
            each
            for each in topics
            if each.name not in self._in_flight and self._error(each.name, now_ms) is None
        )
        wanted = {each.name: each for each in islice(new, max(0, room))}
        if wanted:
            request = CreateTopicsRequest(topics=list(wanted.values()))
            self._in_flight.update(wanted)
            sending = self._send(request, asker, list(wanted), error_kept_ms)
            self._tasks.start("creation of the internal topics of a streams group", sending)

    def streams_creation_errors(self, names: Iterable[str]) -> dict[str, str]:
        """The recent errors of internal topics of streams groups."""
        now_ms = self._clock.monotonic_ms()
        return {name: error for name in names if (error := self._error(name, now_ms)) is not None}

    def _error(self, name: str, now_ms: int) -> str | None:
        until_ms, error = self._errors.get(name, (0, ""))
        return error if now_ms < until_ms else None

    def _keep_error(self, name: str, error: str, error_kept_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        self._errors.pop(name, None)
        self._errors[name] = (now_ms + error_kept_ms, error)
        while self._errors:
            oldest = next(iter(self._errors))
            if len(self._errors) <= MAX_ERRORS and now_ms < self._errors[oldest][0]:
                break
            del self._errors[oldest]

    async def _send(
        self,
        request: CreateTopicsRequest,
        asker: RequestContext | None,
        names: Sequence[str],
        error_kept_ms: int | None = None,
    ) -> None:
        """`error_kept_ms`: how long errors are told. None if they are forgotten."""
        try:
            response = await self._create(request, asker)
        except Exception as error:  # the next request for the topic starts again
            if not isinstance(error, UNCREATED):
                report("automatic creation of topics", error)
            for name in names:
                self._failed(name, ErrorCode.REQUEST_TIMED_OUT, str(error))
                self._release(name)
                if error_kept_ms is not None:
                    reason = str(error) or error_text(ErrorCode.REQUEST_TIMED_OUT)
                    self._keep_error(name, reason, error_kept_ms)
                await pause(FAILED_US)
        else:
            for topic in response.topics:
                if topic.error_code:
                    self._failed(topic.name, topic.error_code, topic.error_message)
                    if topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # then it will be known too
                        self._release(topic.name)
                    if error_kept_ms is not None:
                        reason = topic.error_message or error_text(ErrorCode(topic.error_code))
                        self._keep_error(topic.name, reason, error_kept_ms)
                    await pause(FAILED_US)
        finally:
            self._in_flight.difference_update(names)
