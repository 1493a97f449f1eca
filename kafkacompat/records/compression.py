"""The four codecs in the framings that clients send and Kafka writes.

Duty: compress a batch's body and open one, never beyond a bound. Must not know: records. Codec numbers are the low three
bits of a batch's attributes. Libraries are loaded with the first batch that needs them.
gzip: RFC 1952, members one after another. snappy: xerial's stream, or one bare block. lz4: the frame format.
zstd: frames one after another. Follows KIP-110 and KIP-390.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_OF_SETTING = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Values of compression.type; 'producer' is none of them."""
DECOMPRESSED_BOUND = 256 * 1024 * 1024
"""Bytes a batch's body may unfold to. Frames are at most 100 MiB by default, so honest batches stay far below."""
GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL = -1, 9, 3
LZ4_FAST = 0

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_BEST_RATIO = 32
"""More than the format can reach (64 bytes from a copy of 3), so a promise beyond it is a lie told before any memory is given."""
_INT32 = struct.Struct(">i")
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BEST_RATIO = 256
"""More than the format can reach (255 bytes from one of a long match's length)."""


class DecompressionFailed(ValueError):
    """Bytes that the named codec cannot open, or a codec that does not exist."""


class DecompressedTooLarge(DecompressionFailed):
    """The body unfolds beyond the bound."""


def compress(codec: int, body: Buffer, level: int | None = None) -> bytes:
    """A body compressed as Kafka's broker would write it; level None is Kafka's default of that codec."""
    if codec == NONE:
        return bytes(body)
    if codec == GZIP:
        import zlib

        gzip = zlib.compressobj(GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
        return gzip.compress(body) + gzip.flush()
    if codec == SNAPPY:
        return _compress_xerial(body)
    if codec == LZ4:
        import lz4.frame

        compressed: bytes = lz4.frame.compress(
            body,
            # Kafka takes its default level to mean the fast compressor, which knows no levels, and any other the high one.
            compression_level=LZ4_FAST if level is None or level == LZ4_LEVEL else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return compressed
    if codec == ZSTD:
        import zstandard

        # Java writes frames without the content size, since it compresses as a stream.
        compressor = zstandard.ZstdCompressor(
            level=ZSTD_LEVEL if level is None else level, write_content_size=False
        )
        return compressor.compress(body)
    raise ValueError(f"no codec has the number {codec}")


def decompress(codec: int, body: Buffer, bound: int = DECOMPRESSED_BOUND) -> bytes:
    """The body as it was. Raises DecompressionFailed, or its subclass DecompressedTooLarge beyond `bound` bytes."""
    if codec == NONE:
        return bytes(body)
    opener = _OPENERS.get(codec)
    if opener is None:
        raise DecompressionFailed(f"no codec has the number {codec}")
    return opener(body, bound)


def _decompress_gzip(body: Buffer, bound: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    total, rest = 0, bytes(body)
    try:
        while rest:
            member = zlib.decompressobj(31)
            part = member.decompress(rest, bound - total + 1)
            total += len(part)
            if total > bound:
                raise DecompressedTooLarge(f"a gzip body unfolds beyond {bound} bytes")
            if not member.eof:
                raise DecompressionFailed("a gzip body ends too early")
            parts.append(part)
            # What follows a member and does not begin another is padding, as Java's reader has it.
            rest = member.unused_data if member.unused_data[:2] == b"\x1f\x8b" else b""
    except zlib.error as error:
        raise DecompressionFailed(str(error)) from error
    if not parts:
        raise DecompressionFailed("an empty gzip body")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_lz4(body: Buffer, bound: int) -> bytes:
    import lz4.frame

    parts: list[bytes] = []
    total, rest = 0, bytes(body)
    try:
        while rest:
            frame = lz4.frame.LZ4FrameDecompressor()
            # It takes as much memory as it is allowed to fill, and taking 256 MiB takes longer than the rest.
            part = frame.decompress(rest, min(bound - total, _LZ4_BEST_RATIO * len(rest)) + 1)
            total += len(part)
            if total > bound:
                raise DecompressedTooLarge(f"an lz4 body unfolds beyond {bound} bytes")
            if not frame.eof:
                raise DecompressionFailed("an lz4 body ends too early")
            parts.append(part)
            unused = frame.unused_data or b""
            rest = unused if unused[:4] == _LZ4_MAGIC else b""
    except RuntimeError as error:
        raise DecompressionFailed(str(error)) from error
    if not parts:
        raise DecompressionFailed("an empty lz4 body")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(body: Buffer, bound: int) -> bytes:
    import zstandard

    out = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(bytes(body), read_across_frames=True) as reader:
            while chunk := reader.read(min(1 << 20, bound + 1 - len(out))):
                out += chunk
                if len(out) > bound:
                    raise DecompressedTooLarge(f"a zstd body unfolds beyond {bound} bytes")
    except zstandard.ZstdError as error:
        raise DecompressionFailed(str(error)) from error
    return bytes(out)


def _compress_xerial(body: Buffer) -> bytes:
    import snappy

    out = bytearray(_XERIAL_HEADER)
    view = memoryview(body)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(body: Buffer, bound: int) -> bytes:
    data = bytes(body)
    if not data.startswith(_XERIAL_MAGIC):
        return _open_snappy_block(data, bound)
    parts: list[bytes] = []
    position, total = len(_XERIAL_HEADER), 0
    if len(data) < position:
        raise DecompressionFailed("a snappy stream shorter than its header")
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):
            # Streams may follow one another, as Java's reader allows.
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(data):
            raise DecompressionFailed("a snappy stream ends within a block's length")
        size = _INT32.unpack_from(data, position)[0]
        position += 4
        if size < 0 or size > len(data) - position:
            raise DecompressionFailed(f"a snappy block of {size} bytes where {len(data) - position} remain")
        part = _open_snappy_block(data[position : position + size], bound - total)
        total += len(part)
        parts.append(part)
        position += size
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _open_snappy_block(block: bytes, bound: int) -> bytes:
    import snappy

    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise DecompressionFailed("a snappy block without a length")
    if length > bound:
        raise DecompressedTooLarge(f"a snappy body unfolds beyond {bound} bytes")
    if length > _SNAPPY_BEST_RATIO * len(block):
        raise DecompressionFailed(f"a snappy block of {len(block)} bytes that promises {length}")
    try:
        opened: bytes = snappy.uncompress(block)
    except Exception as error:
        # The library's own error type depends on its release; whatever it raises here is about the block.
        raise DecompressionFailed(str(error)) from error
    return opened


_OPENERS: dict[int, Callable[[Buffer, int], bytes]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
