"""How an API is handled: its function, and the response if the function raises.

Every module of this package that serves an API ends with a `HANDLER`. The handler does not contain the API's key and
versions: the registry has them from the table in wire/. This module knows no particular API, and neither the registry
nor dispatch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.dataclass import dataclass
from kafkacompat.tasks import Work
from kafkacompat.wire.errors import ErrorCode, error_text

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext


class NoResponse(Enum):
    """A handler's result when the protocol has no response: a produce that expects none (acks=0)."""

    SILENT = 0
    """Go on with the next request."""
    CLOSE = 1
    """Close the connection. A client that gets no responses learns of an error in this way."""


T = TypeVar("T")

ParsePlain = Callable[[Any, memoryview, int, int], Any | None]
"""(node, frame, position of the body, version) -> the request in a form of its own, or None if it is not plain."""
AnswerFrame = Callable[[Any, memoryview, int, int], Any | None]
"""(node, frame, version, correlation id) -> a pair, the reply and how many results without an error it has. Or the plain request
if `function` must go on from there. None if it is not plain."""
SLICES_PATIENCE_MS = 30_000
"""As long as Kafka's clients wait for an answer (request.timeout.ms), and its share coordinator is looked for."""


Message = Any
"""A response message object of kafkacompat.wire.messages."""
HandlerFunction = Callable[
    [Any, "RequestContext", Any], "Message | Awaitable[Message] | NoResponse | Work[Any]"
]
"""The first argument is the node of the listener that serves the API: Node, ControllerNode, or AnyNode for both.

What answers at once is a plain function. What waits is a coroutine, and what may be long and waits for nothing is a Work: neither
has begun yet. An answer that does not come of the first piece is encoded in pieces too.
"""
ErrorResponse = Callable[[Any, ErrorCode, int], Message]
"""(request message, error, api version) -> the response that carries the error at that API's level."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Handles a long request as several requests, each with a slice of the request's array.

    Use it only if the elements are answered one by one and in order, and if nothing else in the response depends on
    them. An element that is named twice is answered once: clients keep the results in a map.
    """

    request_field: str
    response_field: str
    step: int
    """Elements handled in one step."""
    name_of: Callable[[Any], Any]
    """The identity of an element. Of two equal elements the last one counts, unless `of_both` merges them."""
    at_once: Callable[[Any], bool] | None = None
    """Whether a request is nevertheless answered as a whole, because that is quick."""
    of_both: Callable[[Any, Any], Any] | None = None
    patience_ms: int | None = None
    """How long the slices may wait together. Then the elements that are left get COORDINATOR_NOT_AVAILABLE: a request must
    not hold its place, and its memory, for as long as its number of elements says. Apache Kafka lets all elements wait at
    the same time. None if the function never waits."""


@dataclass(frozen=True, slots=True)
class LongHandling:
    """Handles a long request in steps of the loop, with one answer."""

    size: Callable[[Any, Any], int]
    """The size of a request to a node, in the units of its steps. It must be quick to compute for a small request."""
    at_once: int
    """The handler's function handles a request of this size or less."""
    steps: Callable[[Any, RequestContext, Any], Awaitable[Any] | Work[Any]]
    """Return the value that the function would return. It may be available later."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One API. `function` takes the decoded request message and returns the response message, now or later.

    The function runs in the loop's thread and never blocks it. Refusals are part of its response. An exception is a bug:
    it is logged, and the response is `error_response(request, UNKNOWN_SERVER_ERROR, version)`.

    A request goes on when its connection closes, as in Kafka: it may change state. `ends_with_connection`, `needs_connection` and
    api/long_requests.LongAnswer say what ends then.
    """

    function: HandlerFunction
    error_response: ErrorResponse
    blocks: bool = True
    """Whether the connection is not read while its request waits (all APIs except Produce, as in Kafka)."""
    waits_for_opening: bool = False
    """Whether the answer depends on the brokers in the cluster. Such a request waits until this broker has joined."""
    asks_coordinators: bool = False
    """Whether the function uses groups, transactions or share groups. Its first request waits until they are made."""
    waits_at_will: bool = False
    """Whether the client or the other members of its group decide how long the answer may take."""
    ends_with_connection: bool = False
    """Whether the steps of the function are abandoned when the connection closes, and not begun after that: nothing but its
    answer would come of them."""
    needs_connection: bool = False
    """Whether the request is dropped if its connection closes before the function is called: what the function keeps for
    the connection would stay for ever."""
    repeats: bool = False
    """Whether the function may tell how to answer the same request again (RequestContext.again)."""
    slices: Slices | None = None
    long: LongHandling | None = None
    """Without `slices` and `long`, a request of any size is handled in one step."""
    parse_plain: ParsePlain | None = None
    """Reads a plain request, of any size, within one step of the loop, in the place of the decoder. `function` and
    `error_response` take its result as well."""
    answer_frame: AnswerFrame | None = None
    """Reads and carries out a plain request of a sender without quotas, its header too, and answers it if that needs nothing to be
    known of the sender. `function` goes on with the others, and raises what this raised. Nothing that this class says of a
    function holds a plain request back."""
    is_served: Callable[[Any], bool] | None = None
    """Whether the node serves the API now: its protocol may be disabled. If not, the response is UNSUPPORTED_VERSION, also
    to a sender without rights. None if it is always served."""


def top_level_error(response_type: Callable[..., Message]) -> ErrorResponse:
    """For APIs whose error response has an `error_code` at the top, perhaps with a message, and no other content."""

    def answer(request: Any, code: ErrorCode, version: int) -> Message:
        response = response_type(error_code=code)
        if getattr(response, "error_message", None) == "":
            # Clients show an empty message as it is: nobody would know why the request failed.
            response.error_message = error_text(code)
        return response

    return answer
