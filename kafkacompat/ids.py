"""Names that every package shares for the things it counts by: nodes, topics, offsets, ids.

Knows nothing but their text and byte forms. A uuid is its 16 raw bytes everywhere inside; the text form
(base64url without padding, 22 characters) appears only in files and messages to people.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from operator import mul
from struct import unpack
from typing import NamedTuple

Uuid = bytes

_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,300}")

ZERO_UUID: Uuid = bytes(16)
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"
METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})

DIRECTORY_MIGRATING: Uuid = ZERO_UUID
DIRECTORY_UNASSIGNED: Uuid = bytes(15) + b"\x01"
DIRECTORY_LOST: Uuid = bytes(15) + b"\x02"
RESERVED_UUID_COUNT = 100

NO_LEADER = -1
NO_OFFSET = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    offset: int
    epoch: int


def is_base_offset(text: str) -> bool:
    """Whether the text, the beginning of a file's name, has only the digits of an offset."""
    return text.isascii() and text.isdigit()


def parse_int(text: str, bits: int = 31) -> int:
    """A whole number as Java's Integer.parseInt reads it, or Long.parseLong with 63 bits. Raises ValueError.

    Python's int() also takes blanks around the digits and underscores between them, and numbers of any size: a request
    or a file that Kafka refuses would mean something here.
    """
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else 1 << bits
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(f"{text!r} is no whole number of {bits + 1} bits")
    return number


def uuid_to_text(uuid: Uuid) -> str:
    """The 22-character text of a 16-byte uuid."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The 16 bytes of a uuid's text; ValueError when the text is not one."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a uuid in base64url") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid of 16 bytes")
    return raw


def is_reserved_uuid(uuid: Uuid) -> bool:
    """True for the first hundred values, which Kafka keeps for meanings of its own."""
    return int.from_bytes(uuid, "big") < RESERVED_UUID_COUNT


HASHED_AT_ONCE = 32
"""Characters."""
_POWERS_OF_31 = [31**power for power in reversed(range(HASHED_AT_ONCE))]


def java_string_hash(text: str) -> int:
    """Java's String.hashCode over UTF-16 code units, as a signed 32-bit integer."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(data) // 2}H", data)
    result = 0
    # A name may have 32,000 characters: each is a multiplication in C, and the powers are those of a piece.
    for start in range(0, len(units), HASHED_AT_ONCE):
        piece = units[start : start + HASHED_AT_ONCE]
        powers = _POWERS_OF_31[HASHED_AT_ONCE - len(piece) :]
        result = (result * 31 ** len(piece) + sum(map(mul, piece, powers))) & 0xFFFFFFFF
    return result - (1 << 32) if result >= 1 << 31 else result


HASH_CAPACITY = 16
"""The places of a new HashMap or HashSet of Java."""


def in_hash_order(texts: Sequence[str], *, at_once: bool = False, spare: int = 0) -> list[str]:
    """The different texts, in the order of a HashSet to which they were added one by one, or that was made of them.

    A set that is made of a list may have more room than one to which as many texts were added. `spare`: the room is for
    so many more.
    """
    different = list(dict.fromkeys(texts))
    capacity = HASH_CAPACITY
    while at_once and capacity < 4 * len(texts) // 3 + 1:
        capacity *= 2
    capacity = hash_capacity(len(different) + spare, capacity)
    return sorted(different, key=lambda text: hash_place(java_string_hash(text), capacity))


def hash_capacity(count: int, capacity: int = HASH_CAPACITY) -> int:
    """The places of a HashMap that began with some, when it has so many entries: more than three quarters are never in
    use."""
    while 4 * count > 3 * capacity:
        capacity *= 2
    return capacity


def hash_place(code: int, capacity: int) -> int:
    """The place of an entry, whose key has this hash. Those of one place come in the order in which they were added."""
    code &= 0xFFFFFFFF
    return (code ^ code >> 16) & capacity - 1


TIMELINE_CAPACITY = 2
"""The places of a new hash table of which Kafka takes snapshots."""
_FIBONACCI = -7046029254386353131


def timeline_place(most: int) -> Callable[[str], int]:
    """The place of a text in a hash table of which Kafka takes snapshots. `most`: how many it has had at most, for its room does
    not become less. Its order is that of the places; of those in one place the last that was added comes first."""
    capacity = TIMELINE_CAPACITY
    while 3 * most > 4 * capacity:
        capacity *= 2
    shift = 65 - capacity.bit_length()
    return lambda text: (java_string_hash(text) * _FIBONACCI & 0xFFFFFFFFFFFFFFFF) >> shift


def partition_for_key(key: str, partition_count: int) -> int:
    """The internal topic's partition that a group or transactional id lives in (abs(-2**31) counts as 0)."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


_MURMUR_SEED = 0x9747B28C
_MURMUR_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java clients, unsigned."""
    length = len(data)
    result = _MURMUR_SEED ^ length
    whole = length - length % 4
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MURMUR_MULTIPLIER & 0xFFFFFFFF
        word = (word ^ word >> 24) * _MURMUR_MULTIPLIER & 0xFFFFFFFF
        result = (result * _MURMUR_MULTIPLIER & 0xFFFFFFFF) ^ word
    if length % 4:
        result = (result ^ int.from_bytes(data[whole:], "little")) * _MURMUR_MULTIPLIER & 0xFFFFFFFF
    result = (result ^ result >> 13) * _MURMUR_MULTIPLIER & 0xFFFFFFFF
    return result ^ result >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that Kafka's Java clients choose for a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
