"""Topics cut into pieces of so many partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.api.pieces import cut
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequestTopic


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 5))
def test_each_partition_is_in_one_piece_and_in_its_order(sizes: list[int], most: int) -> None:
    topics = [
        OffsetCommitRequestTopic(name=str(number), partitions=list(range(size)))  # type: ignore[arg-type]
        for number, size in enumerate(sizes)
    ]
    pieces = list(cut(topics, most))
    counts = [sum(len(topic.partitions) for topic in piece) for piece in pieces]
    assert all(0 < count <= most for count in counts[:-1])
    assert all(count <= most for count in counts)
    cut_up = [(topic.name, index) for piece in pieces for topic in piece for index in topic.partitions]
    assert cut_up == [(str(number), index) for number, size in enumerate(sizes) for index in range(size)]
    assert {topic.name for piece in pieces for topic in piece} == {topic.name for topic in topics}
    assert [len(topic.partitions) for topic in topics] == sizes or len(pieces) > 1
