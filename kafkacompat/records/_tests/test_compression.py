"""The four codecs: round trips, the framings of other clients, damage, and bodies that expand without end."""

from __future__ import annotations

import gzip
import struct
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.ports.passing import SHORTAGES
from kafkacompat.records import compression
from kafkacompat.records.compression import (
    DecompressedTooLarge,
    DecompressionFailed,
    compress,
    decompress,
)

CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]
TEXT = b"the quick brown fox " * 9000


@pytest.mark.parametrize("codec", [compression.NONE, *CODECS])
@given(body=st.binary(max_size=200))
@settings(max_examples=30)
def test_round_trip(codec: int, body: bytes) -> None:
    assert decompress(codec, compress(codec, body)) == body or (codec == compression.SNAPPY and not body)


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
    for work in (lambda: compress(codec, b"x"), lambda: decompress(codec, packed)):
        with pytest.raises(OSError, match="cannot be imported") as told:
            work()
        assert told.value.errno in SHORTAGES
