"""The computed size of a fetch response is that of the encoded response, in every version."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.partition.fetch_session import PREFIX_BYTES, response_size, response_size_in_steps
from kafkacompat.tasks import at_once
from kafkacompat.wire._tests.arbitrary import Arbitrary
from kafkacompat.wire.codec import encode_parts, specification
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

VERSIONS = range(FetchResponse.MIN_VERSION, FetchResponse.MAX_VERSION + 1)
COUNTS = st.sampled_from([0, 1, 2, 126, 127, 128])
RECORDS = st.sampled_from([0, 1, 126, 127, 128, 16_381, 16_382, 16_383, 70_000])


PARTITION = next(each for each in specification(FetchResponse).structs if each.name == PartitionData.__name__)


@st.composite
def partitions(draw: st.DrawFn, version: int) -> PartitionData:
    """With any of the fields that the version has."""
    seed = draw(st.integers(0, 1_000))
    answer: PartitionData = Arbitrary(Random(seed), FetchResponse, version).struct(PARTITION)
    answer.records = bytes(draw(RECORDS))
    if draw(st.booleans()):
        answer.aborted_transactions = draw(
            st.sampled_from([None, [], [AbortedTransaction()], [AbortedTransaction()] * 130])
        )
    return answer


@st.composite
def topics(draw: st.DrawFn, version: int) -> list[FetchableTopicResponse]:
    """Neighbours have different names and ids."""
    names = draw(st.lists(st.sampled_from(["", "t", "ü" * 63, "x" * 126, "x" * 127, "y" * 249]), max_size=3))
    return [
        FetchableTopicResponse(
            topic=name,
            topic_id=bytes([number + 1]) * 16,
            partitions=draw(st.lists(partitions(version), min_size=1, max_size=3)),
        )
        for number, name in enumerate(names)
    ]


def asked_and_answered(response: list[FetchableTopicResponse]) -> list[tuple[Any, PartitionData]]:
    return [
        (SimpleNamespace(topic=topic.topic, topic_id=topic.topic_id), one)
        for topic in response
        for one in topic.partitions
    ]


def encoded_size(response: list[FetchableTopicResponse], version: int) -> int:
    return PREFIX_BYTES + sum(map(len, encode_parts(FetchResponse(responses=response), version)))


WITHOUT_SESSION: Any = SimpleNamespace(session=None)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_the_size_is_that_of_the_encoded_response(version: int, data: st.DataObject) -> None:
    response = data.draw(topics(version))
    parameters: Any = SimpleNamespace(version=version)
    answers = asked_and_answered(response)
    expected = encoded_size(response, version)
    assert response_size(WITHOUT_SESSION, parameters, answers) == expected
    assert at_once(response_size_in_steps(WITHOUT_SESSION, parameters, answers, 100)) == expected


@pytest.mark.parametrize("version", [11, 12, 13, 18])
@pytest.mark.parametrize("count", [1, 126, 127, 128, 300])
def test_the_size_of_many(version: int, count: int) -> None:
    """Arrays whose lengths take more than one byte."""
    parameters: Any = SimpleNamespace(version=version)
    many_topics = [
        FetchableTopicResponse(
            topic=f"{number}",
            topic_id=number.to_bytes(16, "big"),
            partitions=[PartitionData(records=b"")],
        )
        for number in range(1, count + 1)
    ]
    one_topic = [FetchableTopicResponse(topic="t", partitions=[PartitionData(records=b"")] * count)]
    for response in (many_topics, one_topic):
        found = response_size(WITHOUT_SESSION, parameters, asked_and_answered(response))
        assert found == encoded_size(response, version)


@pytest.mark.parametrize("version", [11, 12, 13])
def test_the_size_in_a_session_is_of_what_the_client_is_told(version: int) -> None:
    parameters: Any = SimpleNamespace(version=version)
    context: Any = SimpleNamespace(session=object())
    news = PartitionData(records=b"x" * 10)
    answers = [
        (SimpleNamespace(topic="t", topic_id=bytes(16), must_tell=lambda one, remember: one is news), one)
        for one in (PartitionData(records=b""), news, PartitionData(records=b""))
    ]
    expected = encoded_size([FetchableTopicResponse(topic="t", partitions=[news])], version)
    assert response_size(context, parameters, answers) == expected
