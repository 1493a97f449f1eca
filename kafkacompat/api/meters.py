"""Meters of requests: their number by API and version, their errors by code, and the times of some of them.

Every request is counted, so counting costs only a few integer additions. The first requests of an API version are all
timed, later ones one in eight, all where they are rare, or fewer where there are very many, because reading the clock
costs more than counting. Each time stands for the requests since the one before. Only a scrape reads the meters (metrics/).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from heapq import heappush, heapreplace
from math import inf, log
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.apis import APIS, response_class
from kafkacompat.wire.codec import specification
from kafkacompat.wire.message import Encoded
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.messages.produce_response import ProduceResponse

if TYPE_CHECKING:
    from kafkacompat.ports.dispatcher import ConnectionInfo, Pending, Reply
    from kafkacompat.wire.definition import FieldSpec

KEPT = 1024
"""The number of times that are kept for an API."""
DECAY = 0.015
"""Per second, as in Kafka."""
ROW = Struct("=7d")
"""The fields of Times, and the logarithm of the weight."""
TIMES_IN_ALL = 5
_WEIGHT = 6
_COLUMNS = 7
_SPREAD = 0.6180339887498949
"""The golden ratio's fraction. Its multiples fall evenly into each part of 0 to 1, also into parts of parts."""
_SCALE = 1 << 20
"""Priorities are compared as integers, in this many parts. Behind them a key has the place of the row."""
_PLACES = KEPT - 1


class Times(NamedTuple):
    """The times of one request in seconds, and its size in bytes."""

    request_queue: float
    local: float
    remote: float
    response_queue: float
    response_send: float
    size: float

    @property
    def total(self) -> float:
        return sum(self[:TIMES_IN_ALL])


class SampledTimes:
    """At most KEPT times of an API. They are packed: as tuples they would take five times the memory, which would grow for
    hours where requests are rare."""

    __slots__ = ("_heap", "_packed", "_refused", "_u")

    def __init__(self) -> None:
        self._packed = bytearray()
        self._heap: list[int] = []
        """The priority of each row, and its place."""
        self._refused = -inf
        """The logarithm of the highest priority that is not kept."""
        self._u = 0.0

    def add(self, requests: int, ended_s: float, times: Times) -> None:
        """Add the times of a request that ended then. It stands for so many requests."""
        place = self.place_for(requests, ended_s)
        if place >= 0:
            self.put(place, requests, ended_s, times)

    def place_for(self, requests: int, ended_s: float) -> int:
        """Return the place for the row of such a request, which must be `put` then. -1: it is not kept."""
        self._u = u = (self._u + _SPREAD) % 1.0
        priority = log(requests / (1.0 - u)) + DECAY * ended_s
        key, heap = int(priority * _SCALE) * KEPT, self._heap
        place = len(heap)
        if place < KEPT:
            heappush(heap, key | place)
            self._packed += bytes(ROW.size)
            return place
        lowest = heap[0]
        place = lowest & _PLACES
        if key <= lowest:
            if priority > self._refused:
                self._refused = priority
            return -1
        # It was above all that were refused before.
        self._refused = (lowest // KEPT) / _SCALE
        heapreplace(heap, key | place)
        return place

    def put(self, place: int, requests: int, ended_s: float, times: Times) -> None:
        ROW.pack_into(self._packed, place * ROW.size, *times, log(requests) + DECAY * ended_s)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Times]:
        return (Times._make(row[:_WEIGHT]) for row in ROW.iter_unpack(self._packed))

    def column(self, index: int) -> list[float]:
        """One field of all times."""
        return list[float](memoryview(self._packed).cast("d")[index::_COLUMNS])

    def totals(self) -> list[float]:
        return [sum(row[:TIMES_IN_ALL]) for row in ROW.iter_unpack(self._packed)]

    def log_weights(self) -> list[float]:
        """The logarithm of how much each counts, up to a constant that is the same for all APIs of a node."""
        least = self._refused
        return [max(weight, least) for weight in self.column(_WEIGHT)]


PRODUCE, FETCH, ADD_PARTITIONS_TO_TXN, LIST_CONFIG_RESOURCES = 0, 1, 24, 74
ALL_TIMED = 1024
"""The number of requests of an API version that are all timed."""
ONE_IN = 8
"""After these, one request in this number is timed."""
ONE_IN_OF_MANY = 64
"""The same, while an API version has more than a request each `MANY_APART_S`."""
MANY_APART_S = 0.001
RARE_APART_S = 0.01
"""While requests of an API version are further apart than this, all are timed again."""
MARKS_MAX = 16
"""Timed requests of one connection that may wait for earlier replies. The times of further ones end when their reply is ready."""
COUNTED_A_STEP = 2_000
"""Error codes per step that are counted in a large answer. One takes less than a microsecond."""
ERROR_CODES = 256
"""Length of a list of counts by error code. The code -1 is the last element."""


class KindMeter:
    """All versions of an API that share a name in Kafka's RequestMetrics."""

    __slots__ = ("_throttled", "errors", "name", "recent", "versions")

    def __init__(self, name: str, errors: list[int]) -> None:
        self.name = name
        self.recent = SampledTimes()
        self.versions: dict[int, RouteMeter] = {}
        self.errors = errors
        self._throttled: deque[tuple[int, int]] = deque(maxlen=KEPT)
        """(number of the request, throttle time in ms) of the newest requests that were throttled."""

    @property
    def requests(self) -> int:
        return sum([each.requests for each in self.versions.values()])

    def throttled(self, throttle_ms: int) -> None:
        """The newest request was throttled. The others cost nothing here."""
        self._throttled.append((self.requests, throttle_ms))

    def throttle_times_ms(self) -> list[float]:
        """Of the newest requests, at most KEPT of them, those with 0 included."""
        requests = self.requests
        told = [float(ms) for number, ms in self._throttled if number > requests - KEPT]
        return told + [0.0] * (min(requests, KEPT) - len(told))


class RouteMeter:
    """One version of an API. `mask` selects the requests to time, by their number."""

    __slots__ = ("_timed", "_timed_s", "choose", "count_errors", "errors", "kind", "mask", "plan", "requests")

    def __init__(self, kind: KindMeter, key: int, version: int) -> None:
        self.kind = kind
        self.requests = 0
        self.mask = 0
        self._timed_s = 0.0
        """When a request was timed last."""
        self._timed = 0
        """The number of the request that was timed last."""
        self.errors = kind.errors
        self.count_errors = error_counter(key, version)
        self.plan = plan_of(key, version)
        self.choose: Callable[[Any], RouteMeter] | None = None
        """If the metric's name depends on the request: returns the meter for a request."""

    def count(self, request: Any) -> RouteMeter | None:
        """Count a request. Returns the meter that is to `note` its times, if it is one of those that are timed."""
        meter = self if self.choose is None else self.choose(request)
        meter.requests += 1
        return None if meter.requests & meter.mask else meter

    def note(
        self, connection: ConnectionInfo, started_s: float, size: int, answer: Reply | Pending | None
    ) -> None:
        """Record the times of a request that was just handled. Its answer may come later, or never."""
        handled_s = monotonic()
        requests = self.requests
        stands_for, self._timed = requests - self._timed, requests
        if requests >= ALL_TIMED:
            apart_s = (handled_s - self._timed_s) / stands_for
            if apart_s > RARE_APART_S:
                self.mask = 0
            elif apart_s >= MANY_APART_S or not self.mask:  # two rare ones may come together
                self.mask = ONE_IN - 1
            else:
                self.mask = ONE_IN_OF_MANY - 1
        self._timed_s = handled_s
        mark = Mark(self.kind, connection.read_s or started_s, started_s, handled_s, size, stands_for)
        if answer is None:
            mark.ready_s = handled_s
            mark.end(handled_s)
            return
        if type(answer) is list or answer.reply.done:  # type: ignore[union-attr]
            mark.ready_s = handled_s
        else:
            answer.reply.on_done(mark.ready)  # type: ignore[union-attr]
        timings = connection.timings
        if timings is None:
            timings = connection.timings = ConnectionTimings(connection)
        timings.add(mark)

    def count_in_steps(self, answer: Any) -> Work[None]:
        """Like `count_errors`, in steps, for an answer that may be large."""
        yield from _count_in_steps(answer, self.plan, self.errors, Pace(COUNTED_A_STEP))

    def count_later(
        self, connection: ConnectionInfo, request: Any, started_s: float, size: int, answer: Pending
    ) -> None:
        """Count a request that was decoded in steps, and record its times if it is one of those that are timed: if each
        were, most times would be of the few large requests. The steps are part of its local time."""
        timed = self.count(request)
        if timed is not None:
            timed.note(connection, started_s, size, answer)


class RequestMeters:
    """The meters of a node, for both roles."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindMeter] = {}
        self.errors: dict[str, list[int]] = {}
        """Error counts of each API. An answer with several results counts each of them."""

    def of(self, key: int, version: int) -> RouteMeter:
        """Return the meter of a version. It is created at its first use."""
        name = APIS[key].name
        if key == FETCH:
            usual = self._meter("FetchConsumer", key, version)
            return self._chosen(key, version, usual, "FetchFollower", _is_of_follower)
        if key == LIST_CONFIG_RESOURCES and version == 0:
            return self._meter("ListClientMetricsResources", key, version)
        usual = self._meter(name, key, version)
        if key == ADD_PARTITIONS_TO_TXN:
            return self._chosen(key, version, usual, "AddPartitionsToTxnVerification", _only_verifies)
        return usual

    def _chosen(
        self, key: int, version: int, usual: RouteMeter, name: str, is_special: Callable[[Any], bool]
    ) -> RouteMeter:
        """Return a meter for an API whose requests have two metric names. Errors are counted under the API's name."""
        special = self._meter(name, key, version)
        meter = RouteMeter(usual.kind, key, version)
        meter.choose = lambda request: special if is_special(request) else usual
        return meter

    def _meter(self, name: str, key: int, version: int) -> RouteMeter:
        kind = self._kind(name, APIS[key].name)
        meter = kind.versions.get(version)
        if meter is None:
            meter = kind.versions[version] = RouteMeter(kind, key, version)
        return meter

    def _kind(self, name: str, api: str) -> KindMeter:
        kind = self.kinds.get(name)
        if kind is None:
            errors = self.errors.setdefault(api, [0] * ERROR_CODES)
            kind = self.kinds[name] = KindMeter(name, errors)
        return kind


def _is_of_follower(request: Any) -> bool:
    """Whether a follower sent the request. Versions before 15 have `replica_id`; later ones have `replica_state`, None
    from a consumer."""
    state = request.replica_state
    return bool(request.replica_id >= 0 or (state is not None and state.replica_id >= 0))


def _only_verifies(request: Any) -> bool:
    return bool(request.transactions) and all(each.verify_only for each in request.transactions)


class Mark:
    """A timed request whose answer was not sent yet."""

    __slots__ = ("begun_s", "handled_s", "kind", "read_s", "ready_s", "size", "stands_for", "started_s")

    def __init__(
        self,
        kind: KindMeter,
        read_s: float,
        started_s: float,
        handled_s: float,
        size: int,
        stands_for: int,
    ) -> None:
        self.kind = kind
        self.size = size
        self.stands_for = stands_for
        """The number of requests since the one that was timed before, this one included."""
        self.read_s = read_s
        self.started_s = started_s
        self.handled_s = handled_s
        self.ready_s = 0.0
        """The time when the reply was ready, 0 before."""
        self.begun_s = 0.0

    def ready(self, _: Deferred[Any]) -> None:
        self.ready_s = monotonic()

    def end(self, sent_s: float) -> None:
        sample = self.kind.recent
        place = sample.place_for(self.stands_for, sent_s)
        if place < 0:
            return
        started_s, handled_s, ready_s = self.started_s, self.handled_s, self.ready_s
        begun_s = self.begun_s or ready_s
        times = Times(
            max(started_s - self.read_s, 0.0),
            handled_s - started_s,
            ready_s - handled_s,
            begun_s - ready_s,
            sent_s - begun_s,
            self.size,
        )
        sample.put(place, self.stands_for, sent_s, times)


class ConnectionTimings:
    """Implements ports.dispatcher.Timings for a connection with timed requests."""

    __slots__ = ("_info", "_marks")

    def __init__(self, info: ConnectionInfo) -> None:
        self._info = info
        self._marks: list[Mark] = []

    def add(self, mark: Mark) -> None:
        self._marks.append(mark)

    def sending(self) -> None:
        now_s = monotonic()
        for mark in self._marks:
            if mark.ready_s and not mark.begun_s:
                mark.begun_s = now_s

    def sent(self, waiting: int) -> None:
        if waiting and len(self._marks) <= MARKS_MAX:
            return
        now_s = monotonic()
        left = []
        for mark in self._marks:
            if mark.ready_s:
                mark.end(now_s)
            else:
                left.append(mark)
        self._marks = left
        if not left:
            self._info.timings = None


# Errors in an answer.

Plan = tuple[bool, tuple[tuple[str, "Plan"], ...]]
"""Whether the struct has an error code, and its arrays with structs that have one."""


@cache
def plan_of(key: int, version: int) -> Plan:
    return _plan(specification(response_class(key)).root.fields, version)


@cache
def error_counter(key: int, version: int) -> Callable[[Any, list[int]], None]:
    """Return a function that adds an answer's error codes to the counts. Parts that are already encoded were counted before."""
    if key == PRODUCE:
        return _count_of_produce
    plan = plan_of(key, version)
    if key == FETCH:
        return _count_of_fetch if plan[0] else _count_of_old_fetch
    answers = response_class(key)

    def count(answer: Any, counts: list[int]) -> None:
        if type(answer) is answers:
            _count(answer, plan, counts)

    return count


def _plan(fields: Iterable[FieldSpec], version: int) -> Plan:
    has_code = False
    arrays: list[tuple[str, Plan]] = []
    for field in fields:
        if version not in field.versions:
            continue
        if field.name == "error_code":
            has_code = True
        elif field.is_array and field.struct is not None:
            inner = _plan(field.struct.fields, version)
            if inner[0] or inner[1]:
                arrays.append((field.name, inner))
    return has_code, tuple(arrays)


def _count(struct: Any, plan: Plan, counts: list[int]) -> None:
    has_code, arrays = plan
    if has_code:
        counts[struct.error_code] += 1
    for name, inner in arrays:
        for each in getattr(struct, name) or ():
            if type(each) is not Encoded:
                _count(each, inner, counts)


def _count_in_steps(struct: Any, plan: Plan, counts: list[int], pace: Pace) -> Work[None]:
    """Count in steps. Structs that are already encoded were counted before."""
    has_code, arrays = plan
    if has_code:
        counts[struct.error_code] += 1
    for name, inner in arrays:
        for each in getattr(struct, name) or ():
            if type(each) is Encoded:
                continue
            if inner[1]:
                yield from _count_in_steps(each, inner, counts, pace)
            else:
                counts[each.error_code] += 1
            if pace.is_over():
                yield TURN_COST


def _count_of_produce(answer: Any, counts: list[int]) -> None:
    """Does the same as the general function in a third of its time. Most answers have one partition."""
    if type(answer) is ProduceResponse:
        for topic in answer.responses:
            for one in topic.partition_responses:
                counts[one.error_code] += 1
    else:
        for code, times in answer.errors.items():
            counts[code] += times


def _count_of_fetch(answer: Any, counts: list[int]) -> None:
    """As for Produce. The response has an error code of its own."""
    if type(answer) is FetchResponse:
        counts[answer.error_code] += 1
        _count_of_old_fetch(answer, counts)
    else:
        for code, times in answer.errors.items():
            counts[code] += times


def _count_of_old_fetch(answer: Any, counts: list[int]) -> None:
    if type(answer) is FetchResponse:
        topics: Iterable[Any] = answer.responses
        for topic in topics:
            if type(topic) is not Encoded:
                for one in topic.partitions:
                    counts[one.error_code] += 1
