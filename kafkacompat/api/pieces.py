"""Requests of many partitions, carried out as so many small ones, one after another.

The topics are cut, and the answers put together. Only where each partition is answered for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.api.handler import HandlerFunction
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.stepping.jobs import Steps

T = TypeVar("T")

PIECE = 500
"""Partitions. One takes up to 15 us."""
COMMITTED_PIECE = 250
"""Those of which something is written: up to 40 us on a busy machine."""


def named_in(topics: Sequence[Any]) -> int:
    """The partitions of topics; one without any counts as one, for there may be many of those."""
    return sum([len(topic.partitions) or 1 for topic in topics])


def cut(topics: Sequence[T], most: int = PIECE) -> Iterator[list[T]]:
    """Lists of topics with so many partitions together at most, and no more topics; of a topic that is cut each has a copy."""
    piece: list[T] = []
    left = most
    for topic in topics:
        if not left:
            yield piece
            piece, left = [], most
        partitions = topic.partitions  # type: ignore[attr-defined]  # all these topics have some
        position = 0
        while len(partitions) - position > left:
            part: Any = copy(topic)
            part.partitions = partitions[position : position + left]
            yield [*piece, part]
            position += left
            piece, left = [], most
        rest: Any = copy(topic) if position else topic
        rest.partitions = partitions[position:]
        piece.append(rest)
        left -= named_in([rest])
    if piece:
        yield piece


def in_pieces(
    function: HandlerFunction, node: Any, context: RequestContext, request: Any, most: int = PIECE
) -> Steps[Any]:
    """The answers as one. Each piece waits for the last one's answer; an error of the whole request is the answer."""
    whole: Any = None
    topics: dict[Any, Any] = {}
    for piece in cut(request.topics, most):
        part = copy(request)
        part.topics = piece
        answer: Any = function(node, context, part)
        if isinstance(answer, Deferred):
            answer = yield answer
        else:
            yield None
        if getattr(answer, "error_code", 0):
            return answer
        whole = answer
        for topic in answer.topics:
            known = topics.setdefault((topic.name, getattr(topic, "topic_id", None)), topic)
            if known is not topic:
                known.partitions += topic.partitions
    whole.topics = list(topics.values())
    return whole
