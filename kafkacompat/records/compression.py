"""The four codecs in the framings that clients send and Kafka writes.

A batch's body is compressed, or decompressed up to a bound. Codec numbers are the low three bits of a batch's
attributes. A library is loaded with the first batch that needs it, if it is not there yet.

- gzip: RFC 1952, several members in sequence.
- snappy: xerial's stream, or one bare block.
- lz4: the frame format.
- zstd: several frames in sequence.

Follows KIP-110 and KIP-390. An lz4 or zstd body whose blocks show that it stays small is decompressed in one call. Any
other body is decompressed in pieces, of which the first is usually enough, and read in slices. The libraries release
the interpreter lock while they work, but a copy of hundreds of megabytes does not. Copying the rest for every member or
frame would take quadratic time.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_OF_SETTING = {"uncompressed": NONE} | {
    CODEC_NAMES[each]: each for each in range(GZIP, len(CODEC_NAMES))
}
"""Values of compression.type, except 'producer'."""
UNPACKED_BYTES_MAX = 256 * 1024 * 1024
"""Default bound of a decompressed body, in bytes. Normal batches are far below it: by default a request has at most
100 MiB."""
FRAMES_MAX = 1000
"""Default bound of the members, frames or streams in one body. Every client writes one."""
FIRST_CHUNK_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL = -1, 9, 3
UNPACKING_COST = {GZIP: 8, SNAPPY: 1, LZ4: 1, ZSTD: 2}
"""For how many bytes of LZ4 one packed byte counts at worst. A hostile body has a table of codes every few bytes, which
takes longer to build than what it codes: 0.1 s for a megabyte with gzip."""
GZIP_PACKING_COST = 4
PIECE_BYTES = 4 * 1024 * 1024
"""Bytes that one job of a thread unpacks, so that other bodies get their turn."""
SLOW_PIECE_BYTES = 64 * 1024
FREED_AT_ONCE = 32 * 1024 * 1024
SLOW_PACKING_COST = 1 << 20
"""The same for packing with a level that searches. Bodies made for it take 5 us a byte."""
LZ4_FAST = 0
ZLIB_DEFAULT_LEVEL = 6

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_BEST_RATIO = 32
"""More than the format can reach (64 bytes from a copy of 3). A larger promised size is refused before memory is
allocated."""
_INT32 = struct.Struct(">i")
_LITTLE_UINT32 = struct.Struct("<I")
_XERIAL_BLOCK_LEAST = 256
"""Average bytes that a block of xerial's stream expands to. Its smallest block is 1 KiB, and only the last is shorter."""
_COPIED_BLOCK_MAX = 1024 * 1024
"""A snappy block that expands to more is decompressed into our own memory, so that no copy holds the interpreter."""
_GZIP_MAGIC = b"\x1f\x8b"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC_NUMBER = int.from_bytes(_LZ4_MAGIC, "little")
_LZ4_HEADER = struct.Struct("<IBB")
_LZ4_HEADER_LEAST = 7
_LZ4_CONTENT_SIZE = 0x08
_ZSTD_HEADER_MOST = 18
_ZSTD_BLOCKS_WALKED_MAX = 1000
_ZSTD_BLOCK_MOST = 128 * 1024
_ZSTD_WINDOW_KEPT_MAX = 8 * 1024 * 1024
"""A decompressor that is used again keeps a window of this size. Kafka's default level has 2 MiB."""
_SKIPPABLE_MAGIC_END = b"\x2a\x4d\x18"
_SLICE_BYTES = 1024 * 1024
_LATER_SLICE_BYTES = 4 * 1024
"""Bytes read for each member or frame after the first. What it does not use is copied."""
_LZ4_BEST_RATIO = 256
"""More than the format can reach (255 bytes from one byte of a long match's length)."""


class DecompressionFailed(ValueError):
    """The codec cannot decompress the bytes, or the codec does not exist."""


class DecompressedTooLarge(DecompressionFailed):
    """The body expands beyond the bound."""


class PackedTooLarge(Exception):
    """A compressed body is larger than the bound."""


class TooManyFrames(DecompressionFailed):
    """The body has more members, frames or blocks than the bound."""


def packing_cost(codec: int, level: int | None = None) -> int:
    """For how many bytes of a fast codec one byte counts at worst, if it is packed with this level."""
    if codec == GZIP:
        is_slow = level is not None and level > ZLIB_DEFAULT_LEVEL
        return SLOW_PACKING_COST if is_slow else GZIP_PACKING_COST
    if codec == LZ4:
        return 1 if level is None or level == LZ4_LEVEL else SLOW_PACKING_COST
    if codec == ZSTD:
        return 1 if level is None or level <= ZSTD_LEVEL else SLOW_PACKING_COST
    return 1


def packing_piece(codec: int, level: int | None) -> int:
    """Bytes that one job of a thread compresses."""
    return max(SLOW_PIECE_BYTES, PIECE_BYTES // 4 // packing_cost(codec, level))


_libraries: dict[str, Any] = {}
"""Those that were imported whole. The import system takes longer to find one than lz4 takes for a small batch."""


def library(name: str) -> Any:
    """Import the library of a codec. Raises OSError EMFILE if that is not possible now, for whatever reason: neither the
    body nor the log's directory is to blame, and whoever asks may try again."""
    found = _libraries.get(name)
    if found is None:
        try:
            found = _libraries[name] = import_module(name)
        except (ImportError, OSError) as error:
            raise OSError(errno.EMFILE, f"{name} cannot be imported: {error}") from error
    return found


def compress(codec: int, body: Buffer, level: int | None = None) -> bytes:
    """The body compressed as Kafka's broker would. Level None is Kafka's default for the codec."""
    if codec == NONE:
        return bytes(body)
    if codec == GZIP:
        import zlib

        gzip = zlib.compressobj(GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
        return gzip.compress(body) + gzip.flush()
    if codec == SNAPPY:
        return _compress_xerial(body)
    if codec == LZ4:
        frames = library("lz4.frame")
        compressed: bytes = frames.compress(
            body,
            compression_level=_lz4_level(level),
            block_size=frames.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return compressed
    if codec == ZSTD:
        zstandard = library("zstandard")
        # Java writes frames without the content size, because it compresses a stream.
        compressor = zstandard.ZstdCompressor(
            level=ZSTD_LEVEL if level is None else level, write_content_size=False
        )
        packed: bytes = compressor.compress(body)
        return packed
    raise ValueError(f"no codec has the number {codec}")


def _lz4_level(level: int | None) -> int:
    """Kafka's default level selects the fast compressor, which has no levels. Any other level selects the high one."""
    return LZ4_FAST if level is None or level == LZ4_LEVEL else level


class Packer:
    """Compresses a body that is given in parts, behind `room` free bytes. Stops as soon as the result is larger than
    `bound` bytes, and keeps no copy of the body."""

    __slots__ = ("_end", "_most", "_pack", "packed")

    def __init__(self, codec: int, level: int | None, bound: int, room: int) -> None:
        self._most = room + bound
        self._pack, self._end = _PACKERS[codec](level)
        self.packed = bytearray(room)

    def add(self, body: Buffer, start: int = 0, end: int | None = None) -> None:
        """Raises PackedTooLarge."""
        # After an error, nothing may keep the body from being freed.
        with memoryview(body)[start:end] as part:
            self._packed(self._pack(part))

    def end(self) -> None:
        """Raises PackedTooLarge."""
        self._packed(self._end())

    def _packed(self, part: bytes) -> None:
        self.packed += part
        if len(self.packed) > self._most:
            raise PackedTooLarge


def pack(codec: int, body: Buffer, level: int | None, bound: int, room: int) -> bytearray:
    """A Packer's result for a small body, from one call of the library."""
    packed = compress(codec, body, level)
    if len(packed) > bound:
        raise PackedTooLarge
    return bytearray().join((bytes(room), packed))


def free(body: bytes | bytearray) -> None:
    """Free a large body, which is not used any more, in pieces. The kernel takes 20 ms for 250 MB, in which no other
    thread runs."""
    if isinstance(body, bytearray):
        while len(body) > FREED_AT_ONCE:
            del body[len(body) // 2 - 1 :]


def decompress(
    codec: int, body: Buffer, bound: int = UNPACKED_BYTES_MAX, frames_max: int = FRAMES_MAX
) -> bytes:
    """The decompressed body. Raises DecompressionFailed, DecompressedTooLarge beyond `bound` bytes, or TooManyFrames."""
    return bytes(unpack(codec, body, bound, frames_max))


def unpack(
    codec: int, body: Buffer, bound: int = UNPACKED_BYTES_MAX, frames_max: int = FRAMES_MAX
) -> bytes | bytearray:
    """Like `decompress`, but without copying a large body in one piece, which would hold the interpreter."""
    if codec == NONE and len(body) <= FIRST_CHUNK_BYTES:
        return bytes(body)
    unpack_at_once = _AT_ONCE.get(codec)
    if unpack_at_once is not None:
        whole = unpack_at_once(memoryview(body), min(bound, FIRST_CHUNK_BYTES))
        if whole is not None:
            return whole
    unpacking = Unpacking(codec, body, bound, frames_max)
    unpacking.go_on(_ALL_AT_ONCE)
    return unpacking.body


class Unpacking:
    """Decompresses a body in pieces. A thread may do each of them. Raises like `unpack`."""

    __slots__ = ("_opener", "_unpacked")

    def __init__(self, codec: int, body: Buffer, bound: int, frames_max: int) -> None:
        opener = _OPENERS.get(codec)
        if opener is None:
            raise DecompressionFailed(f"no codec has the number {codec}")
        self._unpacked = _Unpacked(CODEC_NAMES[codec], bound, frames_max)
        self._opener = opener(memoryview(body), self._unpacked)

    @property
    def body(self) -> bytes | bytearray:
        return self._unpacked.body

    def go_on(self, most: int) -> bool:
        """Return whether the body is complete. Otherwise about as many bytes were unpacked and read as `most` allows."""
        for cost in self._opener:
            most -= cost
            if most <= 0:
                return False
        return True


def unpack_beginning(codec: int, body: Buffer, size: int) -> bytes | bytearray:
    """At least the first `size` bytes of the decompressed body, or all of a shorter one. Raises DecompressionFailed."""
    opener = _OPENERS.get(codec)
    if opener is None:
        raise DecompressionFailed(f"no codec has the number {codec}")
    unpacked = _Beginning(CODEC_NAMES[codec], size)
    with contextlib.suppress(_Enough):
        for _ in opener(memoryview(body), unpacked):
            pass
    return unpacked.body


Opener: TypeAlias = "Iterator[int]"
"""Adds a body to an _Unpacked, part by part. It yields the cost of each part: the bytes unpacked, and those read as
often as UNPACKING_COST says."""
_ALL_AT_ONCE = 1 << 62


class _Unpacked:
    """A decompressed body and its bounds."""

    __slots__ = ("body", "bound", "frames", "frames_max", "name")

    def __init__(self, name: str, bound: int, frames_max: int) -> None:
        self.name = name
        self.bound = bound
        self.frames_max = frames_max
        self.frames = 0
        self.body: bytes | bytearray = b""

    def room(self) -> int:
        """Bytes to ask for next: one more than allowed shows that there is more."""
        filled = len(self.body)
        return min(CHUNK_BYTES if filled else FIRST_CHUNK_BYTES, self.bound - filled + 1)

    def add(self, part: bytes) -> None:
        if len(self.body) + len(part) > self.bound:
            raise self.too_large()
        if not self.body:
            self.body = part
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += part

    def too_large(self) -> DecompressedTooLarge:
        return DecompressedTooLarge(f"a body in {self.name} unfolds to more than {self.bound} bytes")

    def begin_frame(self) -> None:
        self.frames += 1
        if self.frames > self.frames_max:
            raise TooManyFrames(f"a body in {self.name} consists of more than {self.frames_max} parts")


class _Enough(Exception):
    """Enough of the beginning is decompressed."""


class _Beginning(_Unpacked):
    """The beginning of a body, up to the wanted size. A snappy block is decompressed whole, within the bound."""

    __slots__ = ("wanted",)

    def __init__(self, name: str, wanted: int) -> None:
        super().__init__(name, max(FIRST_CHUNK_BYTES, wanted + CHUNK_BYTES), FRAMES_MAX)
        self.wanted = wanted

    def room(self) -> int:
        return max(self.wanted - len(self.body), 1)

    def add(self, part: bytes) -> None:
        super().add(part)
        if len(self.body) >= self.wanted:
            raise _Enough


def _copy(body: memoryview, unpacked: _Unpacked) -> Opener:
    for start in range(0, len(body), CHUNK_BYTES):
        unpacked.add(bytes(body[start : start + CHUNK_BYTES]))
        yield CHUNK_BYTES


def _unpack_gzip(body: memoryview, unpacked: _Unpacked) -> Opener:
    import zlib

    position = 0
    try:
        # Like Java's reader, treat bytes after a member that begin no other member as padding.
        while position < len(body) and (not position or body[position : position + 2] == _GZIP_MAGIC):
            unpacked.begin_frame()
            slice_bytes = _SLICE_BYTES if unpacked.frames == 1 else _LATER_SLICE_BYTES
            member = zlib.decompressobj(31)
            left = b""
            while not member.eof:
                if not left:
                    left = bytes(body[position : position + slice_bytes])
                    position += len(left)
                    slice_bytes = _SLICE_BYTES
                part = member.decompress(left, unpacked.room())
                if not left and not part:
                    raise DecompressionFailed("a gzip body ends too early")
                unpacked.add(part)
                read = len(left) - len(member.unconsumed_tail)
                left = member.unconsumed_tail
                yield len(part) + UNPACKING_COST[GZIP] * read
            position -= len(member.unused_data)
    except zlib.error as error:
        raise DecompressionFailed(str(error)) from error
    if not unpacked.frames:
        raise DecompressionFailed("an empty gzip body")


def _unpack_lz4(body: memoryview, unpacked: _Unpacked) -> Opener:
    frames = library("lz4.frame")
    position = 0
    try:
        while position < len(body) and (not position or body[position : position + 4] == _LZ4_MAGIC):
            unpacked.begin_frame()
            slice_bytes = _SLICE_BYTES if unpacked.frames == 1 else _LATER_SLICE_BYTES
            frame = frames.LZ4FrameDecompressor()
            read = 0
            while not frame.eof:
                left = b""
                if frame.needs_input:
                    left = bytes(body[position : position + slice_bytes])
                    if not left:
                        raise DecompressionFailed("an lz4 body ends too early")
                    position += len(left)
                    read += len(left)
                    slice_bytes = _SLICE_BYTES
                # The library allocates as much memory as it may fill, and the allocation can take longer than the
                # rest.
                part = frame.decompress(left, min(unpacked.room(), _LZ4_BEST_RATIO * read + 1))
                unpacked.add(part)
                yield len(part) + len(left)
            position -= len(frame.unused_data or b"")
    except RuntimeError as error:
        raise DecompressionFailed(str(error)) from error
    if not unpacked.frames:
        raise DecompressionFailed("an empty lz4 body")


def _unpack_lz4_at_once(body: memoryview, most: int) -> bytes | None:
    """The body, in a quarter of the time. None if the other way must decide: the body may expand to more than `most`
    bytes, is not exactly one frame, or is damaged."""
    end = len(body)
    if end < _LZ4_HEADER_LEAST:
        return None
    magic, flags, sizes = _LZ4_HEADER.unpack_from(body)
    if magic != _LZ4_MAGIC_NUMBER:
        return None
    position = _LZ4_HEADER_LEAST + (4 if flags & 1 else 0)
    if flags & _LZ4_CONTENT_SIZE:
        # The library allocates what the header promises.
        if int.from_bytes(body[6:14], "little") > most:
            return None
        position += 8
    block_most = 1 << 8 + 2 * (sizes >> 4 & 7)
    block_trailer = 4 if flags & 0x10 else 0
    left = most
    while position + 4 <= end:
        size = _LITTLE_UINT32.unpack_from(body, position)[0]
        position += 4
        if not size:
            if position + (4 if flags & 4 else 0) != end:
                return None
            try:
                whole: bytes = library("lz4.frame").decompress(body)
            except RuntimeError:
                return None
            return whole
        left -= block_most
        if left < 0:
            return None
        position += (size & 0x7FFFFFFF) + block_trailer
    return None


def _unpack_zstd(body: memoryview, unpacked: _Unpacked) -> Opener:
    zstandard = library("zstandard")
    try:
        if not _is_one_zstd_frame(body):
            # The library continues with the next frame by itself. In a body of normal size these bytes do not occur by
            # chance.
            unpacked.frames = _zstd_magics(body) - 1
            unpacked.begin_frame()
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            # The library allocates at once all the memory that it may fill. Most batches fit into little.
            while part := reader.read(min(unpacked.room(), 65536 + 16 * max(len(body), len(unpacked.body)))):
                unpacked.add(part)
                yield len(part)
    except zstandard.ZstdError as error:
        raise DecompressionFailed(str(error)) from error


def _zstd_magics(body: memoryview) -> int:
    """How often the beginning of a frame occurs. A slice overlaps the next one by less than such a beginning."""
    found = 0
    for start in range(0, len(body), _SLICE_BYTES):
        part = bytes(body[start : start + _SLICE_BYTES + len(_ZSTD_MAGIC) - 1])
        found += part.count(_ZSTD_MAGIC)
        found += part[: _SLICE_BYTES + len(_SKIPPABLE_MAGIC_END) - 1].count(_SKIPPABLE_MAGIC_END)
    return found


def _is_one_zstd_frame(packed: memoryview) -> bool:
    """Whether the body is a single frame. Also False if finding out would take long."""
    return _zstd_blocks(packed)[1] >= len(packed)


def _zstd_blocks(packed: memoryview) -> tuple[int, int]:
    """(number of blocks, position after them) of the frame at the beginning. The position is 0 if finding out would take
    long. RFC 8878."""
    zstandard = library("zstandard")
    position: int = zstandard.frame_header_size(packed[:_ZSTD_HEADER_MOST])
    trailer = 4 if packed[4] & 4 else 0
    for count in range(1, _ZSTD_BLOCKS_WALKED_MAX + 1):
        head = packed[position : position + 3]
        size = 1 if head and head[0] >> 1 & 3 == 1 else int.from_bytes(head, "little") >> 3
        position += 3 + size
        if not head or head[0] & 1:
            return count, position + trailer
    return _ZSTD_BLOCKS_WALKED_MAX, 0


_idle_zstd_decompressors: list[Any] = []
"""Those that no thread uses now. Making one takes as long as a small body."""


def _unpack_zstd_at_once(body: memoryview, most: int) -> bytes | None:
    """As `_unpack_lz4_at_once`."""
    if body[:4] != _ZSTD_MAGIC:
        return None
    zstandard = library("zstandard")
    try:
        header = zstandard.get_frame_parameters(body[:_ZSTD_HEADER_MOST])
        blocks, end = _zstd_blocks(body)
        size = header.content_size
        expanded_most = blocks * _ZSTD_BLOCK_MOST
        if (
            end != len(body)
            or expanded_most > most
            or header.window_size > _ZSTD_WINDOW_KEPT_MAX
            # The library allocates what the header promises, and reads nothing if that is nothing.
            or (size != zstandard.CONTENTSIZE_UNKNOWN and not 0 < size <= most)
        ):
            return None
        try:
            decompressor = _idle_zstd_decompressors.pop()
        except IndexError:
            decompressor = zstandard.ZstdDecompressor()
        whole: bytes = decompressor.decompress(body, max_output_size=expanded_most)
    except zstandard.ZstdError:
        return None
    _idle_zstd_decompressors.append(decompressor)
    return whole


def _compress_xerial(body: Buffer, beginning: bytes = _XERIAL_HEADER) -> bytes:
    snappy = library("snappy")
    out = bytearray(beginning)
    view = memoryview(body)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


Pack: TypeAlias = "tuple[Callable[[memoryview], bytes], Callable[[], bytes]]"
"""Compresses the next part, and ends the stream. Both return what is ready."""


def _pack_nothing(level: int | None) -> Pack:
    return bytes, bytes


def _pack_gzip(level: int | None) -> Pack:
    import zlib

    gzip = zlib.compressobj(GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
    return gzip.compress, gzip.flush


def _pack_snappy(level: int | None) -> Pack:
    beginnings = iter((_XERIAL_HEADER,))
    return lambda part: _compress_xerial(part, next(beginnings, b"")), bytes


def _pack_lz4(level: int | None) -> Pack:
    frames = library("lz4.frame")
    frame = frames.LZ4FrameCompressor(
        block_size=frames.BLOCKSIZE_MAX64KB, block_linked=False, compression_level=_lz4_level(level)
    )
    beginnings = iter((frame.begin(),))
    return lambda part: next(beginnings, b"") + frame.compress(part), frame.flush


def _pack_zstd(level: int | None) -> Pack:
    zstandard = library("zstandard")
    stream = zstandard.ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compressobj()
    return stream.compress, stream.flush


_PACKERS: dict[int, Callable[[int | None], Pack]] = {
    NONE: _pack_nothing,
    GZIP: _pack_gzip,
    SNAPPY: _pack_snappy,
    LZ4: _pack_lz4,
    ZSTD: _pack_zstd,
}


def _unpack_snappy(body: memoryview, unpacked: _Unpacked) -> Opener:
    if body[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        _unpack_snappy_block(body, unpacked)
        yield 0
        return
    if len(body) < len(_XERIAL_HEADER):
        raise DecompressionFailed("a snappy stream shorter than its header")
    position = len(_XERIAL_HEADER)
    blocks = 0
    while position < len(body):
        if body[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Several streams may follow one another, as in Java's reader.
            unpacked.begin_frame()
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(body):
            raise DecompressionFailed("a snappy stream ends within a block's length")
        size = _INT32.unpack_from(body, position)[0]
        position += 4
        if size < 0 or size > len(body) - position:
            raise DecompressionFailed(f"a snappy block of {size} bytes where {len(body) - position} remain")
        before = len(unpacked.body)
        _unpack_snappy_block(body[position : position + size], unpacked)
        position += size
        blocks += 1
        if blocks > unpacked.frames_max and len(unpacked.body) < _XERIAL_BLOCK_LEAST * blocks:
            raise TooManyFrames(f"{blocks} blocks of a snappy stream unfold to {len(unpacked.body)} bytes")
        yield len(unpacked.body) - before + size


def _unpack_snappy_block(block: memoryview, unpacked: _Unpacked) -> None:
    snappy = library("snappy")
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise DecompressionFailed("a snappy block without a length")
    if length > unpacked.bound - len(unpacked.body):
        raise unpacked.too_large()
    if length > _SNAPPY_BEST_RATIO * len(block):
        raise DecompressionFailed(f"a snappy block of {len(block)} bytes that promises {length}")
    opened: bytearray | None = None
    part = b""
    into_memory = library("cramjam").snappy if length > _COPIED_BLOCK_MAX else None
    try:
        if into_memory is not None:
            opened = _zeros(length)
            into_memory.decompress_raw_into(block, opened)
        else:
            part = snappy.uncompress(bytes(block))
    except Exception as error:
        # The type of the library's error depends on its version. Any exception here concerns the block.
        raise DecompressionFailed(str(error)) from error
    if opened is None:
        unpacked.add(part)
    elif not unpacked.body:
        unpacked.body = opened
    else:
        for start in range(0, length, CHUNK_BYTES):
            unpacked.add(bytes(memoryview(opened)[start : start + CHUNK_BYTES]))


def _zeros(length: int) -> bytearray:
    """As many zero bytes, made in parts: filling hundreds of megabytes in one piece would hold the interpreter."""
    zeros = bytearray()
    for start in range(0, length, CHUNK_BYTES):
        zeros += bytes(min(CHUNK_BYTES, length - start))
    return zeros


_OPENERS: dict[int, Callable[[memoryview, _Unpacked], Opener]] = {
    NONE: _copy,
    GZIP: _unpack_gzip,
    SNAPPY: _unpack_snappy,
    LZ4: _unpack_lz4,
    ZSTD: _unpack_zstd,
}
_AT_ONCE: dict[int, Callable[[memoryview, int], bytes | None]] = {
    LZ4: _unpack_lz4_at_once,
    ZSTD: _unpack_zstd_at_once,
}
