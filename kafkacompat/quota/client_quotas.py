"""The client quotas of a node: which one applies to a user and client id, and its measurement (ClientQuotaManager, QuotaManagers).

Pure: the quotas come from the metadata, the time is an argument. Clients with the same tags share one measurement. Settings:
quota.window.num and .size.seconds, controller.quota.window.num and .size.seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from heapq import heappop, heappush, heappushpop
from math import inf
from typing import Generic, Protocol, TypeVar

from kafkacompat.quota.rate import Average, Rate, TokenBucket

ENTITY_TYPES = USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTRIES_MAX = 10_000
"""Measurements, and names of clients, that are kept. Clients choose their ids, so their number has no bound."""
NAME_MAX = 200
"""Characters of a client id that are kept, and shown in metrics. A longer one, which may take 128 KiB, is kept as its
beginning and a digest."""
MUTED_MAX = 10_000
"""Ends of throttle times that are kept. A throttle may last for weeks, and a client that connects anew with each request has
one for each."""
EXPIRES_MS = 3_600_000
"""A measurement that has not been used for so long is forgotten."""

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs, sorted by type. The name is None for a default."""
Tags = tuple[str | None, str | None]
"""The user and the client id that share a measurement. None: all of them."""


NewAverage = Callable[[], Average]
AVERAGE: NewAverage = partial(Average, 11, 1000)


class Stat(Protocol):
    """Rate or TokenBucket."""

    used_s: float
    """When something was last recorded, in seconds. 0: never."""

    def throttle_ms(self, bound: float, now_ms: int) -> int: ...


S = TypeVar("S", bound=Stat)


class Sensor(Generic[S]):
    """A measurement and its bound."""

    __slots__ = ("_new_average", "bound", "connections", "found_s", "stat", "throttles")

    def __init__(self, stat: S, bound: float, now_ms: int, new_average: NewAverage = AVERAGE) -> None:
        self.stat = stat
        self.bound = bound
        self.found_s = now_ms / 1000
        """When a client was last found to have this quota."""
        self.connections = 0
        """Connections that have this quota, and may be about to record what they have used."""
        self.throttles: Average | None = None
        """The throttle times in ms. None before the first one."""
        self._new_average = new_average

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        """A client was throttled because of this quota."""
        if self.throttles is None:
            self.throttles = self._new_average()
        self.throttles.record(throttle_ms, now_ms)


class Muted:
    """The connections that are muted because of the quotas of one kind. One that closes counts until its time is over,
    as in Kafka's queue of throttled channels.

    Of more than MUTED_MAX those count whose time is over last."""

    __slots__ = ("_until_ms",)

    def __init__(self) -> None:
        self._until_ms: list[int] = []
        """A heap."""

    def add(self, until_ms: int, now_ms: int) -> None:
        if self.count(now_ms) < MUTED_MAX:
            heappush(self._until_ms, until_ms)
        else:
            heappushpop(self._until_ms, until_ms)

    def count(self, now_ms: int) -> int:
        while self._until_ms and self._until_ms[0] <= now_ms:
            heappop(self._until_ms)
        return len(self._until_ms)


class ClientQuotas(Generic[S]):
    """The quotas of one kind, e.g. producer_byte_rate. `is_active` is False if there are none, which is cheap to ask."""

    def __init__(
        self,
        new_stat: Callable[[], S],
        new_average: NewAverage = AVERAGE,
        when_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`when_changed` is called when measurements that `sensor` has returned may no longer be used."""
        self.is_active = False
        self.muted = Muted()
        self._when_changed = when_changed
        self._new_average = new_average
        self._new_stat = new_stat
        self._bounds: Mapping[Entity, float] = {}
        self._sensors: dict[Tags, Sensor[S]] = {}
        self._found: dict[tuple[str, str | None], Sensor[S] | None] = {}
        """By user and client id. Cleared when quotas change."""
        self._swept_ms = 0

    def take(self, bounds: Mapping[Entity, float]) -> None:
        """Replace all quotas. Measurements continue with their new bounds. One without a bound is kept as well: if a quota
        is removed and set again, what was measured before counts."""
        bounds = {_kept_entity(entity): bound for entity, bound in bounds.items()}
        if bounds == self._bounds:
            return
        self._bounds = bounds
        self.is_active = bool(bounds)
        self._forget_found()
        for tags, sensor in self._sensors.items():
            bound = self._bound_of(tags)
            sensor.bound = inf if bound is None else bound

    def sensor(self, user: str, client_id: str | None, now_ms: int) -> Sensor[S] | None:
        """Return the measurement that the user's client shares, or None if no quota applies. It may be kept until
        `when_changed` is called."""
        if client_id is not None and len(client_id) > NAME_MAX:
            client_id = _kept(client_id)
        name = (user, client_id)
        try:
            sensor = self._found[name]
        except KeyError:
            sensor = self._find(name, now_ms)
        if sensor is not None:
            sensor.found_s = now_ms / 1000
        return sensor

    def _find(self, name: tuple[str, str | None], now_ms: int) -> Sensor[S] | None:
        tags = self._tags_of(*name)
        bound = None if tags is None else self._bound_of(tags)
        sensor = None
        if tags is not None and bound is not None:
            sensor = self._sensors.get(tags)
            if sensor is None:
                self._sweep(now_ms)
                sensor = self._sensors[tags] = Sensor(self._new_stat(), bound, now_ms, self._new_average)
        if len(self._found) >= ENTRIES_MAX:
            self._found.clear()
        self._found[name] = sensor
        return sensor

    def newest(self, most: int) -> list[tuple[Tags, Sensor[S]]]:
        """At most so many measurements. Of more, those that were used last."""
        if len(self._sensors) <= most:
            return list(self._sensors.items())
        used_s = self._used_s()
        oldest_s = sorted(used_s)[-most]
        newest = [each for each, at_s in zip(self._sensors.items(), used_s, strict=True) if at_s >= oldest_s]
        return newest[-most:]

    def _used_s(self) -> list[float]:
        """When each measurement was used. There may be very many, so nothing is called for each."""
        return [
            sensor.stat.used_s if sensor.stat.used_s > sensor.found_s else sensor.found_s
            for sensor in self._sensors.values()
        ]

    def _sweep(self, now_ms: int) -> None:
        """Forget measurements that nobody uses. If there are too many, forget the oldest ones."""
        self.forget_the_unused(now_ms)
        if len(self._sensors) >= ENTRIES_MAX:
            self._drop(next(iter(self._sensors)))

    def forget_the_unused(self, now_ms: int) -> None:
        """At most once in EXPIRES_MS."""
        if now_ms - self._swept_ms < EXPIRES_MS:
            return
        self._swept_ms = now_ms
        for tags, used_s in list(zip(self._sensors, self._used_s(), strict=True)):
            if now_ms - 1000 * used_s >= EXPIRES_MS:
                self._drop(tags)

    def _drop(self, tags: Tags) -> None:
        del self._sensors[tags]
        self._forget_found()

    def _forget_found(self) -> None:
        self._found.clear()
        self._when_changed()

    def _tags_of(self, user: str, client_id: str | None) -> Tags | None:
        """Return the tags of the first quota that applies, in Kafka's order of precedence, or None if none applies."""
        bounds = self._bounds
        users: tuple[str | None, ...] = (user, None)
        for entity_user in users:
            if client_id and (_both(entity_user, client_id) in bounds or _both(entity_user, None) in bounds):
                return user, client_id
            if ((USER, entity_user),) in bounds:
                return user, None
        if client_id and (((CLIENT_ID, client_id),) in bounds or ((CLIENT_ID, None),) in bounds):
            return None, client_id
        return None

    def _bound_of(self, tags: Tags) -> float | None:
        user, client_id = tags
        entities: tuple[Entity, ...]
        if user is not None and client_id is not None:
            entities = _both(user, client_id), _both(user, None), _both(None, client_id), _both(None, None)
        elif user is not None:
            entities = ((USER, user),), ((USER, None),)
        else:
            entities = ((CLIENT_ID, client_id),), ((CLIENT_ID, None),)
        for entity in entities:
            bound = self._bounds.get(entity)
            if bound is not None:
                return bound
        return None


def _kept(client_id: str) -> str:
    digest = sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{client_id[:NAME_MAX]}... {digest}"


def _kept_entity(entity: Entity) -> Entity:
    for kind, name in entity:
        if kind == CLIENT_ID and name is not None and len(name) > NAME_MAX:
            break
    else:
        return entity  # nearly always
    return tuple(
        (kind, _kept(name) if kind == CLIENT_ID and name is not None and len(name) > NAME_MAX else name)
        for kind, name in entity
    )


def _both(user: str | None, client_id: str | None) -> Entity:
    return (CLIENT_ID, client_id), (USER, user)


MayMutate = Callable[[int], bool]
"""Records that so many partitions are created or deleted. Returns False if the quota refuses it."""


def unlimited(partitions: int) -> bool:
    return True


class MutationQuota:
    """`sensor` is None if no quota applies."""

    def __init__(
        self, sensor: Sensor[TokenBucket] | None, is_strict: bool, now_ms: Callable[[], int]
    ) -> None:
        self._sensor = sensor
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._throttle_ms = 0
        self._recorded_ms = 0

    def record(self, partitions: int) -> bool:
        """Take tokens. A strict quota refuses, and takes none, while tokens are negative. So one request may use more than
        there are."""
        sensor = self._sensor
        if sensor is None:
            return True
        now_ms = self._now_ms()
        if not self._is_strict:
            sensor.stat.record(partitions, sensor.bound, now_ms)
        throttle_ms = sensor.stat.throttle_ms(sensor.bound, now_ms)
        if throttle_ms:
            self._throttle_ms, self._recorded_ms = throttle_ms, now_ms
            sensor.throttled(throttle_ms, now_ms)
            return not self._is_strict
        if self._is_strict:
            sensor.stat.record(partitions, sensor.bound, now_ms)
        return True

    def throttle_ms(self) -> int:
        """Return what is left of the last throttle time."""
        if not self._throttle_ms:
            return 0
        return max(0, self._throttle_ms - (self._now_ms() - self._recorded_ms))


PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
USER_AND_CLIENT_QUOTAS = {
    PRODUCER_BYTE_RATE: "LONG",
    CONSUMER_BYTE_RATE: "LONG",
    REQUEST_PERCENTAGE: "DOUBLE",
    CONTROLLER_MUTATION_RATE: "DOUBLE",
}
"""The quotas of users and clients, with the type of their value (QuotaConfig). Those of addresses are in connection_rates.py."""
RESOURCES = {
    PRODUCER_BYTE_RATE: "Produce",
    CONSUMER_BYTE_RATE: "Fetch",
    REQUEST_PERCENTAGE: "Request",
    CONTROLLER_MUTATION_RATE: "ControllerMutation",
}
"""Their names in metrics (QuotaType)."""


class Quota(Protocol):
    """A record of the metadata."""

    value: float


class QuotaManagers:
    """The quotas by kind. `is_active` is False if there are none at all."""

    def __init__(
        self,
        windows: int = 11,
        window_ms: int = 1000,
        controller_windows: int = 11,
        controller_window_ms: int = 1000,
        *,
        of_controller: bool = False,
    ) -> None:
        new_rate = partial(Rate, windows, window_ms)
        new_average = partial(Average, windows, window_ms)
        self.is_active = False
        self.change = object()
        """Another one after each change of what applies to a client. Measurements may be kept until then."""
        self.produce: ClientQuotas[Rate] = ClientQuotas(new_rate, new_average, self._changed)
        self.fetch: ClientQuotas[Rate] = ClientQuotas(new_rate, new_average, self._changed)
        self.request: ClientQuotas[Rate] = ClientQuotas(new_rate, new_average, self._changed)
        self.mutation: ClientQuotas[TokenBucket] = ClientQuotas(
            partial(TokenBucket, controller_windows, controller_window_ms),
            partial(Average, controller_windows, controller_window_ms),
            self._changed,
        )
        self.rates: Mapping[str, ClientQuotas[Rate]] = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
        }
        """Those that a broker measures itself."""
        self.kinds: Mapping[str, ClientQuotas[Rate] | ClientQuotas[TokenBucket]] = {
            **self.rates,
            CONTROLLER_MUTATION_RATE: self.mutation,
        }
        self.told: ClientQuotas[Rate] | ClientQuotas[TokenBucket] = (
            self.mutation if of_controller else self.request
        )
        """The kind for which connections count that are muted because of a controller's throttle time. On a broker, which
        passes that time on, it is the request quota, as in Kafka."""
        self.request_throttle_max_ms = window_ms
        """Request throttles are at most one window long, so that clients do not run into timeouts."""
        self.fetch_seconds = (windows - 1) * window_ms / 1000
        """A fetch may return the bytes of so many seconds of its quota."""
        self._taken: Mapping[tuple[Entity, str], Quota] | None = None

    def take(self, quotas: Mapping[tuple[Entity, str], Quota]) -> None:
        """Apply the quotas of an image, by entity and key. Costs nothing if they are those of the last image."""
        if quotas is self._taken or (not quotas and not self.is_active):
            return
        self._taken = quotas
        by_key: dict[str, dict[Entity, float]] = {}
        for (entity, key), record in quotas.items():
            # NaN limits nothing. Neither does a value that no controller accepts.
            by_key.setdefault(key, {})[entity] = record.value if record.value > 0 else inf
        for key in USER_AND_CLIENT_QUOTAS:
            self.kinds[key].take(by_key.get(key, {}))
        self.is_active = any(kind.is_active for kind in self.kinds.values())

    def _changed(self) -> None:
        self.change = object()
