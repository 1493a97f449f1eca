"""The four codecs: round trips, the framings of other clients, damage, and bodies that expand without end."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.config import ConfigError
from kafkacompat.config.keys import broker_keys, parse_value, topic_keys
from kafkacompat.config.server import COMPRESSION_CODEC_COUNT
from kafkacompat.ports.passing import SHORTAGES
from kafkacompat.records import compression
from kafkacompat.records.compression import (
    DecompressedTooLarge,
    DecompressionFailed,
    compress,
    decompress,
)
from kafkacompat.telemetry.client_metrics_manager import ACCEPTED_CODECS, NO_CODEC

CODECS = [*range(1, len(compression.CODEC_NAMES))]
TEXT = b"the quick brown fox " * 9000


@pytest.mark.parametrize("codec", [compression.NONE, *CODECS])
@given(body=st.binary(max_size=200))
@settings(max_examples=30)
def test_round_trip(codec: int, body: bytes) -> None:
    assert decompress(codec, compress(codec, body)) == body or (codec == compression.SNAPPY and not body)


def test_settings_and_telemetry_know_each_codec() -> None:
    for keys in (broker_keys(), topic_keys()):
        with pytest.raises(ConfigError) as refused:
            parse_value(keys["compression.type"], "none")
        named = str(refused.value).rpartition(": ")[2].split(", ")
        # A name that only the setting has would leave batches as they are.
        assert {*named} == {*compression.CODEC_OF_SETTING, "producer"}
    assert len(compression.CODEC_NAMES) == COMPRESSION_CODEC_COUNT
    assert {*ACCEPTED_CODECS} == {*CODECS}
    assert NO_CODEC == compression.NONE
    assert {*compression.UNPACKING_COST} == {*CODECS}


@pytest.mark.parametrize("codec", CODECS)
def test_large_bodies_and_levels(codec: int) -> None:
    for level in (None, 1, 9):
        assert decompress(codec, memoryview(compress(codec, TEXT, level))) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_beyond_the_bound_is_refused_before_it_unfolds(codec: int) -> None:
    bomb = compress(codec, bytes(10_000_000))
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, 1_000_000)
    assert len(decompress(codec, bomb, 10_000_000)) == 10_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_fails(codec: int) -> None:
    with pytest.raises(DecompressionFailed):
        decompress(codec, b"\x99" * 100)


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4])
def test_a_cut_body_fails(codec: int) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(DecompressionFailed):
        decompress(codec, packed[:-7])


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_fail(codec: int) -> None:
    with pytest.raises(DecompressionFailed):
        decompress(codec, b"abc")


def test_bare_snappy_block_is_read() -> None:
    """Clients other than Java's send a block without the xerial header."""
    assert decompress(compression.SNAPPY, snappy.compress(TEXT)) == TEXT


def test_xerial_framing_is_javas() -> None:
    packed = compress(compression.SNAPPY, TEXT)
    assert packed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    first = struct.unpack_from(">i", packed, 16)[0]
    assert snappy.uncompress(packed[20 : 20 + first]) == TEXT[: 32 * 1024]


def test_a_snappy_block_that_lies_about_its_size() -> None:
    with pytest.raises(DecompressionFailed):
        decompress(compression.SNAPPY, b"\xff\xff\xff\x7f" + b"\x00" * 10)


def test_several_gzip_members_zstd_frames_and_lz4_frames() -> None:
    assert decompress(compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"
    frames = zstandard.compress(b"one") + zstandard.compress(b"two")
    assert decompress(compression.ZSTD, frames) == b"onetwo"
    assert decompress(compression.LZ4, lz4.frame.compress(b"one") + lz4.frame.compress(b"two")) == b"onetwo"


def test_gzip_is_rfc_1952() -> None:
    packed = compress(compression.GZIP, TEXT)
    assert packed[:3] == b"\x1f\x8b\x08"
    assert zlib.decompress(packed, 31) == TEXT


def test_lz4_opens_what_folds_best() -> None:
    body = bytes(40_000_000)
    packed = lz4.frame.compress(body, compression_level=12, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    assert len(body) / len(packed) > 250
    assert decompress(compression.LZ4, packed) == body


def test_lz4s_default_level_is_the_fast_compressor() -> None:
    """As in Kafka, whose high compressor takes five times as long to save three per cent."""
    body = b" ".join(b"%d" % (number * number) for number in range(5000))
    assert compress(compression.LZ4, body) == compress(compression.LZ4, body, compression.LZ4_LEVEL)
    assert len(compress(compression.LZ4, body, 8)) < len(compress(compression.LZ4, body))


def test_lz4_frames_as_java_writes_them() -> None:
    packed = compress(compression.LZ4, TEXT)
    flags, block = packed[4], packed[5]
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert flags == 0x60, "version 1, independent blocks, no checksums, no content size"
    assert block == 0x40, "blocks of 64 KiB"


@pytest.mark.parametrize("codec", [compression.SNAPPY, compression.LZ4, compression.ZSTD])
@pytest.mark.parametrize("refusal", [ImportError("its file is away"), OSError(24, "no descriptor is left")])
def test_a_library_that_cannot_be_loaded_now_is_no_fault_of_the_body(
    codec: int, refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor of the disk: of all errors of the system, a lack of descriptors passes."""
    packed = compress(codec, bytes(200_000))

    def imported(name: str) -> object:
        raise refusal

    monkeypatch.setattr(compression, "import_module", imported)
    monkeypatch.setattr(compression, "_libraries", {})
    for work in (lambda: compress(codec, b"x"), lambda: decompress(codec, packed)):
        with pytest.raises(OSError, match="cannot be imported") as told:
            work()
        assert told.value.errno in SHORTAGES


BODIES = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 9), st.integers(0, 200_000)
    ),
    st.builds(lambda word, count: (word + b" ") * count, st.binary(max_size=9), st.integers(0, 20_000)),
)
LZ4_OPTIONS = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([4, 5, 6, 7]),
        "block_linked": st.booleans(),
        "content_checksum": st.booleans(),
        "block_checksum": st.booleans(),
        "store_size": st.booleans(),
    }
)
BOUNDS = st.sampled_from([0, 1, 1000, 65_535, 65_536, 65_537, 131_072, 300_000, 1 << 21, 1 << 28])


@st.composite
def lz4_bodies(draw: st.DrawFn) -> bytes:
    return lz4.frame.compress(draw(BODIES), **draw(LZ4_OPTIONS))


@st.composite
def zstd_bodies(draw: st.DrawFn) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=draw(st.sampled_from([1, 3, 19])),
        window_log=draw(st.sampled_from([10, 17, 21, 24])),
        write_content_size=draw(st.booleans()),
        write_checksum=draw(st.booleans()),
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    if draw(st.booleans()):
        return compressor.compress(draw(BODIES))
    stream = compressor.compressobj()
    return stream.compress(draw(BODIES)) + stream.flush()


def in_pieces(codec: int, body: bytes, bound: int) -> bytes | type[Exception]:
    unpacking = None
    try:
        unpacking = compression.Unpacking(codec, body, bound, compression.FRAMES_MAX)
        assert unpacking.go_on(1 << 62)
    except DecompressionFailed as error:
        return type(error)
    return bytes(unpacking.body)


def at_once(codec: int, body: bytes, bound: int) -> bytes | type[Exception]:
    try:
        return decompress(codec, memoryview(body), bound)
    except DecompressionFailed as error:
        return type(error)


@pytest.mark.parametrize(
    ("codec", "bodies"),
    [(compression.LZ4, lz4_bodies()), (compression.ZSTD, zstd_bodies())],
    ids=["lz4", "zstd"],
)
@given(data=st.data(), bound=BOUNDS)
@settings(max_examples=300, deadline=None)
def test_one_call_and_pieces_agree(
    codec: int, bodies: st.SearchStrategy[bytes], data: st.DataObject, bound: int
) -> None:
    """On sound bodies, several in sequence, cut ones, and ones with changed bytes, most of them in a header."""
    body = bytearray(data.draw(bodies))
    change = data.draw(st.sampled_from(["nothing", "cut", "more", "another", "header", "bytes", "hostile"]))
    if change == "cut":
        del body[data.draw(st.integers(0, len(body))) :]
    elif change == "more":
        body += data.draw(st.binary(min_size=1, max_size=9))
    elif change == "another":
        body += data.draw(bodies)
    elif change == "header":
        body[data.draw(st.integers(0, min(20, len(body) - 1)))] = data.draw(st.integers(0, 255))
    elif change == "bytes":
        for _ in range(data.draw(st.integers(1, 4))):
            body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif change == "hostile":
        body = body[: data.draw(st.integers(0, 30))] + data.draw(st.binary(max_size=60))
    assert at_once(codec, bytes(body), bound) == in_pieces(codec, bytes(body), bound)


@pytest.mark.parametrize("codec", [compression.LZ4, compression.ZSTD])
def test_usual_bodies_are_opened_in_one_call(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(codec, TEXT)
    monkeypatch.setattr(compression, "Unpacking", None)
    assert decompress(codec, packed) == TEXT


def lz4_header(flags: int, sizes: int, rest: bytes = b"") -> bytes:
    """A frame's header with a right checksum. The library of the checksum is not here, but 256 values are few."""
    for checksum in range(256):
        header = b"\x04\x22\x4d\x18" + bytes([flags, sizes]) + rest + bytes([checksum])
        try:
            lz4.frame.get_frame_info(header)
        except RuntimeError:
            continue
        return header
    raise AssertionError("no checksum fits")


@given(
    flags=st.sampled_from([0x40, 0x60, 0x50, 0x44, 0x74, 0x48, 0x7C]),
    sizes=st.sampled_from([0x40, 0x50, 0x60, 0x70]),
    size=st.sampled_from([0, 1, 10, 65_536, 1 << 40, 1 << 63]),
    blocks=st.lists(
        st.one_of(
            st.binary(max_size=40).map(lambda block: struct.pack("<I", len(block) | 1 << 31) + block),
            st.binary(min_size=1, max_size=40).map(lambda block: struct.pack("<I", len(block)) + block),
            st.just(struct.pack("<I", 1 << 31)),
            st.just(struct.pack("<I", 70_000) + b"\x1f\x00\x01\x00" + b"\xff" * 69_900 + bytes(96)),
            st.binary(min_size=4, max_size=8),
        ),
        max_size=4,
    ),
    end=st.sampled_from([bytes(4), bytes(8), b"", bytes(9)]),
    bound=BOUNDS,
)
@settings(max_examples=300, deadline=None)
def test_hostile_lz4_frames(
    flags: int, sizes: int, size: int, blocks: list[bytes], end: bytes, bound: int
) -> None:
    """With a sound header, so that the library reads on."""
    header = lz4_header(flags, sizes, size.to_bytes(8, "little") if flags & 8 else b"")
    body = header + b"".join(blocks) + end
    assert at_once(compression.LZ4, body, bound) == in_pieces(compression.LZ4, body, bound)


@given(
    descriptor=st.integers(0, 255),
    window=st.integers(0, 255),
    fields=st.binary(max_size=12),
    blocks=st.lists(
        st.tuples(st.booleans(), st.integers(0, 3), st.binary(max_size=30), st.integers(-1, (1 << 21) - 1)),
        max_size=4,
    ),
    end=st.binary(max_size=5),
    bound=BOUNDS,
)
@settings(max_examples=500, deadline=None)
def test_hostile_zstd_frames(
    descriptor: int,
    window: int,
    fields: bytes,
    blocks: list[tuple[bool, int, bytes, int]],
    end: bytes,
    bound: int,
) -> None:
    body = b"\x28\xb5\x2f\xfd" + bytes([descriptor, window]) + fields
    for is_last, kind, content, promised in blocks:
        size = len(content) if promised < 0 or kind != 1 else promised
        body += (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + content
    body += end
    assert at_once(compression.ZSTD, body, bound) == in_pieces(compression.ZSTD, body, bound)
