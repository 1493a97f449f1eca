"""Decides what a client is asked to send, and whether what it sends is taken (KIP-714). Pure.

Kafka's ClientMetricsManager. A client that has not asked for longer than three of its intervals, and at least a minute,
is forgotten. So is the one that was silent for longest when there are too many. What a client has asked and pushed is
forgotten when its connection closes. The metrics that it has sent stay for as long as those of a silent client: its last
ones have to be scraped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import NamedTuple, Protocol

from kafkacompat.config import ConfigError
from kafkacompat.config.client_metrics import (
    EVERYTHING,
    INTERVAL_DEFAULT_MS,
    Subscription,
    parse_subscription,
)
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid, in_hash_order
from kafkacompat.quota.rate import Counted
from kafkacompat.records.crc import crc32c
from kafkacompat.wire.errors import ErrorCode

INSTANCES_MAX = 16_384
EXPIRY_MS = 60_000
ATTRIBUTE_MAX = 1_000
"""Characters of what a client says of itself that are kept, and that subscriptions match. A client id may take 128 KiB."""
INTERVALS_UNTIL_EXPIRY = 3
FORGOTTEN_AT_ONCE = 500
"""Clients, in one step of the loop: each takes a microsecond, and its series take longer."""
ZSTD, LZ4, GZIP, SNAPPY = 4, 3, 1, 2
ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""In the order of preference that clients are told."""
NO_CODEC = 0
RESERVED_IDS = (bytes(16), bytes(15) + b"\1")
ASKS_AGAIN_AFTER = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these errors a client may ask at once for its subscription."""
INT32 = 1 << 32

Attributes = Mapping[str, str]


class PointsRefused(Exception):
    """The metrics of a push cannot be read."""


class PointsTooLarge(PointsRefused):
    """They are more than is read, or cannot be read now. A client that is told so tries again with its next push; after any
    other refusal Kafka's clients push nothing any more."""


class Receiver(Protocol):
    """Takes the metrics of clients."""

    async def take(
        self, client: bytes, attributes: Attributes, codec: int, metrics: bytes, max_bytes: int
    ) -> None:
        """Metrics that expand to more than `max_bytes` are refused, as in Kafka. Raises PointsRefused, PointsTooLarge."""
        ...

    def forget(self, client: bytes) -> None: ...


class Asked(NamedTuple):
    """What clients are asked for that match the same subscriptions."""

    metrics: tuple[str, ...]
    interval_ms: int
    checksum: int


def asked_by(subscriptions: Iterable[Subscription]) -> Asked:
    """What any of them asks for, in the shortest interval."""
    interval_ms = INTERVAL_DEFAULT_MS
    wanted: list[str] = []
    for subscription in subscriptions:
        wanted += in_hash_order(subscription.metrics, at_once=True)
        interval_ms = min(interval_ms, subscription.interval_ms)
    metrics = (EVERYTHING,) if EVERYTHING in wanted else tuple(in_hash_order(wanted))
    return Asked(metrics, interval_ms, crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode()))


@dataclass(slots=True)
class ClientInstance:
    id: bytes
    attributes: Attributes
    subscription_id: int
    """Changes with the metrics and the interval that the client is asked for."""
    version: int
    metrics: tuple[str, ...]
    interval_ms: int
    got_ms: int = -(1 << 62)
    pushed_ms: int = -(1 << 62)
    error: ErrorCode = ErrorCode.NONE
    is_terminating: bool = False
    expires_ms: int = 0
    connection_id: int = 0
    """Of the last request."""
    has_left: bool = False
    """Its connection is closed: it starts anew when it comes again."""

    def may_get(self, now_ms: int) -> bool:
        if now_ms - max(self.got_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Once after each answer with the subscription, because clients wait a random part of their interval first."""
        if self.got_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


@dataclass(slots=True)
class ClientMetricsManager:
    max_bytes: int
    """telemetry.max.bytes."""
    receiver: Receiver
    new_id: Callable[[], Uuid]
    instances: OrderedDict[bytes, ClientInstance] = field(default_factory=OrderedDict)
    """The one that was silent for longest comes first."""
    unknown_subscriptions: Counted = field(default_factory=Counted)
    """Pushes for another subscription than the client's."""
    _subscriptions: dict[str, Subscription] = field(default_factory=dict)
    _settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _version: int = 0
    _asked: dict[tuple[str, ...], Asked] = field(default_factory=dict)
    """By the names of the subscriptions that match a client."""
    _of_connection: dict[int, bytes] = field(default_factory=dict)
    """The client that a connection made known last."""

    @property
    def present(self) -> int:
        """Clients that have not left."""
        return sum([not each.has_left for each in self.instances.values()])

    def subscribe(self, settings: dict[str, Mapping[str, str]]) -> None:
        """Take the settings of all subscriptions by name. One with an invalid value, of another version, has no effect."""
        if settings == self._settings:
            return
        former, known = self._settings, self._subscriptions
        self._settings = settings
        self._version += 1
        self._subscriptions = {}
        self._asked = {}
        # Kafka keeps them in a ConcurrentHashMap, which grows one text earlier than a HashSet.
        for name in in_hash_order(list(settings), spare=1):
            if name in known and former.get(name) == settings[name]:
                self._subscriptions[name] = known[name]  # its expressions take longest
                continue
            try:
                self._subscriptions[name] = parse_subscription(settings[name])
            except ConfigError:
                continue

    def get(
        self, client: bytes, attributes: Attributes, connection_id: int, now_ms: int
    ) -> tuple[ErrorCode, ClientInstance]:
        """The client's subscription. A client without an id gets one."""
        if client == bytes(16):
            client = self._own_id()
        instance = self._instance(client, attributes, connection_id, now_ms)
        if not instance.may_get(now_ms) and instance.error not in ASKS_AGAIN_AFTER:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance
        instance.error = ErrorCode.NONE
        return ErrorCode.NONE, instance

    async def push(
        self,
        client: bytes,
        attributes: Attributes,
        connection_id: int,
        now_ms: int,
        *,
        subscription_id: int,
        is_terminating: bool,
        codec: int,
        metrics: bytes,
    ) -> ErrorCode:
        """The first piece decides whether the metrics are taken."""
        if client in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(client, attributes, connection_id, now_ms)
        error = self._judge(instance, now_ms, subscription_id, is_terminating, codec, len(metrics))
        instance.is_terminating = is_terminating
        if error is ErrorCode.NONE and metrics:
            try:
                await self.receiver.take(client, instance.attributes, codec, metrics, self.max_bytes)
            except PointsTooLarge:
                error = ErrorCode.TELEMETRY_TOO_LARGE
            except PointsRefused:
                error = ErrorCode.INVALID_RECORD
            if client not in self.instances:  # forgotten in a pause
                self.receiver.forget(client)
        instance.error = error
        return error

    def _judge(
        self,
        instance: ClientInstance,
        now_ms: int,
        subscription_id: int,
        is_last: bool,
        codec: int,
        size: int,
    ) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not is_last:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != instance.subscription_id:
            self.unknown_subscriptions.note(now_ms)
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if codec not in (NO_CODEC, *ACCEPTED_CODECS):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _own_id(self) -> bytes:
        while True:
            found = bytes(self.new_id())
            if found not in self.instances and found not in RESERVED_IDS:
                return found

    def _instance(
        self, client: bytes, attributes: Attributes, connection_id: int, now_ms: int
    ) -> ClientInstance:
        self.forget_the_silent(now_ms)
        instance = self.instances.pop(client, None)
        if instance is None or instance.has_left or instance.version < self._version:
            known = attributes if instance is None or instance.has_left else instance.attributes
            kept = {name: text[:ATTRIBUTE_MAX] for name, text in known.items()}
            instance = self._made(client, {**kept, "client_instance_id": _text(client)})
            self._of_connection[connection_id] = client
        instance.expires_ms = now_ms + max(EXPIRY_MS, INTERVALS_UNTIL_EXPIRY * instance.interval_ms)
        instance.connection_id = connection_id
        self.instances[client] = instance
        if len(self.instances) > INSTANCES_MAX:
            self._forget(next(iter(self.instances)))
        return instance

    def on_connection_closed(self, connection_id: int) -> None:
        """The client that the connection made known last has left. Others that it spoke for stay, as in Kafka."""
        client = self._of_connection.pop(connection_id, None)
        instance = None if client is None else self.instances.get(client)
        if instance is not None:
            instance.has_left = True

    def _made(self, client: bytes, attributes: Attributes) -> ClientInstance:
        matching = tuple([name for name, each in self._subscriptions.items() if each.matches(attributes)])
        asked = self._asked.get(matching)
        if asked is None:
            asked = self._asked[matching] = asked_by([self._subscriptions[name] for name in matching])
        told = asked.checksum ^ _folded(client)
        subscription_id = told - INT32 if told >= INT32 // 2 else told
        return ClientInstance(
            client, attributes, subscription_id, self._version, asked.metrics, asked.interval_ms
        )

    def forget_the_silent(self, now_ms: int) -> bool:
        """Forget those that are overdue, a bounded number. Whether there may be more.

        Of two clients with different intervals, the later one may be overdue first. It waits for the other one."""
        for _ in range(FORGOTTEN_AT_ONCE):
            client, oldest = next(iter(self.instances.items()), (b"", None))
            if oldest is None or oldest.expires_ms > now_ms:
                return False
            self._forget(client)
        return True

    def _forget(self, client: bytes) -> None:
        instance = self.instances.pop(client)
        if self._of_connection.get(instance.connection_id) == client:
            del self._of_connection[instance.connection_id]
        self.receiver.forget(client)


def _text(client: bytes) -> str:
    from kafkacompat.ids import uuid_to_text

    return uuid_to_text(client)


def _folded(client: bytes) -> int:
    """The four words of the id, combined."""
    folded = 0
    for start in range(0, 16, 4):
        folded ^= int.from_bytes(client[start : start + 4], "big")
    return folded
