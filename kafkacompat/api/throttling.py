"""What the quotas do to requests: their bytes and time are recorded, the client is told the throttle time, and its
connection is muted for that long.

A connection keeps one Throttling, because its next request usually is of the same API and client: then no quota is
looked up. Far below its bounds it only adds up what its requests use, and records the sum a few times per second. It
follows KafkaApis and RequestHandlerHelper: of several throttles the longest one applies, and the response is sent at
once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import NoResponse
from kafkacompat.quota.client_quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE
from kafkacompat.quota.rate import milliseconds
from kafkacompat.wire.codec import encode

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.api.route import Route
    from kafkacompat.ports.dispatcher import ConnectionInfo
    from kafkacompat.quota.client_quotas import Sensor
    from kafkacompat.quota.rate import Rate

PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 0, 1, 19, 20, 37
SHARE_FETCH = 78
MUTATIONS = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
QUOTAS = {
    PRODUCE: PRODUCER_BYTE_RATE,
    FETCH: CONSUMER_BYTE_RATE,
    SHARE_FETCH: CONSUMER_BYTE_RATE,
    **dict.fromkeys(MUTATIONS, CONTROLLER_MUTATION_RATE),
}
"""The quota of an API. That of the time of requests is for all of them."""
SIZE_BYTES = 4
BYTES_MAX = 2**31 - 1
KEPT_S = 0.1
"""How long a connection may keep what its requests have used, a hundredth of the measured time by default."""
KEPT_PART = 1 / 16
"""Of what a client may still use, all its connections together keep at most so much."""


def throttle(
    node: AnyNode, connection: ConnectionInfo, route: Route, context: RequestContext, size_bytes: int
) -> None:
    """Give the request its throttling, if a quota applies to it. `size_bytes` is without the size prefix."""
    throttling: Throttling | None = connection.throttling
    of = route, context.client_id, context.principal, node.quotas.change
    if throttling is None or throttling.of != of:
        if throttling is not None:
            throttling.settle()
        throttling = connection.throttling = Throttling(node, connection, of)
    if throttling.applies:
        context.throttling = throttling
        context.size_bytes = size_bytes if throttling.counts_requests else 0
        context.waits_since_s = None
        monotonic_s = throttling.monotonic_s  # called in this way it takes half the time
        context.started_s = monotonic_s()


class Throttling:
    """Of requests of one version of an API on a connection.

    Each request has in its context `size_bytes`, `started_s`, and `waits_since_s` once it only waits."""

    __slots__ = (
        "_bandwidth",
        "_bytes",
        "_bytes_max",
        "_may_keep",
        "_mute",
        "_own",
        "_quotas",
        "_request",
        "_route",
        "_seconds",
        "_seconds_max",
        "_sensors",
        "_until_s",
        "applies",
        "counts_requests",
        "fetch_bytes_max",
        "monotonic_s",
        "of",
    )

    def __init__(
        self, node: AnyNode, connection: ConnectionInfo, of: tuple[Route, str | None, Any, object]
    ) -> None:
        self.of = of
        """What it applies to: route, client id, principal, and the last change of quotas that is known here."""
        route, client_id, principal, _ = of
        quotas, key = node.quotas, route.key
        self._route = route
        self._quotas = quotas
        self._mute = connection.on_throttled
        self.monotonic_s = node.monotonic_s
        user, now_ms = principal.name, node.clock.monotonic_ms()
        self._request: Sensor[Rate] | None = None
        self._bandwidth: Sensor[Rate] | None = None
        if quotas.request.is_active and not route.is_exempt_from_request_quota:
            self._request = quotas.request.sensor(user, client_id, now_ms)
        own = QUOTAS.get(key, "")
        self._own = quotas.rates.get(own)
        if self._own is not None and self._own.is_active:
            self._bandwidth = self._own.sensor(user, client_id, now_ms)
        self.counts_requests = key == PRODUCE and self._bandwidth is not None
        """The bytes of requests count. Otherwise those of responses may."""
        self.fetch_bytes_max = BYTES_MAX
        """What a fetch may return at most: more would always be throttled, and the client could not go on."""
        if self._bandwidth is not None:
            self.fetch_bytes_max = int(min(self._bandwidth.bound * quotas.fetch_seconds, BYTES_MAX))
        self._sensors = [each for each in (self._request, self._bandwidth) if each is not None]
        for sensor in self._sensors:
            sensor.connections += 1
        # What the controller measures comes with its answer.
        told = quotas.kinds.get(own) if self._own is None else None
        self.applies = bool(self._sensors) or (told is not None and told.is_active)
        # What requests have used that is not recorded yet:
        self._bytes = 0
        self._seconds = 0.0
        self._until_s = 0.0
        """Until then, and as long as there is less than the most, more is added up. 0: everything is recorded at once."""
        self._bytes_max = self._seconds_max = 0.0
        self._may_keep = key not in MUTATIONS
        """Whether requests may be added up. What the controller tells must be passed on."""

    def waits(self, context: RequestContext) -> None:
        """The request waits from now on. Its wait is not its time."""
        context.waits_since_s = self.monotonic_s()

    def fetched(self, context: RequestContext, size_bytes: int) -> int:
        """Record a fetch response of this size. Returns the throttle time in milliseconds. If it is not 0, the response
        must be empty, and its bytes are not recorded."""
        context.throttling = None
        monotonic_s, since_s = self.monotonic_s, context.waits_since_s
        now_s = monotonic_s()
        used_s = (now_s if since_s is None else since_s) - context.started_s
        if now_s < self._until_s:
            size, seconds = self._bytes + size_bytes, self._seconds + used_s
            if size < self._bytes_max and seconds < self._seconds_max:
                self._bytes, self._seconds = size, seconds
                return 0
        bandwidth_ms, request_ms = self._recorded(size_bytes, used_s, now_s)
        if bandwidth_ms or request_ms:
            if self._bandwidth is not None:
                self._bandwidth.stat.record(-size_bytes, milliseconds(now_s))
            self._count(bandwidth_ms, request_ms, now_s)
            self._throttle(max(bandwidth_ms, request_ms))
        return max(bandwidth_ms, request_ms)

    def tell(self, context: RequestContext, answer: Any) -> None:
        """Record the request that has this answer, and write the throttle time into the answer. The last call for it."""
        if self._route.key == FETCH:  # refused before anything was read
            answer.throttle_time_ms = self.fetched(
                context, SIZE_BYTES + len(encode(answer, self._route.version))
            )
            return
        context.throttling = None
        monotonic_s, since_s = self.monotonic_s, context.waits_since_s
        now_s = monotonic_s()
        used_s = (now_s if since_s is None else since_s) - context.started_s
        has_response = type(answer) is not NoResponse
        if now_s < self._until_s and has_response:
            size, seconds = self._bytes + context.size_bytes, self._seconds + used_s
            if size < self._bytes_max and seconds < self._seconds_max:
                self._bytes, self._seconds = size, seconds
                return
        # The time of a request without a response does not count.
        bandwidth_ms, request_ms = self._recorded(context.size_bytes, used_s if has_response else None, now_s)
        # What the controller tells is for requests without bandwidth.
        told_ms = 0 if self._route.key == PRODUCE else getattr(answer, "throttle_time_ms", 0)
        if bandwidth_ms or request_ms or told_ms:
            self._tell(answer, told_ms, bandwidth_ms, request_ms, now_s)

    def settle(self) -> None:
        """Record what was added up. Only requests that wait are still to come, and those are recorded at once."""
        self._may_keep = False
        if self._bytes or self._seconds:
            self._recorded(0, None, self.monotonic_s())
        self._until_s = 0.0
        for sensor in self._sensors:
            sensor.connections -= 1
        self._sensors = []

    def _recorded(self, size_bytes: int, used_s: float | None, now_s: float) -> tuple[int, int]:
        """Record what was added up and what one more request has used. Returns the throttle times of bandwidth and
        time in milliseconds."""
        now_ms = milliseconds(now_s)
        size_bytes += self._bytes
        if used_s is not None or self._seconds:
            used_s = (used_s or 0.0) + self._seconds
        self._bytes, self._seconds = 0, 0.0
        bytes_left = seconds_left = inf
        bandwidth_ms = request_ms = 0
        if self._bandwidth is not None:
            rate, bound = self._bandwidth.stat, self._bandwidth.bound
            if size_bytes:
                rate.record(size_bytes, now_ms)
                bandwidth_ms = rate.throttle_ms(bound, now_ms)
            bytes_left = rate.left(bound) / max(self._bandwidth.connections, 1)
        if self._request is not None:
            rate, bound = self._request.stat, self._request.bound
            if used_s is not None:
                rate.record(100.0 * used_s, now_ms)
                request_ms = min(rate.throttle_ms(bound, now_ms), self._quotas.request_throttle_max_ms)
            seconds_left = rate.left(bound) / 100.0 / max(self._request.connections, 1)
        self._bytes_max, self._seconds_max = KEPT_PART * bytes_left, KEPT_PART * seconds_left
        self._until_s = now_s + KEPT_S if self._may_keep else 0.0
        return bandwidth_ms, request_ms

    def _tell(self, answer: Any, told_ms: int, bandwidth_ms: int, request_ms: int, now_s: float) -> None:
        throttle_ms = max(told_ms, bandwidth_ms, request_ms)
        if told_ms > request_ms and not bandwidth_ms:
            now_ms = milliseconds(now_s)
            if request_ms and self._request is not None:
                self._request.throttled(request_ms, now_ms)
            self._quotas.told.muted.add(now_ms + told_ms, now_ms)
        else:
            self._count(bandwidth_ms, request_ms, now_s)
        if hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms
        self._throttle(throttle_ms)

    def _count(self, bandwidth_ms: int, request_ms: int, now_s: float) -> None:
        """The throttle counts for the quota whose time is longer."""
        now_ms, quotas = milliseconds(now_s), self._quotas
        if bandwidth_ms > request_ms and self._bandwidth is not None and self._own is not None:
            self._bandwidth.throttled(bandwidth_ms, now_ms)
            self._own.muted.add(now_ms + bandwidth_ms, now_ms)
        elif request_ms and self._request is not None:
            self._request.throttled(request_ms, now_ms)
            quotas.request.muted.add(now_ms + request_ms, now_ms)

    def _throttle(self, throttle_ms: int) -> None:
        if self._route.meter is not None:
            self._route.meter.kind.throttled(throttle_ms)
        if self._mute is not None:
            self._mute(throttle_ms)
