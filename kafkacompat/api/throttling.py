"""What the quotas do to requests: their bytes and time are recorded, the client is told the throttle time, and its
connection is muted for that long.

A connection keeps one Throttling, because its next request usually is of the same API and client: then no quota is
looked up. Where no quota applies there is none. It follows KafkaApis and RequestHandlerHelper: of several throttles the
longest one applies, and the response is sent at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import NoResponse
from kafkacompat.quota.rate import added_up, milliseconds
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
SIZE_BYTES = 4
BYTES_MAX = 2**31 - 1


def throttling_of(
    node: AnyNode, connection: ConnectionInfo, route: Route, context: RequestContext, size_bytes: int
) -> Throttling | None:
    """Return the throttling of a request, or None if no quota applies to it. `size_bytes` is without the size prefix."""
    throttling: Throttling | None = connection.throttling
    if (
        throttling is None
        or throttling.route is not route
        or throttling.is_busy
        or throttling.change is not node.quotas.change
        or throttling.client_id != context.client_id
        or throttling.principal is not context.principal
    ):
        throttling = connection.throttling = Throttling(node, connection, route, context)
    if not throttling.applies:
        return None
    throttling.is_busy = True
    throttling.is_told = False
    throttling.size_bytes = size_bytes
    throttling.waits_since_s = None
    monotonic_s = throttling.monotonic_s  # called in this way it takes half the time
    throttling.started_s = monotonic_s()
    return throttling


class Throttling:
    """Of requests of one version of an API on a connection, one after the other."""

    __slots__ = (
        "_bandwidth",
        "_mute",
        "_quotas",
        "_request",
        "applies",
        "change",
        "client_id",
        "is_busy",
        "is_told",
        "key",
        "monotonic_s",
        "principal",
        "route",
        "size_bytes",
        "started_s",
        "waits_since_s",
    )

    def __init__(
        self, node: AnyNode, connection: ConnectionInfo, route: Route, context: RequestContext
    ) -> None:
        quotas, key = node.quotas, route.key
        self.route = route
        self.key = key
        self.client_id = context.client_id
        self.principal = context.principal
        self.change = quotas.change
        """The last change of quotas that is known here."""
        self.is_busy = False
        """A request is not answered yet."""
        self._quotas = quotas
        self.monotonic_s = node.monotonic_s
        self._mute = connection.on_throttled
        user, client_id, now_ms = self.principal.name, self.client_id, node.clock.monotonic_ms()
        self._request: Sensor[Rate] | None = None
        self._bandwidth: Sensor[Rate] | None = None
        if quotas.request.is_active and not route.is_exempt_from_request_quota:
            self._request = quotas.request.sensor(user, client_id, now_ms)
        if key == PRODUCE:
            if quotas.produce.is_active:
                self._bandwidth = quotas.produce.sensor(user, client_id, now_ms)
        elif key in (FETCH, SHARE_FETCH) and quotas.fetch.is_active:
            self._bandwidth = quotas.fetch.sensor(user, client_id, now_ms)
        mutates = key in MUTATIONS and quotas.mutation.is_active
        self.applies = self._request is not None or self._bandwidth is not None or mutates
        # Of the present request:
        self.size_bytes = 0
        """Without its prefix."""
        self.is_told = True
        self.started_s = 0.0
        self.waits_since_s: float | None = None
        """When it had used its time of the loop, and only waits. None: it does not wait."""

    def waits(self) -> None:
        """The request waits from now on. Its wait is not its time."""
        self.waits_since_s = self.monotonic_s()

    def exempt(self) -> None:
        """No quota applies: the request is a follower's fetch."""
        self.is_told = True

    def refused(self) -> None:
        """A produce is refused as a whole, before its topics are looked at: its bytes use no bandwidth."""
        self.size_bytes = 0

    def fetch_bytes_max(self) -> int:
        """What a fetch may return at most: more would always be throttled, and the client could not go on."""
        if self._bandwidth is None:
            return BYTES_MAX
        return int(min(self._bandwidth.bound * self._quotas.fetch_seconds, BYTES_MAX))

    def fetched(self, size_bytes: int) -> int:
        """Record a fetch response of this size. Returns the throttle time in milliseconds. If it is not 0, the response
        must be empty, and its bytes are not recorded."""
        self.is_told = True
        request, bandwidth = self._request, self._bandwidth
        monotonic_s, since_s = self.monotonic_s, self.waits_since_s
        now_s = monotonic_s()
        percent = 100.0 * ((now_s if since_s is None else since_s) - self.started_s)
        if (
            request is not None
            and bandwidth is not None
            and added_up(bandwidth.stat, size_bytes, request.stat, percent, now_s)
        ):
            return 0
        bandwidth_ms = request_ms = 0
        if request is not None:
            request_ms = request.stat.charge(percent, request.bound, now_s)
            request_ms = min(request_ms, self._quotas.request_throttle_max_ms)
        if bandwidth is not None:
            bandwidth_ms = bandwidth.stat.charge(size_bytes, bandwidth.bound, now_s)
            if bandwidth_ms or request_ms:
                bandwidth.stat.record(-size_bytes, milliseconds(now_s))
        if bandwidth_ms or request_ms:
            self._count(bandwidth_ms, request_ms, now_s)
            self._throttle(max(bandwidth_ms, request_ms))
        return max(bandwidth_ms, request_ms)

    def tell(self, answer: Any) -> None:
        """Record the request that has this answer, and write the throttle time into the answer. The last call for it."""
        self.is_busy = False
        if self.is_told:
            return
        key = self.key
        if key == FETCH:  # refused before anything was read
            answer.throttle_time_ms = self.fetched(SIZE_BYTES + len(encode(answer, self.route.version)))
            return
        self.is_told = True
        request = None if type(answer) is NoResponse else self._request
        # A share fetch that reads nothing, and a produce that is refused as a whole, use no bandwidth.
        bandwidth = self._bandwidth if key == PRODUCE and self.size_bytes else None
        monotonic_s, since_s = self.monotonic_s, self.waits_since_s
        now_s = monotonic_s()
        percent = 100.0 * ((now_s if since_s is None else since_s) - self.started_s)
        if (
            request is not None
            and bandwidth is not None
            and added_up(bandwidth.stat, self.size_bytes, request.stat, percent, now_s)
        ):
            return
        request_ms = bandwidth_ms = 0
        if bandwidth is not None:
            bandwidth_ms = bandwidth.stat.charge(self.size_bytes, bandwidth.bound, now_s)
        if request is not None:
            request_ms = request.stat.charge(percent, request.bound, now_s)
        # What the controller tells is for requests without bandwidth.
        told_ms = 0 if key == PRODUCE else getattr(answer, "throttle_time_ms", 0)
        if bandwidth_ms or request_ms or told_ms:
            self._tell(answer, told_ms, bandwidth_ms, request_ms, now_s)

    def _tell(self, answer: Any, told_ms: int, bandwidth_ms: int, request_ms: int, now_s: float) -> None:
        request_ms = min(request_ms, self._quotas.request_throttle_max_ms)
        self._count(bandwidth_ms, request_ms, now_s)
        throttle_ms = max(told_ms, bandwidth_ms, request_ms)
        if told_ms and not bandwidth_ms and not request_ms:
            now_ms = milliseconds(now_s)
            self._quotas.request.muted.add(now_ms + told_ms, now_ms)
        if hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms
        self._throttle(throttle_ms)

    def _count(self, bandwidth_ms: int, request_ms: int, now_s: float) -> None:
        """The throttle counts for the quota whose time is longer."""
        now_ms, quotas = milliseconds(now_s), self._quotas
        if bandwidth_ms > request_ms and self._bandwidth is not None:
            self._bandwidth.throttled(bandwidth_ms, now_ms)
            kind = quotas.produce if self.route.key == PRODUCE else quotas.fetch
            kind.muted.add(now_ms + bandwidth_ms, now_ms)
        elif request_ms and self._request is not None:
            self._request.throttled(request_ms, now_ms)
            quotas.request.muted.add(now_ms + request_ms, now_ms)

    def _throttle(self, throttle_ms: int) -> None:
        if self.route.meter is not None:
            self.route.meter.kind.throttled(throttle_ms)
        if self._mute is not None:
            self._mute(throttle_ms)
