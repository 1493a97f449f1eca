"""Requests that are not answered at once: tasks handle them and encode their answers, with pauses, while the connection waits.

This module knows which requests are long, cuts those of some handlers into slices, and encodes the answers.
"""

from __future__ import annotations

from copy import copy
from types import CoroutineType, GeneratorType, coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.handler import HandlerFunction, NoResponse, Slices
from kafkacompat.api.route import EncodedAnswer
from kafkacompat.deferred import Deferred
from kafkacompat.tasks import TURN_COST, Cancelled, Limit, Pace, Task, Tasks, Work, at_once, in_turns, pause
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.codec import encoded_element, steps_encoder
from kafkacompat.wire.errors import EncodeError, ErrorCode
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterator

    from kafkacompat.api.handler import Message
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.api.route import Route

LARGE_REQUESTS_AT_ONCE = 2
"""Large requests of each line that are in memory at a time, from decoding to the answer. Request and answer take some
hundred bytes per element each."""
HUGE_REQUEST_BYTES = 256 * 1024
"""A larger request may have so many elements that it takes minutes. Other large ones do not wait for it."""
LEFT_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of large requests that wait although their clients have left. With the first piece, which is decoded, a request takes
up to ten times as much. One request may be larger."""
NAMED_A_STEP = 10_000
"""Elements per step that are checked for repeats. One takes a third of a microsecond."""
CHARACTERS_A_STEP = 16_000
"""Characters of names per step. Each name is hashed, at some tens of nanoseconds per character."""
FREED_A_STEP = 5_000
"""Elements per step that are freed. One takes up to half a microsecond."""
FREED_WITHOUT_STEPS = 100
"""Elements that are freed as they are."""
FREED_WITH_ARRAYS_COST = 5
"""The cost of an element that contains arrays."""


Handling: TypeAlias = "Coroutine[Any, None, Any] | Generator[Any, None, Any]"
"""What a handler returns that does not answer at once: a coroutine, or a Work."""
HANDLINGS = frozenset((CoroutineType, GeneratorType))


class RequestTasks:
    """The tasks of requests that do not answer at once, and the places of the large ones among them.

    A connection that waits is not read, so it has one request in a line, and all connections get their turn. A client could
    leave a request in the line, and come back with the next one. So what clients have left there has a bound of its own.
    """

    __slots__ = ("_left_bytes", "_places", "tasks")

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self._left_bytes = 0
        self._places = {
            (waits_at_will, is_huge): Limit(LARGE_REQUESTS_AT_ONCE)
            for waits_at_will in (False, True)
            for is_huge in (False, True)
        }

    def places(self, size_bytes: int, *, waits_at_will: bool) -> Limit:
        """The places of a large request. Requests whose wait the client decides have separate places. Otherwise they
        could block requests that they wait for: replicas wait for fetches."""
        return self._places[waits_at_will, size_bytes > HUGE_REQUEST_BYTES]

    def keep_left(self, route: Route, size_bytes: int) -> bool:
        """Return whether to carry out a request that its client has left before its turn. If so, call `left_is_over` then.

        Kafka carries out what it has read, and a producer without acknowledgements closes after its last request. But nothing
        but an answer comes of some requests. Beyond the bound a request is dropped. It was not begun, so to its client it is
        like one that was lost on the way.
        """
        if route.ends_with_connection or route.needs_connection:
            return False
        if self._left_bytes and self._left_bytes + size_bytes > LEFT_BYTES_MAX:
            return False
        self._left_bytes += size_bytes
        return True

    def left_is_over(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes


class LongAnswer(Deferred[Any]):
    """The answer to a request that a task handles. The request's bytes stay in use until then, so its connection is not read,
    whatever its API says otherwise.

    The connection's end abandons the answer. If the task then waits for a Deferred that may be abandoned, it ends there, with
    what `Tasks.all` carries out for it. Another wait goes on, and so does the rest of the handler unless
    `Handler.ends_with_connection` is set. A task that the handler has given to `Tasks.run` always goes on.
    """

    __slots__ = ("_rests", "_waits_for", "held", "is_abandoned", "task", "waits_at_will")

    def __init__(self) -> None:
        super().__init__()
        self._rests: Deferred[None] = Deferred()
        self.waits_at_will = False
        self.task: Task[Any] | None = None
        """None in the task's first piece."""
        self.held: list[Message] = []
        """The request and its response, if they may be long. Freeing their elements takes as long as creating them, so
        it is done in steps."""
        self._waits_for: Deferred[Any] | None = None
        self.is_abandoned = False
        self.when_abandoned = self._tell

    def wait_for(self, answer: Deferred[Any] | None) -> None:
        """Set the Deferred for which the task waits. None when its value has arrived."""
        self._waits_for = answer
        if answer is not None and self.is_abandoned:
            self._let_go(answer)
        if answer is not None and not answer.done and self.waits_at_will:
            self.rest()

    def resting(self) -> Deferred[None]:
        """Resolves when the request needs no more work, or only waits for as long as its client allows."""
        return self._rests

    def rest(self) -> None:
        if not self._rests.done:
            self._rests.resolve(None)

    def _tell(self) -> None:
        self.is_abandoned = True
        if self._waits_for is not None:
            self._let_go(self._waits_for)

    def _let_go(self, answer: Deferred[Any]) -> None:
        if answer.when_abandoned is not None and self.task is not None:
            self.task.cancel()


def partitions_asked(node: Any, request: Any) -> int:
    """The size of a request whose topics have partitions."""
    return sum([len(topic.partitions) for topic in request.topics])


def answer_large(
    requests: RequestTasks, route: Route, node: Any, context: RequestContext, request: Any
) -> LongAnswer:
    """Handle a large request with pauses. The answer is encoded if the API has a response."""
    answer = LongAnswer()
    return _begun(requests, route, answer, _handled(answer, route, node, context, request))


def answer_of(requests: RequestTasks, route: Route, context: RequestContext, handling: Handling) -> Any:
    """The value of a handler's coroutine or work, of which the first piece is carried out now. If that is all, its value is
    returned directly."""
    left = TURN_COST
    if isinstance(handling, GeneratorType):
        handling = in_turns(handling)
    try:
        waits_for = handling.send(None)
        while type(waits_for) is int:
            left -= waits_for
            if left <= 0:
                break
            waits_for = handling.send(None)
    except StopIteration as end:
        return end.value
    answer = LongAnswer()
    return _begun(requests, route, answer, _told(answer, route, context, handling, waits_for))


async def given(answer: Any) -> Any:
    """The message behind whatever a handler returns."""
    while True:
        if isinstance(answer, GeneratorType):
            answer = await in_turns(answer)
        elif isinstance(answer, Deferred | CoroutineType):
            answer = await answer
        else:
            return answer


def as_deferred(answer: Any) -> Deferred[Any]:
    return answer if isinstance(answer, Deferred) else Deferred.of(answer)


def _begun(
    requests: RequestTasks, route: Route, answer: LongAnswer, handling: Coroutine[Any, None, Any]
) -> LongAnswer:
    name = APIS[route.key].name

    def done(given: Deferred[Any]) -> None:
        answer.wait_for(None)
        try:
            value = given.result()
        except Cancelled as error:
            if not task.is_cancelled:  # something that it waited for was
                answer.fail(error)
        except Exception as error:
            answer.fail(error)
        else:
            answer.resolve(value)
        answer.rest()
        held, answer.held = answer.held, []
        # What is small goes with its last user. A task would keep its records for some turns.
        if not are_few(held):
            arrays = [value for each in held for value in arrays_of(each)]
            requests.tasks.start(f"freeing a long {name}", _later(freed(arrays)))

    answer.task = task = requests.tasks.run(name, handling)
    task.on_done(done)
    return answer


def arrays_of(message: Any) -> list[list[Any]]:
    """Return copies of the message's arrays. Copies, because the caller empties them and the message may be kept elsewhere."""
    values = [getattr(message, name) for name in array_names(type(message))]
    return [value.copy() for value in values if value]


@remembered
def array_names(kind: type) -> tuple[str, ...]:
    """Return the names of a struct's fields that are arrays."""
    annotations = getattr(vars(kind).get("__init__"), "__annotations__", {})
    return tuple(
        name for name in getattr(kind, "__slots__", ()) if str(annotations.get(name)).startswith("list[")
    )


def are_few(messages: list[Any], most: int = FREED_WITHOUT_STEPS) -> bool:
    """Whether the messages' arrays, and the arrays inside them, have at most so many elements together."""
    left, messages = most, messages.copy()
    while messages:
        message = messages.pop()
        for name in array_names(type(message)):
            items = getattr(message, name)
            if items:
                left -= len(items)
                if left < 0:
                    return False
                if array_names(type(items[-1])):
                    messages += items
    return True


async def _later(work: Work[None]) -> None:
    await pause()  # the answer goes first
    await in_turns(work)


def freed(arrays: list[list[Any]]) -> Work[None]:
    """Remove all elements from the arrays, and from the arrays inside them. This frees most of the elements."""
    pace = Pace(FREED_A_STEP)
    while arrays:
        items = arrays.pop()
        within: list[list[Any]] = []
        cost = FREED_WITH_ARRAYS_COST
        if array_names(type(items[-1])):
            within = arrays_of(items.pop())
        else:
            cost = min(len(items), FREED_A_STEP)
            del items[-cost:]
        if items:
            arrays.append(items)
        arrays += within
        if pace.is_over(cost):
            yield TURN_COST


async def _handled(
    later: LongAnswer, route: Route, node: Any, context: RequestContext, request: Any
) -> EncodedAnswer | NoResponse:
    later.held.append(request)
    later.waits_at_will = route.waits_at_will
    await pause()  # what decoded it has used its turn
    if later.is_abandoned and (route.needs_connection or route.ends_with_connection):
        return NoResponse.SILENT
    if route.slices is not None:
        answer = await _in_slices(route, route.slices, node, context, request)
    elif route.long is not None:
        answer = route.long.steps(node, context, request)
    else:
        answer = route.function(node, context, request)
    if isinstance(answer, GeneratorType):
        answer = in_turns(answer)
    return await _told(later, route, context, answer)


async def _told(
    later: LongAnswer, route: Route, context: RequestContext, answer: Any, waits_for: Any = None
) -> EncodedAnswer | NoResponse:
    """Encode a handler's result as soon as it is available. `waits_for`: what its coroutine or work has yielded."""
    if isinstance(answer, GeneratorType | CoroutineType):
        answer = await _watched(later, route, answer, waits_for)
    if isinstance(answer, Deferred):
        later.wait_for(answer)
        answer = await answer
        later.wait_for(None)
    if isinstance(answer, NoResponse):
        return answer
    if route.meter is not None:
        await in_turns(route.meter.count_in_steps(answer))
    if context.throttling is not None:
        context.throttling.tell(context, answer)
    later.held.append(answer)
    return await in_turns(encoded_in_steps(route, answer))


@coroutine
def _watched(
    later: LongAnswer, route: Route, handling: Handling, waits_for: int | Deferred[Any] | None
) -> Generator[int | Deferred[Any], None, Any]:
    """Carry on a handler's coroutine or work, which may have begun. It may end early if the client no longer wants its value."""
    try:
        if waits_for is None:
            waits_for = handling.send(None)
        while True:
            later.wait_for(waits_for if isinstance(waits_for, Deferred) else None)
            yield waits_for
            if later.is_abandoned and route.ends_with_connection:
                handling.close()
                return NoResponse.SILENT
            waits_for = handling.send(None)
    except StopIteration as end:
        return end.value


PART_BYTES = 1 << 20
"""Of an answer, before the next part of it begins. To grow hundreds of megabytes takes a tenth of a second."""


def encoded_in_steps(route: Route, answer: Message) -> Work[EncodedAnswer]:
    out = bytearray()
    parts: list[Any] = []
    try:
        if route.encode is not None:
            for cost in steps_encoder(type(answer), route.version, False)(answer, out):
                if len(out) >= PART_BYTES:
                    parts.append(bytes(out))
                    out.clear()
                yield cost
            return EncodedAnswer([*parts, out])
        out = yield from steps_encoder(type(answer), route.version, True)(answer, out, parts)
    except ValueError as error:
        raise EncodeError(str(error)) from error
    return EncodedAnswer([*parts, out] if out or not parts else parts)


def is_long(route: Route, node: Any, request: Any) -> bool:
    """Return whether the request takes several steps. Repeated elements of a sliced request are merged first."""
    if route.long is not None:
        return route.long.size(node, request) > route.long.at_once
    slices = route.slices
    if slices is None:
        return False
    elements = getattr(request, slices.request_field)
    if elements is None or len(elements) < 2:
        return False
    if slices.at_once is not None and slices.at_once(request):
        return False
    if len(elements) > NAMED_A_STEP:
        return True  # repeats are merged in steps
    elements = at_once(_each_once(slices, elements))
    setattr(request, slices.request_field, elements)
    return is_cut(elements, slices.step)


def _each_once(slices: Slices, elements: list[Any]) -> Work[list[Any]]:
    found: dict[Any, Any] = {}
    for start in range(0, len(elements), NAMED_A_STEP):
        if start:
            yield TURN_COST
        for each in elements[start : start + NAMED_A_STEP]:
            name = slices.name_of(each)
            if slices.of_both is not None and name in found:
                each = slices.of_both(found[name], each)
            found[name] = each
    return list(found.values())


def slice_bounds(elements: list[Any], step: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of slices. A slice has at most `step` elements and CHARACTERS_A_STEP characters, but at least
    one element."""
    start = characters = 0
    for at, each in enumerate(elements):
        length = len(each) if type(each) is str else 0
        if at > start and (at - start == step or characters + length > CHARACTERS_A_STEP):
            yield start, at
            start, characters = at, 0
        characters += length
    yield start, len(elements)


def is_cut(elements: list[Any], step: int) -> bool:
    """Return whether there is more than one slice."""
    return len(elements) > step or len(list(slice_bounds(elements, step))) > 1


async def _in_slices(route: Route, slices: Slices, node: Any, context: RequestContext, request: Any) -> Any:
    """Return the response. Its elements are already encoded if they are structs."""
    elements = getattr(request, slices.request_field)
    is_merged = elements is not None and len(elements) > NAMED_A_STEP
    if is_merged:
        elements = await in_turns(_each_once(slices, elements))
        setattr(request, slices.request_field, elements)
    is_whole = elements is None or (slices.at_once is not None and slices.at_once(request))
    if not is_whole and not is_merged:
        # `is_long` has not looked at a request that was decoded in steps.
        elements = at_once(_each_once(slices, elements))
        setattr(request, slices.request_field, elements)
    if is_whole or not is_cut(elements, slices.step):
        return route.function(node, context, request)
    function: HandlerFunction = route.function
    part = copy(request)
    whole: Any = None
    answers: list[Any] = []
    waited_ms = 0
    for start, end in slice_bounds(elements, slices.step):
        setattr(part, slices.request_field, elements[start:end])
        answer: Any
        if slices.patience_ms is not None and waited_ms >= slices.patience_ms:
            answer = route.error_response(part, ErrorCode.COORDINATOR_NOT_AVAILABLE, route.version)
        else:
            answer = function(node, context, part)
            is_there = answer.done if isinstance(answer, Deferred) else type(answer) not in HANDLINGS
            began_ms = None if slices.patience_ms is None or is_there else node.clock.monotonic_ms()
            answer = await given(answer)
            if began_ms is not None:
                waited_ms += node.clock.monotonic_ms() - began_ms
        if route.meter is not None:
            route.meter.count_errors(answer, route.meter.errors)
        of_part = getattr(answer, slices.response_field)
        answers += [encoded_element(type(answer), route.version, each) for each in of_part]
        whole = answer
        await pause()
    setattr(whole, slices.response_field, answers)
    return whole
