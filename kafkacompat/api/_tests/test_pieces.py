"""Topics cut into pieces with a bounded number of partitions."""

from __future__ import annotations

from types import CoroutineType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.api import offset_commit, offset_delete, txn_offset_commit, write_txn_markers
from kafkacompat.api._tests.kit import pauses_of
from kafkacompat.api.pieces import PIECE, cut, in_pieces
from kafkacompat.api.request_context import RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.tasks import at_once
from kafkacompat.wire.codec import encode
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse, OffsetDeleteResponseTopic
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
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


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 5))
def test_each_partition_is_in_one_piece_and_in_its_order(sizes: list[int], most: int) -> None:
    topics = [
        OffsetCommitRequestTopic(name=str(number), partitions=list(range(size)))  # type: ignore[arg-type]
        for number, size in enumerate(sizes)
    ]
    pieces = list(cut(topics, most))
    counts = [sum(len(topic.partitions) for topic in piece) for piece in pieces]
    assert all(count <= most for count in counts)
    assert all(0 < len(piece) <= most for piece in pieces)  # also for topics without partitions
    cut_up = [(topic.name, index) for piece in pieces for topic in piece for index in topic.partitions]
    assert cut_up == [(str(number), index) for number, size in enumerate(sizes) for index in range(size)]
    assert {topic.name for piece in pieces for topic in piece} == {topic.name for topic in topics}
    assert [len(topic.partitions) for topic in topics] == sizes or len(pieces) > 1


@pytest.mark.parametrize(
    ("module", "request_of", "topic"),
    [
        (offset_commit, OffsetCommitRequest, OffsetCommitRequestTopic()),
        (offset_delete, OffsetDeleteRequest, OffsetDeleteRequestTopic()),
        (txn_offset_commit, TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic()),
    ],
)
def test_many_topics_without_partitions_are_handled_in_steps(
    module: Any, request_of: Any, topic: Any
) -> None:
    context = RequestContext(request_of.API_KEY, request_of.MAX_VERSION, 0, None, 1, "L", "h")
    nothing_done_yet: Any = None
    asked = request_of(topics=[topic] * (PIECE + 1))
    assert isinstance(module.HANDLER.function(nothing_done_yet, context, asked), CoroutineType)


def test_there_is_a_pause_after_a_piece_whose_answer_was_there_at_once() -> None:
    def answered(node: Any, context: Any, part: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
        topics = [OffsetDeleteResponseTopic(name=topic.name) for topic in part.topics]
        return Deferred.of(OffsetDeleteResponse(topics=topics))

    asked = OffsetDeleteRequest(
        topics=[OffsetDeleteRequestTopic(name=str(number)) for number in range(10 * PIECE)]
    )
    context: Any = None
    assert len(list(pauses_of(in_pieces(answered, None, context, asked)))) == 10


class Markers:
    """Answers each partition with its own number as the error. A topic appears once per marker, and no marker is empty."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def write(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        results = []
        self.written.append(0)
        for marker in request.markers:
            topics: dict[str, WritableTxnMarkerTopicResult] = {}
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self.written[-1] += 1
                    told = WritableTxnMarkerTopicResult(name=topic.name, partitions=[])
                    topics.setdefault(topic.name, told).partitions.append(
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=index)
                    )
            results.append(
                WritableTxnMarkerResult(producer_id=marker.producer_id, topics=list(topics.values()))
            )
        return Deferred.of(WriteTxnMarkersResponse(markers=[each for each in results if each.topics]))


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 9), max_size=7)), max_size=3),
        max_size=6,
    ),
    st.integers(1, 5),
)
def test_markers_in_pieces_are_answered_as_in_one(
    asked: list[list[tuple[str, list[int]]]], most: int
) -> None:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=number,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics],
            )
            for number, topics in enumerate(asked)
        ]
    )
    whole, cut_up = Markers(), Markers()
    expected = whole.write(request).result()
    node: Any = SimpleNamespace(
        transactions=SimpleNamespace(markers=cut_up), partitions=SimpleNamespace(opens_logs=False)
    )
    context = RequestContext(request.API_KEY, request.MAX_VERSION, 0, None, 1, "L", "h")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_txn_markers, "COMMITTED_PIECE", most)
        answer: Any = write_txn_markers.HANDLER.function(node, context, request)
        if isinstance(answer, CoroutineType):
            answer = finished(answer)
        else:
            answer = answer.result()
    assert encode(answer, 2) == encode(expected, 2)
    assert all(count <= most for count in cut_up.written)
    assert sum(cut_up.written) == sum(whole.written)


def finished(steps: Any) -> Any:
    """Return the value of the steps. Everything that they wait for is available."""
    return at_once(pauses_of(steps))
