"""The plain forms of Fetch have the bytes, messages and errors of the generated codecs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.wire import codec, plain_fetch
from kafkacompat.wire.errors import EncodeError, WireError
from kafkacompat.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kafkacompat.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kafkacompat.wire.plain_fetch import request_encoder, response_decoder, response_parts_encoder

REQUESTS = range(15, 19)
RESPONSES = range(13, 19)


class Slice:
    """Has a length, as a slice of a file, and is not bytes-like."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def generated(make: Any, cls: Any, version: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_fetch, "FIRST_REQUEST_VERSION", 99)
        patch.setattr(plain_fetch, "FIRST_RESPONSE_VERSION", 99)
        return make.__wrapped__(cls, version)


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (EncodeError, WireError) as error:
        return type(error), str(error)


def refusing(*_: Any) -> Any:
    raise AssertionError("not taken for plain")


def rarely(usual: Any, *others: Any) -> Any:
    return st.one_of(*[st.just(usual)] * 6, *others)


int16, int32, int64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
an_id = st.one_of(st.binary(min_size=16, max_size=16), rarely(bytes(16), st.binary(max_size=20)))
some_records = st.one_of(
    st.integers(0, 400).map(bytes),
    st.sampled_from([126, 127, 1024, 1025, 16_382, 16_383, 16_384, 40_000]).map(bytes),
    st.sampled_from([0, 1, 126, 127, 3_000, 16_382, 16_383, 2_000_000]).map(Slice),
    st.just(memoryview(b"records")),
    st.none(),
)
an_answer = st.builds(
    PartitionData,
    partition_index=int32,
    error_code=rarely(0, int16, st.just("no number")),
    high_watermark=st.one_of(int64, rarely(0, st.just(1 << 63))),
    last_stable_offset=int64,
    log_start_offset=int64,
    diverging_epoch=rarely(None, st.just(EpochEndOffset()), st.just(EpochEndOffset(epoch=1, end_offset=2))),
    current_leader=rarely(None, st.just(LeaderIdAndEpoch(leader_id=1, leader_epoch=2))),
    snapshot_id=rarely(None, st.just(SnapshotId(end_offset=1, epoch=2))),
    aborted_transactions=st.sampled_from([None, None, [], [AbortedTransaction(producer_id=1)]]),
    preferred_read_replica=rarely(-1, int32),
    records=some_records,
)


def some(element: Any) -> Any:
    return st.one_of(
        *[st.lists(element, min_size=1, max_size=1)] * 4, st.just([]), st.lists(element, max_size=3)
    )


a_response = st.builds(
    FetchResponse,
    throttle_time_ms=rarely(0, int32),
    error_code=rarely(0, int16),
    session_id=int32,
    responses=some(st.builds(FetchableTopicResponse, topic_id=an_id, partitions=some(an_answer))),
    node_endpoints=rarely([], st.just([NodeEndpoint(node_id=1, host="h")])),
)
a_partition = st.builds(
    FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=st.one_of(int64, rarely(0, st.just(1 << 63))),
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=rarely(1 << 20, int32),
    replica_directory_id=rarely(bytes(16), st.just(b"d" * 16)),
    high_watermark=rarely(FetchPartition().high_watermark, int64),
)
a_request = st.builds(
    FetchRequest,
    cluster_id=rarely(None, st.just("c")),
    replica_id=rarely(-1, int32),
    replica_state=st.one_of(
        st.builds(ReplicaState, replica_id=int32, replica_epoch=int64),
        st.just(ReplicaState()),
        rarely(None, st.builds(ReplicaState, replica_id=st.just(1 << 31))),
    ),
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=rarely(0, st.integers(-129, 128)),
    session_id=int32,
    session_epoch=int32,
    topics=some(st.builds(FetchTopic, topic_id=an_id, partitions=some(a_partition))),
    forgotten_topics_data=rarely([], st.just([ForgottenTopic(partitions=[1])])),
    rack_id=rarely("", st.just("r")),
)


@settings(max_examples=400, deadline=None)
@given(a_request, st.sampled_from(REQUESTS))
def test_requests_are_encoded_the_same(request: FetchRequest, version: int) -> None:
    seen = []
    for encode in (codec.encoder(FetchRequest, version), generated(codec.encoder, FetchRequest, version)):
        out = bytearray(b"header")
        seen.append(outcome(lambda encode=encode, out=out: (encode(request, out), bytes(out))))
    assert seen[0] == seen[1]


@settings(max_examples=400, deadline=None)
@given(a_response, st.sampled_from(RESPONSES))
def test_responses_are_encoded_and_decoded_the_same(response: FetchResponse, version: int) -> None:
    seen = []
    for encode in (
        codec.parts_encoder(FetchResponse, version),
        generated(codec.parts_encoder, FetchResponse, version),
    ):
        parts: list[Any] = []
        out = bytearray(b"header")
        seen.append(
            outcome(lambda encode=encode, out=out, parts=parts: [*parts, encode(response, out, parts)])
        )
        seen.append(parts)
    assert seen[:2] == seen[2:]
    if isinstance(seen[0], tuple):
        return
    whole = b"".join(
        bytes(len(each)) if isinstance(each, Slice) else each for each in [*seen[1], seen[0][-1]]
    )
    ways = codec.decoder(FetchResponse, version), generated(codec.decoder, FetchResponse, version)
    for data in (whole, bytearray(whole), memoryview(whole + b"more"), whole[: len(whole) * 2 // 3]):
        told = [outcome(lambda decode=decode, data=data: decode(data, len(b"header"))) for decode in ways]
        assert told[0] == told[1]


def plain_response(size: int) -> FetchResponse:
    one = PartitionData(partition_index=7, high_watermark=9, aborted_transactions=None, records=b"r" * size)
    return FetchResponse(
        session_id=5, responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[one])]
    )


@pytest.mark.parametrize("size", [0, 130])
def test_a_response_that_differs_in_a_byte_is_decoded_the_same(size: int) -> None:
    body = bytearray(codec.encode(plain_response(size), 18))
    ways = codec.decoder(FetchResponse, 18), generated(codec.decoder, FetchResponse, 18)
    for position, was in enumerate(body):
        for changed in {was ^ 1, was ^ 128, was ^ 255, (was + 1) % 256}:
            body[position] = changed
            told = [outcome(lambda decode=decode: decode(body, 0)) for decode in ways]
            assert told[0] == told[1], (position, changed)
        body[position] = was
    for end in range(len(body)):
        told = [outcome(lambda decode=decode, end=end: decode(body[:end], 0)) for decode in ways]
        assert told[0] == told[1], end


@pytest.mark.parametrize("size", [0, 1, 126, 127, 1024, 1025, 16_382])
def test_what_a_follower_mostly_gets_is_plain(size: int) -> None:
    response = plain_response(size)
    parts: list[Any] = []
    rest = response_parts_encoder(refusing)(response, bytearray(), parts)
    data = b"".join([*parts, rest])
    assert data == codec.encode(response, 18)
    assert response_decoder(refusing)(data, 0) == (response, len(data))


@pytest.mark.parametrize("names_one", [True, False])
def test_what_a_follower_mostly_sends_is_plain(names_one: bool) -> None:
    topics = [FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition(fetch_offset=8)])]
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=30), topics=topics if names_one else []
    )
    out = bytearray()
    request_encoder(refusing)(request, out)
    assert codec.decode(FetchRequest, 18, out) == request
