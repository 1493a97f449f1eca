"""Topics cut into pieces of so many partitions."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.api import offset_commit, offset_delete, txn_offset_commit
from kafkacompat.api.context import RequestContext
from kafkacompat.api.pieces import PIECE, cut
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
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
    assert all(0 < len(piece) <= most for piece in pieces)  # also of topics without partitions
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
    assert isinstance(module.HANDLER.function(nothing_done_yet, context, asked), GeneratorType)
