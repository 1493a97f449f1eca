"""Frames and headers: bounds, leniency, and that no byte given out is ever changed."""

import random

import pytest

from kafkacompat.wire.apis import APIS, ApiKey, request_class
from kafkacompat.wire.codec import decoder
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.frames import (
    FrameReader,
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_bytes,
)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_went_in_and_stay_as_they_are(seed: int) -> None:
    rng = random.Random(seed)
    sent = [rng.randbytes(rng.choice([1, 3, 100, 4000, 70000])) for _ in range(80)]
    stream = b"".join(framed(payload) for payload in sent)
    reader = FrameReader(max_frame_bytes=100_000, initial_bytes=rng.choice([4, 1000, 65536]))
    seen: list[bytes] = []
    held: list[tuple[int, memoryview]] = []
    position = 0
    while position < len(stream):
        space = reader.space()
        count = min(len(space), rng.choice([1, 7, 5000, 100_000]), len(stream) - position)
        assert count
        space[:count] = stream[position : position + count]
        del space
        reader.received(count)
        position += count
        while (frame := reader.next_frame()) is not None:
            seen.append(bytes(frame))
            if rng.random() < 0.1:
                held.append((len(seen) - 1, frame))
    assert seen == sent
    assert reader.unread_bytes == 0
    assert held
    assert all(bytes(frame) == sent[index] for index, frame in held)


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), 1001, (1 << 31) - 1])
def test_bad_sizes_are_refused(size: int) -> None:
    """Zero, negative and oversized frames end the connection."""
    reader = FrameReader(max_frame_bytes=1000)
    reader.feed(size.to_bytes(4, "big", signed=True))
    with pytest.raises(WireError):
        reader.next_frame()
    with pytest.raises(WireError):
        reader.space()


def test_the_largest_frame_is_taken() -> None:
    reader = FrameReader(max_frame_bytes=1000)
    reader.feed(framed(b"x" * 1000))
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame) == 1000


def test_a_claimed_size_costs_nothing_until_it_is_sent() -> None:
    reader = FrameReader(max_frame_bytes=1 << 30, initial_bytes=1024)
    reader.feed((1 << 30).to_bytes(4, "big") + b"abc")
    assert len(reader.space()) <= 1024


def test_a_frame_is_a_view_of_what_was_received() -> None:
    reader = FrameReader(max_frame_bytes=1000)
    space = reader.space()
    space[:5] = framed(b"a")
    buffer = space.obj
    del space
    reader.received(5)
    frame = reader.next_frame()
    assert frame is not None
    assert frame.obj is buffer


def test_every_header_is_read_as_written() -> None:
    """Client ids keep 16-bit lengths in flexible headers and may be null."""
    for api in APIS.values():
        for version in range(api.oldest, api.latest + 1):
            for client_id in (None, "", "client", "ü" * 100):
                data = request_header_bytes(api.key, version, -7, client_id)
                header = parse_request_header(data)
                assert (header.api_key, header.api_version) == (api.key, version)
                assert (header.correlation_id, header.client_id) == (-7, client_id)
                assert header.body_offset == len(data)
            reply = response_header_bytes(api.key, version, -7)
            assert parse_response_header(reply, api.key, version) == (-7, len(reply))


def test_api_versions_replies_have_the_oldest_header() -> None:
    """Also version 3 and 4, whose bodies are flexible."""
    for version in range(5):
        assert response_header_bytes(ApiKey.API_VERSIONS, version, 5) == b"\0\0\0\5"
    assert response_header_bytes(ApiKey.METADATA, 9, 5) == b"\0\0\0\5\0"


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\5ab", b"\xff\xff\0", b"\0\1a\xff\xff", b"\0\1a\0rest"])
def test_api_versions_from_the_future_has_a_header(rest: bytes) -> None:
    """It must be answered, so only its first eight bytes are needed."""
    header = parse_request_header(b"\0\x12\0\x63\0\0\0\x2a" + rest)
    assert (header.api_key, header.api_version, header.correlation_id) == (18, 99, 42)


def test_an_unknown_api_has_a_header() -> None:
    header = parse_request_header(b"\x03\xe7\0\1\0\0\0\x2a\xff")
    assert (header.api_key, header.api_version, header.client_id, header.body_offset) == (999, 1, None, 8)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\1\0\0\0",
        b"\0\3\0\1\0\0\0\1",
        b"\0\3\0\1\0\0\0\1\0\5abc",
        b"\0\3\0\1\0\0\0\1\xff\xfe",
        b"\0\3\0\1\0\0\0\1\0\1\xff",
        b"\0\3\0\x0d\0\0\0\1\0\1a",
        b"\0\3\0\x0d\0\0\0\1\0\1a\1\0\5abc",
    ],
)
def test_broken_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        parse_request_header(frame)


def test_tags_in_a_header_are_skipped() -> None:
    """An unknown tagged field before the body."""
    header = parse_request_header(b"\0\3\0\x0d\0\0\0\1\0\1a\1\x63\3abcBODY")
    assert header.body_offset == 17


def test_no_bytes_whatever_raise_anything_else() -> None:
    """Random and mangled streams: frames, headers and bodies fail with WireError or not at all."""
    rng = random.Random(2025)
    decoded = refused = 0
    keys = [api.key for api in APIS.values() if api.latest >= 0]
    for _ in range(12_000):
        key = rng.choice(keys)
        version = rng.randint(APIS[key].oldest, APIS[key].latest)
        body = bytes(
            rng.choice([0, 0, 1, 2, 3, 255, 128, rng.randrange(256)]) for _ in range(rng.randrange(60))
        )
        data = bytes(request_header_bytes(key, version, 1, "c")) + body
        if rng.random() < 0.2:
            data = rng.randbytes(rng.randrange(40))
        reader = FrameReader(max_frame_bytes=1000)
        try:
            reader.feed(framed(data))
            frame = reader.next_frame()
            assert frame is not None
            header = parse_request_header(frame)
            api = APIS.get(header.api_key)
            if api is None or not api.oldest <= header.api_version <= api.latest:
                continue
            decoder(request_class(header.api_key), header.api_version)(frame, header.body_offset)
            decoded += 1
        except WireError:
            refused += 1
    assert decoded > 500
    assert refused > 500
