"""WriteTxnMarkers (key 27): write the end of transactions to the partitions that this broker leads.

KIP-98, KIP-664 (a tool that ends hanging transactions), KIP-1228 (the transaction's version, from version 2 on).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.handler import Handler
from kafkacompat.api.pieces import COMMITTED_PIECE, OPENED_PIECE
from kafkacompat.deferred import Deferred, gather
from kafkacompat.tasks import Pace, pause
from kafkacompat.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkacompat.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode


WALKED_A_STEP = 5_000
"""Markers and topics per step. One takes less than a microsecond."""


def handle(node: Node, context: RequestContext, request: WriteTxnMarkersRequest) -> Awaitable[Any]:
    if _is_long(request.markers, _piece_size(node)):
        return _in_steps(node, request)
    return node.transactions.markers.write(request)


def _piece_size(node: Node) -> int:
    return OPENED_PIECE if node.partitions.opens_logs else COMMITTED_PIECE


def _is_long(markers: Sequence[WritableTxnMarker], most: int) -> bool:
    """Return whether the request is long. A topic without partitions counts as one partition: there may be hundreds of
    thousands."""
    return (
        len(markers) > most
        or sum([len(marker.topics) for marker in markers]) > most
        or sum([len(topic.partition_indexes) for marker in markers for topic in marker.topics]) > most
    )


async def _in_steps(node: Node, request: WriteTxnMarkersRequest) -> Any:
    """Return the merged answers. The pieces do not wait for the replication of earlier pieces."""
    asked: list[tuple[list[int], Deferred[WriteTxnMarkersResponse]]] = []
    for piece in _pieces(request.markers, _piece_size(node)):
        if piece:
            part = WriteTxnMarkersRequest(markers=[marker for _, marker in piece])
            asked.append(([position for position, _ in piece], node.transactions.markers.write(part)))
        await pause()
    answers = await gather([answer for _, answer in asked])
    results: dict[int, WritableTxnMarkerResult] = {}
    topics: dict[tuple[int, str], WritableTxnMarkerTopicResult] = {}
    for (positions, _), answer in zip(asked, answers, strict=True):
        for position, told in zip(positions, answer.markers, strict=True):
            result = results.setdefault(position, told)
            for topic in list(told.topics):
                known = topics.setdefault((position, topic.name), topic)
                if known is not topic:
                    known.partitions += topic.partitions
                elif result is not told:
                    result.topics.append(topic)
        await pause()
    return WriteTxnMarkersResponse(markers=list(results.values()))


Piece: TypeAlias = list[tuple[int, WritableTxnMarker]]
"""Pairs of a marker's position in the request and a copy of the marker with some of its partitions."""


def _pieces(markers: Sequence[WritableTxnMarker], most: int) -> Iterator[Piece]:
    """Yield pieces with at most `most` partitions, and an empty piece after every WALKED_A_STEP markers and topics."""
    piece: Piece = []
    left = most
    walked = Pace(WALKED_A_STEP)
    for position, marker in enumerate(markers):
        if walked.is_over():
            yield []
        for topic in marker.topics:
            if walked.is_over():
                yield []
            indexes, start = topic.partition_indexes, 0
            while start < len(indexes):
                part = copy(marker)
                taken = indexes[start : start + left]
                part.topics = [WritableTxnMarkerTopic(name=topic.name, partition_indexes=taken)]
                piece.append((position, part))
                start += len(taken)
                left -= len(taken)
                if not left:
                    yield piece
                    piece, left = [], most
    if piece:
        yield piece


def error_response(request: WriteTxnMarkersRequest, code: ErrorCode, version: int) -> WriteTxnMarkersResponse:
    """Return each partition once, by producer. If a producer has several markers, only the last one counts, as in Kafka."""
    partitions: dict[int, dict[str, dict[int, None]]] = {}
    for marker in request.markers:
        of_producer = partitions[marker.producer_id] = {}
        for topic in marker.topics:
            if topic.partition_indexes:
                of_producer.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in indexes
                        ],
                    )
                    for name, indexes in of_producer.items()
                ],
            )
            for producer_id, of_producer in partitions.items()
        ]
    )


HANDLER = Handler(handle, error_response, asks_coordinators=True)
