"""How an API is handled: its function, and what to answer when the function has a bug.

Every module of this package that serves an API ends in one `HANDLER`. Its key and versions are not said there: the registry
has them from wire's table. Knows neither how handlers are found
(registry) nor how they are called (dispatch), and no API in particular.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps


class NoResponse(Enum):
    """What a handler returns when the protocol has no answer: a produce that nobody waits for (acks=0)."""

    SILENT = 0
    """Go on with the next request."""
    CLOSE = 1
    """Close the connection, which is how a client without replies learns of an error."""


T = TypeVar("T")


def told_in_steps(answer: Deferred[T]) -> Steps[T]:
    """For an answer that may be long: what comes later is encoded in steps then."""
    return answer.result() if answer.done else (yield answer)


class HoldingDeferred(Deferred[T]):
    """An answer of an API that does not block as a rule: this time its connection is not read until it is there."""

    __slots__ = ()


Message = Any
"""A response message object of kafkacompat.wire.messages."""
HandlerFunction = Callable[
    [Any, "RequestContext", Any], "Message | Deferred[Message] | NoResponse | Steps[Any]"
]
"""The first argument is the node of the listeners that serve the API: Node, ControllerNode, or AnyNode for both.

Steps, of which none is done yet, are for what turns out long. They give what the function would.
"""
ErrorResponse = Callable[[Any, ErrorCode, int], Message]
"""(request message, error, api version) -> the response that carries the error at that API's level."""


@dataclass(frozen=True, slots=True)
class Slices:
    """How a long request is handled in steps of the loop: as several that have a slice of its array each.

    Only where the elements are answered one by one, in their order, and nothing else in the answer hangs on them. Whoever is
    named twice is answered once, as clients expect who keep the answers in a map.
    """

    request_field: str
    response_field: str
    step: int
    """Elements handled in one step."""
    name_of: Callable[[Any], Any]
    """What tells two elements apart, of which the last one counts unless `of_both` makes one of the two."""
    at_once: Callable[[Any], bool] | None = None
    """Whether a request is answered as a whole all the same, and soon."""
    of_both: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class LongHandling:
    """How a long request is handled in steps of the loop, whose answer is one."""

    size: Callable[[Any, Any], int]
    """Of a request to a node, in what its steps count. As quick as the request is small."""
    at_once: int
    """A request of this size or less is handled by the handler's function."""
    steps: Callable[[Any, RequestContext, Any], Steps[Any]]
    """What the function gives, which may come later."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One API. `function` takes the decoded request message and gives the response message, now or later.

    It runs in the loop's thread and never waits. Refusals are part of its answer; an exception it raises is a bug:
    the dispatcher logs it and answers with `error_response(request, UNKNOWN_SERVER_ERROR, version)`.
    """

    function: HandlerFunction
    error_response: ErrorResponse
    blocks: bool = True
    """Whether a parked answer stops its connection from being read (all but Produce, as in Kafka)."""
    waits_for_opening: bool = False
    """Whether its answer rests on who takes part in the cluster, so that it waits while this broker does not yet."""
    waits_at_will: bool = False
    """Whether its client says how long its answer may take: by a time of its own, or by what other members of its group do."""
    ends_with_connection: bool = False
    """Whether the steps that its function gives are given up when nobody waits for the answer any more."""
    slices: Slices | None = None
    long: LongHandling | None = None
    """Without either the request is handled in one step, however long it is."""


def top_level_error(response_type: Callable[..., Message]) -> ErrorResponse:
    """For APIs whose response has an `error_code` of its own, and an empty rest."""

    def answer(request: Any, code: ErrorCode, version: int) -> Message:
        return response_type(error_code=code)

    return answer
