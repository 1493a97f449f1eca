"""Requests for many partitions, carried out as several small requests one after another.

The topics are cut into pieces, and the answers are merged. Use it only if each partition has a separate result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ids import ZERO_UUID
from kafkacompat.tasks import pause

if TYPE_CHECKING:
    from kafkacompat.api.handler import HandlerFunction
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse
    from kafkacompat.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

T = TypeVar("T")
R = TypeVar("R", bound="OffsetCommitResponse | TxnOffsetCommitResponse")

PIECE = 500
"""Partitions per piece. One takes up to 15 microseconds."""
COMMITTED_PIECE = 250
"""Partitions per piece if each is written. One takes up to 40 microseconds on a busy machine."""
OPENED_PIECE = 12
"""Partitions per piece while their logs may not be open yet. It takes up to a millisecond to open one."""


def named_in(topics: Sequence[Any]) -> int:
    """Count the partitions of topics. A topic without partitions counts as one, because there may be many of those."""
    return sum([len(topic.partitions) or 1 for topic in topics])


def cut(topics: Sequence[T], most: int = PIECE) -> Iterator[list[T]]:
    """Yield lists of topics with at most `most` partitions together, and at most `most` topics. Each part of a cut
    topic is a copy."""
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


def put_together(topics: dict[Any, Any], more: Iterable[Any]) -> None:
    """Add a response's topics to the dict, by name and id. A topic appears once, with the partitions of all responses."""
    for topic in more:
        known = topics.setdefault((topic.name, getattr(topic, "topic_id", None)), topic)
        if known is not topic:
            known.partitions += topic.partitions


def with_refused(response: R, refused: dict[Any, Any]) -> R:
    """Put the topics refused here, by name and id, before those of the response. A topic with refused partitions then appears
    once, with all its partitions.

    Without refusals, a topic appears as often as the request names it.
    """
    if refused:
        put_together(refused, response.topics)
        response.topics = list(refused.values())
    return response


def named_by(response: R, by_id: bool) -> R:
    """The topics with their ids only, or with their names only."""
    for topic in response.topics:
        if by_id:
            topic.name = ""
        else:
            topic.topic_id = ZERO_UUID
    return response


async def in_pieces(
    function: HandlerFunction, node: Any, context: RequestContext, request: Any, most: int = PIECE
) -> Any:
    """Return the merged answer. Each piece starts after the previous one is answered. An error of the whole request is
    returned at once."""
    whole: Any = None
    topics: dict[Any, Any] = {}
    for piece in cut(request.topics, most):
        part = copy(request)
        part.topics = piece
        answer: Any = function(node, context, part)
        if isinstance(answer, Deferred):
            answer = await answer
        if getattr(answer, "error_code", 0):
            return answer
        await pause()  # the answer may have been there at once
        whole = answer
        put_together(topics, answer.topics)
    whole.topics = list(topics.values())
    return whole
