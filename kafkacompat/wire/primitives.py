"""The protocol's primitive types: varints, strings, tag sections.

Each function reads or writes one primitive at a position and checks every bound. Reading functions take any
one-dimensional buffer of bytes and return the value and the position after it. They raise WireError for truncated
data, excessive lengths and invalid UTF-8. Kafka's limits: 5 bytes for a varint, 32767 bytes for a string.
"""

from typing import TypeAlias

from kafkacompat.wire.errors import EncodeError, WireError

ByteSequence: TypeAlias = bytes | bytearray | memoryview
MAX_STRING_BYTES = 32767
TAGS_MAX = 10_000
"""Maximum number of tagged fields in one section, as in Kafka. Messages have a handful. Each takes at least two bytes and a
microsecond."""
ARRAY_MAX = 1_000_000
"""Maximum number of elements of one array in a request, as in Kafka."""


def read_uvarint(buffer: ByteSequence, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    try:
        value = buffer[position]
        if value < 128:
            return value, position + 1
        byte = buffer[position + 1]
        if byte < 128:
            return value & 127 | byte << 7, position + 2
        value &= 127
        for shift in (7, 14, 21, 28):
            position += 1
            byte = buffer[position]
            value |= (byte & 127) << shift
            if byte < 128:
                if value > 0xFFFFFFFF:
                    raise WireError("a varint does not fit 32 bits")
                return value, position + 1
    except IndexError:
        raise WireError("truncated in a varint") from None
    raise WireError("a varint is longer than 5 bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint. EncodeError for a negative value."""
    if value < 0:
        raise EncodeError(f"{value} is no unsigned varint")
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def uvarint_size(value: int) -> int:
    """Return the size of an unsigned varint in bytes."""
    return (max(value.bit_length(), 1) + 6) // 7


def read_text(buffer: ByteSequence, position: int, length: int) -> tuple[str, int]:
    """Read `length` bytes of UTF-8."""
    end = position + length
    if not 0 <= length <= MAX_STRING_BYTES:
        raise WireError(f"a string of {length} bytes")
    if end > len(buffer):
        raise WireError("truncated in a string")
    try:
        return str(buffer[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8") from error


def read_nullable_string(buffer: ByteSequence, position: int) -> tuple[str | None, int]:
    """Read a string with a 16-bit length, -1 for null."""
    if position + 2 > len(buffer):
        raise WireError("truncated in a string length")
    length = buffer[position] << 8 | buffer[position + 1]
    position += 2
    if length == 0xFFFF:
        return None, position
    end = position + length
    if length > MAX_STRING_BYTES or end > len(buffer):
        return read_text(buffer, position, length)  # raises
    try:
        return str(buffer[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8") from error


def read_compact_nullable_string(buffer: ByteSequence, position: int) -> tuple[str | None, int]:
    """Read a string after a varint of its length plus one, 0 for null."""
    length, position = read_uvarint(buffer, position)
    if not length:
        return None, position
    return read_text(buffer, position, length - 1)


def write_nullable_string(out: bytearray, text: str | None) -> None:
    """Append a string with a 16-bit length."""
    if text is None:
        out += b"\xff\xff"
        return
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise EncodeError(f"a string of {len(data)} bytes")
    out += len(data).to_bytes(2, "big")
    out += data


def write_compact_nullable_string(out: bytearray, text: str | None) -> None:
    """Append a string with a varint of its length plus one."""
    if text is None:
        out.append(0)
        return
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise EncodeError(f"a string of {len(data)} bytes")
    write_uvarint(out, len(data) + 1)
    out += data


def skip_tagged_fields(buffer: ByteSequence, position: int) -> int:
    """Return the position after a tag section whose fields are not needed."""
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        raise WireError(f"{count} tagged fields")
    end = len(buffer)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise WireError("a tagged field runs past the end")
    return position
