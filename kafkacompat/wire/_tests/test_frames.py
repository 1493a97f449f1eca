"""Requests and headers: bounds and leniency."""

import random

import pytest

from kafkacompat.wire.apis import APIS, ApiKey, request_class
from kafkacompat.wire.codec import decode, decoder
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import (
    parse_request_header,
    parse_response_header,
    request_frame,
    request_header_bytes,
    response_header_bytes,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest


def test_a_request_has_its_size_its_header_and_its_body() -> None:
    frame = request_frame(MetadataRequest(), 12, 7, "client")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = parse_request_header(frame[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (ApiKey.METADATA, 12, 7)
    assert decode(MetadataRequest, 12, frame[4:], header.body_offset) == MetadataRequest()


def test_every_header_is_read_as_written() -> None:
    """Client ids have 16-bit lengths also in flexible headers, and may be null."""
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
    """Also in versions 3 and 4, whose bodies are flexible."""
    for version in range(5):
        assert response_header_bytes(ApiKey.API_VERSIONS, version, 5) == b"\0\0\0\5"
    assert response_header_bytes(ApiKey.METADATA, 9, 5) == b"\0\0\0\5\0"


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\5ab", b"\xff\xff\0", b"\0\1a\xff\xff", b"\0\1a\0rest"])
def test_api_versions_from_the_future_has_a_header(rest: bytes) -> None:
    """It must be answered, so only its first eight bytes are required."""
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
    """Random and corrupted requests: headers and bodies raise WireError or nothing."""
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
        try:
            header = parse_request_header(data)
            api = APIS.get(header.api_key)
            if api is None or not api.oldest <= header.api_version <= api.latest:
                continue
            decoder(request_class(header.api_key), header.api_version)(data, header.body_offset)
            decoded += 1
        except WireError:
            refused += 1
    assert decoded > 500
    assert refused > 500
