"""What the quotas do to one request: its bytes and time are recorded, the client is told the throttle time, and its
connection is muted for that long.

One Throttling exists for each request to which a quota may apply. Without quotas there is none. It follows KafkaApis and
RequestHandlerHelper: of several throttles the longest one applies, and the response is sent at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import NoResponse
from kafkacompat.wire.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Return the throttling of a request, or None if no quota applies to it."""
    quotas, key = node.quotas, route.key
    now_ms = node.clock.monotonic_ms()
    user, client_id = context.principal.name, context.client_id
    request = bandwidth = None
    if quotas.request.is_active and not route.is_exempt_from_request_quota:
        request = quotas.request.sensor(user, client_id, now_ms)
    if key == PRODUCE:
        if quotas.produce.is_active:
            bandwidth = quotas.produce.sensor(user, client_id, now_ms)
    elif key in (FETCH, SHARE_FETCH) and quotas.fetch.is_active:
        bandwidth = quotas.fetch.sensor(user, client_id, now_ms)
    if request is None and bandwidth is None and not (key in MUTATIONS and quotas.mutation.is_active):
        return None
    return Throttling(node, connection.on_throttled, key, context.api_version, size_bytes, bandwidth, request)


class Throttling:
    __slots__ = (
        "_bandwidth",
        "_is_told",
        "_key",
        "_mute",
        "_node",
        "_request",
        "_size_bytes",
        "_spent_s",
        "_started_s",
        "_version",
    )

    def __init__(
        self,
        node: AnyNode,
        mute: Callable[[int], None] | None,
        key: int,
        version: int,
        size_bytes: int,
        bandwidth: Sensor[Rate] | None,
        request: Sensor[Rate] | None,
    ) -> None:
        """`mute`: stops requests of the connection for some milliseconds. `size_bytes`: the request's, without its prefix."""
        self._node = node
        self._mute = mute
        self._key = key
        self._version = version
        self._size_bytes = size_bytes
        self._bandwidth = bandwidth
        self._request = request
        self._is_told = False
        self._started_s = node.monotonic_s()
        self._spent_s: float | None = None
        """The time of the loop that the request took, once it only waits."""

    def waits(self) -> None:
        """The request waits from now on. Its wait is not its time."""
        self._spent_s = self._node.monotonic_s() - self._started_s

    def exempt(self) -> None:
        """No quota applies: the request is a follower's fetch."""
        self._is_told = True

    def fetch_bytes_max(self) -> int:
        """What a fetch may return at most: more would always be throttled, and the client could not go on."""
        if self._bandwidth is None:
            return BYTES_MAX
        return int(min(self._bandwidth.bound * self._node.quotas.fetch_seconds, BYTES_MAX))

    def fetched(self, size_bytes: int) -> int:
        """Record a fetch response of this size. Returns the throttle time in milliseconds. If it is not 0, the response
        must be empty, and its bytes are not recorded."""
        self._is_told = True
        now_ms = self._node.clock.monotonic_ms()
        request_ms, bandwidth_ms = self._record_time(now_ms), 0
        throttle_ms = request_ms
        bandwidth = self._bandwidth
        if bandwidth is not None:
            bandwidth.stat.record(size_bytes, now_ms)
            bandwidth_ms = bandwidth.stat.throttle_ms(bandwidth.bound, now_ms)
            throttle_ms = max(request_ms, bandwidth_ms)
            if throttle_ms:
                bandwidth.stat.record(-size_bytes, now_ms)
        self._count(bandwidth_ms, request_ms, now_ms)
        self._throttle(throttle_ms)
        return throttle_ms

    def tell(self, answer: Any) -> None:
        """Record the request that has this answer, and write the throttle time into the answer."""
        if self._is_told:
            return
        self._is_told = True
        if self._key == FETCH:  # refused before anything was read
            answer.throttle_time_ms = self.fetched(SIZE_BYTES + len(encode(answer, self._version)))
            return
        now_ms = self._node.clock.monotonic_ms()
        has_answer = not isinstance(answer, NoResponse)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)  # what the controller tells
        request_ms = bandwidth_ms = 0
        # A share fetch that reads nothing uses no bandwidth.
        bandwidth = self._bandwidth if self._key == PRODUCE else None
        if bandwidth is not None:
            bandwidth.stat.record(self._size_bytes, now_ms)
            bandwidth_ms = bandwidth.stat.throttle_ms(bandwidth.bound, now_ms)
        if has_answer:
            request_ms = self._record_time(now_ms)
        self._count(bandwidth_ms, request_ms, now_ms)
        throttle_ms = max(throttle_ms, bandwidth_ms, request_ms)
        if throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms
        self._throttle(throttle_ms)

    def _record_time(self, now_ms: int) -> int:
        """Record the time of the loop in percent of a second. Returns the throttle time of the request quota."""
        request = self._request
        if request is None:
            return 0
        spent_s = self._spent_s
        if spent_s is None:
            spent_s = self._node.monotonic_s() - self._started_s
        request.stat.record(100.0 * spent_s, now_ms)
        throttle_ms = request.stat.throttle_ms(request.bound, now_ms)
        return min(throttle_ms, self._node.quotas.request_throttle_max_ms)

    def _count(self, bandwidth_ms: int, request_ms: int, now_ms: int) -> None:
        """The throttle counts for the quota whose time is longer."""
        if bandwidth_ms > request_ms and self._bandwidth is not None:
            self._bandwidth.throttled(bandwidth_ms, now_ms)
        elif request_ms and self._request is not None:
            self._request.throttled(request_ms, now_ms)

    def _throttle(self, throttle_ms: int) -> None:
        if throttle_ms and self._mute is not None:
            self._mute(throttle_ms)
