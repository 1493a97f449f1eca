"""A node for handler tests: real partition manager and fetch engine over fakes. Calls of the other services are recorded."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from kafkacompat._tests.doubles import HandTime, PauselessTasks
from kafkacompat.api.context import Node
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.long_requests import RequestTasks, given
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import LogConfig, ServerConfig, defaults_without_file
from kafkacompat.config.describe import (
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from kafkacompat.config.dynamic import DynamicConfig
from kafkacompat.controller.image import BrokerRegistration, MetadataImage, TopicImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import LISTENER, NODE_ID, LedPartitions
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.tasks import TURN_COST, Tasks, at_once
from kafkacompat.txn.service import Transactions
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_response_header, request_header_bytes


def pauses_of(handling: Any) -> Generator[int, None, Any]:
    """Yield at each pause of a handler's coroutine or work. Everything that it waits for is available."""
    while True:
        try:
            waits_for = handling.send(None)
        except StopIteration as end:
            return end.value
        if isinstance(waits_for, Deferred):
            assert waits_for.done
        else:
            yield TURN_COST if waits_for is None else waits_for


def value_of(answer: Any) -> Any:
    """The message behind what a handler returns. Everything that it waits for is available."""
    return at_once(pauses_of(given(answer)))


def pauseless(time: HandTime) -> RequestTasks:
    """For tests that do not look at turns of the loop."""
    return RequestTasks(PauselessTasks(time))


class FirstRandom:
    def uuid(self) -> bytes:
        return b"u" * 16

    def randrange(self, stop: int) -> int:
        return stop - 1


class RecordingCreator:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def request(self, topics: Sequence[str], asker: Any = None) -> None:
        self.asked.append(list(topics))

    async def created(self, name: str) -> None:
        """It cannot be waited for."""


class RecordingController:
    """Records the requests. The test resolves the answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Deferred[Any]]] = []
        self.versions: dict[int, tuple[int, int]] = {}
        """Of a controller of another release."""

    def controller_versions(self, api_key: int) -> tuple[int, int] | None:
        return self.versions.get(api_key)

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, context: RequestContext) -> Deferred[Any]:
            answer: Deferred[Any] = Deferred()
            self.calls.append((name, request, answer))
            return answer

        return call


class FakeProducerIds:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.waits: Deferred[None] = Deferred.of(None)

    def next_producer_id(self) -> int | None:
        return self.ids.pop(0) if self.ids else None

    def when_available(self) -> Deferred[None]:
        return self.waits


class Settings:
    """DynamicSettings over the real configuration layers."""

    def __init__(self, image: MetadataImage, static: ServerConfig) -> None:
        self.config = DynamicConfig(static)
        self.image = image

    def get_int(self, name: str) -> int:  # type: ignore[valid-type]
        return self.config.get_int(name)

    def get_boolean(self, name: str) -> bool:  # type: ignore[valid-type]
        return self.config.get_boolean(name)

    def get_string(self, name: str) -> str | None:  # type: ignore[valid-type]
        return self.config.get_string(name)

    def log_config(self, topic: Any) -> LogConfig:
        return self.config.log_config()

    def describe_broker(self, name: Any) -> Sequence[Any]:
        return describe_broker(self.config) if name else describe_cluster_defaults(self.config)

    def describe_topic(self, topic: Any) -> Sequence[Any]:
        return describe_topic(self.config, self.image.config(2, topic))

    def describe_group(self, group: Any) -> Sequence[Any]:
        return describe_group(self.config, self.image.config(32, group))


class FakeVerifier:
    """Answers `code` for every partition, or returns `held` if it is set."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.held: Deferred[Any] | None = None
        self.asked: list[tuple[Any, ...]] = []

    def ask(
        self,
        transactional_id: Any,
        producer_id: Any,
        producer_epoch: Any,
        partitions: Sequence[TopicPartition],
        adds: Any,
    ) -> Deferred[Any]:
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, adds))
        return self.held or Deferred.of(dict.fromkeys(partitions, self.code))


class Anything:
    """Stands for services that a test does not call."""

    def __getattr__(self, name: Any) -> Any:
        raise AssertionError(f"{name} was called")


class Api:
    """Calls handlers through the dispatcher, bytes to bytes."""

    def __init__(
        self,
        *topics: TopicImage,
        brokers: Sequence[BrokerRegistration] | None = None,
        overrides: dict[str, str] | None = None,
        directories: int = 1,
    ) -> None:
        self.world = LedPartitions(*topics, brokers=brokers, directories=directories)
        static = ServerConfig.from_properties(defaults_without_file(), overrides or {})
        self.controller = RecordingController()
        self.creator = RecordingCreator()
        self.producer_ids = FakeProducerIds()
        self.settings = Settings(self.world.image, static)
        self.verifier = FakeVerifier()
        self.node = Node(
            node_id=NODE_ID,
            cluster_id="cluster",
            config=static,
            clock=self.world.time,
            random=FirstRandom(),
            partitions=self.world.manager,
            fetches=self.world.engine,
            controller=self.controller,
            producer_ids=self.producer_ids,
            log_manager=self.world.log_manager,
            image=self.world.image,
            auto_create=self.creator,
            dynamic=self.settings,
        )
        self.node.transactions = Transactions(Anything(), Anything(), self.verifier, Tasks(self.world.time))
        self.node.share_coordinator = self.node.share_persister = Anything()
        self.dispatcher = ApiDispatcher(self.node, pauseless(self.world.time))
        self.connection = ConnectionInfo(1, LISTENER, "127.0.0.1", 5555)

    def settle(self) -> None:
        self.world.settle()

    def publish(self, image: MetadataImage) -> None:
        """In the order of server/: what waits for the partitions is answered by the new image."""
        self.node.image = self.settings.image = image
        self.world.publish(image)

    def raw(self, frame: bytes | bytearray) -> Any:
        reply = self.dispatcher.dispatch(self.connection, memoryview(bytearray(frame)))
        return reply.reply.result() if isinstance(reply, Pending) and reply.reply.done else reply

    def frame(
        self, request: Any, version: int, *, client_id: str | None = "test", correlation_id: int = 7
    ) -> bytearray:
        out = request_header_bytes(type(request).API_KEY, version, correlation_id, client_id)
        return out + encode(request, version)

    def send(self, request: Any, version: int, **options: Any) -> Any:
        """Return the dispatcher's result: the decoded response, a Pending, or None."""
        reply = self.raw(self.frame(request, version, **options))
        return self.decoded(reply, type(request).API_KEY, version) if isinstance(reply, list) else reply

    def call(self, request: Any, version: int, **options: Any) -> Any:
        """Return the decoded response. It must be available at once, or after the jobs of worker threads."""
        response = self.send(request, version, **options)
        assert response is not None
        if isinstance(response, Pending) and self.world.workers.submitted:
            self.world.workers.run()
            return self.decoded(response.reply.result(), type(request).API_KEY, version)
        assert not isinstance(response, Pending), "the request is parked"
        return response

    def decoded(self, parts: Any, key: int, version: int, correlation_id: int = 7) -> Any:
        data = b"".join(
            bytes(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.read() for part in parts
        )
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        echoed, position = parse_response_header(data[4:], key, version)
        assert echoed == correlation_id
        return decode(response_class(key), version, data[4:], position)


def served_versions(key: int) -> list[int]:
    entry = BROKER_APIS.by_key[key]
    return list(range(entry.min_version, entry.max_version + 1))


def empty_request(key: int) -> Any:
    return request_class(key)()
