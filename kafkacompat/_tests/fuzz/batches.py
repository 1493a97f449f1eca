"""Record batches that mean harm: bombs, gaps, wrong sequences and epochs, control batches, old formats, compression within itself.

Each has a good crc unless the crc is what is wrong; what is broken is broken inside. Knows the format, and of the product only
what packs good parts.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache

from crc32c import crc32c

from kafkacompat.records import compression
from kafkacompat.records._tests import bombs
from kafkacompat.records.batch import assemble
from kafkacompat.records.record import Record, encode_records

from .choices import Choices, happens, one_of
from .memory import Memory, ProducerKnown

INT16 = (0, 1, -1, 32767, -32768)
INT32 = (0, 1, -1, 2**31 - 1, -(2**31), 255, 1000)
INT64 = (0, 1, -1, 2**63 - 1, -(2**63), 2**31, 1_700_000_000_000)
COUNTS = (0, 1, 2, -1, 3, 100, 2**31 - 1, -(2**31))
NO_PRODUCER = ProducerKnown(None, -1, -1)
TRANSACTIONAL, CONTROL, HORIZON, LOG_APPEND = 0x10, 0x20, 0x40, 0x08
PLACES = {
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "count": (57, 4),
}
"""Of the header: where, how many bytes."""


class BatchAuthor:
    def __init__(self, choices: Choices, memory: Memory) -> None:
        self._choices = choices
        self._memory = memory

    def records(
        self, producer: ProducerKnown | None, topic: str, partition: int, now_ms: int
    ) -> tuple[bytes | None, int]:
        """A value of a produce's records, and the sequence that follows if it is taken; -1 where none does."""
        choices = self._choices
        kind = choices.below(64)
        if kind < 40:
            return self._good(producer, topic, partition, now_ms, spoiled=kind < 14)
        if kind < 44:
            return b"".join(self._good(producer, topic, partition, now_ms)[0] for _ in range(2)), -1
        if kind < 48:
            return self._legacy(now_ms), -1
        if kind < 54:
            return self._bomb(), -1
        if kind < 58:
            return self._mangled_body(now_ms), -1
        if kind < 60:
            whole = self._good(producer, topic, partition, now_ms)[0]
            return whole[: choices.below(len(whole))], -1
        if kind < 62:
            whole = bytearray(self._good(producer, topic, partition, now_ms)[0])
            whole[choices.below(len(whole))] ^= 1 << choices.below(8)
            return bytes(whole), -1
        return one_of(choices, (None, b"", bytes(61), b"\xff" * 61, choices.raw(choices.below(200)))), -1

    def _good(
        self, producer: ProducerKnown | None, topic: str, partition: int, now_ms: int, spoiled: bool = False
    ) -> tuple[bytes, int]:
        choices = self._choices
        owner = producer or NO_PRODUCER
        count = one_of(choices, (1, 1, 1, 2, 3, 50))
        key = (owner.producer_id, owner.epoch, topic, partition)
        sequence = self._memory.next_sequences.get(key, 0) if owner.producer_id >= 0 else -1
        following = -1 if owner.producer_id < 0 else (sequence + count) & 0x7FFFFFFF
        if owner.producer_id >= 0 and happens(choices, 40):
            sequence = one_of(choices, (sequence - 1, sequence + 1, sequence - count, *INT32))
            following = -1
        attributes = TRANSACTIONAL if owner.transactional_id and not happens(choices, 12) else 0
        base_ms = now_ms
        if happens(choices, 40):
            base_ms = one_of(choices, (now_ms + 10**9, now_ms - 10**10, -1, -5, 0, 2**62, 2**63 - 1))
        keyed = happens(choices, 128)
        records = [
            Record(
                index,
                min(base_ms + (index if base_ms < 2**62 else 0), 2**63 - 1),
                b"k%d" % choices.below(4) if keyed else None,
                None if happens(choices, 20) else b"v" * choices.below(40),
                (("h", None), ("h", b"")) if happens(choices, 20) else (),
            )
            for index in range(count)
        ]
        body: bytes | bytearray = encode_records(records, base_ms)
        codec = one_of(choices, (0, 0, 0, 0, 1, 2, 3, 4))
        if codec:
            body = compression.compress(codec, body)
        batch = assemble(
            body,
            base_offset=0,
            leader_epoch=-1,
            attributes=attributes | codec,
            last_offset_delta=count - 1,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=records[-1].timestamp_ms,
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch if owner.producer_id >= 0 else -1,
            base_sequence=wrapped(sequence),
            record_count=count,
        )
        if spoiled:
            for _ in range(one_of(choices, (1, 1, 2))):
                self._spoil(batch)
            return bytes(batch), -1
        return bytes(batch), following

    def _spoil(self, batch: bytearray) -> None:
        """One field of the header is another; the crc mostly agrees."""
        choices = self._choices
        name = one_of(choices, tuple(PLACES))
        start, size = PLACES[name]
        pools: dict[int, tuple[int, ...]] = {1: (0, 1, 3, -1, 127), 2: INT16, 4: INT32, 8: INT64}
        value = one_of(choices, COUNTS if name in ("count", "last offset delta") else pools[size])
        if name == "attributes":
            now = int.from_bytes(batch[21:23], "big")
            bits = (TRANSACTIONAL, CONTROL, HORIZON, LOG_APPEND, 0x80, 5, 7, 0x8000, CONTROL | TRANSACTIONAL)
            value = now ^ one_of(choices, bits)
        batch[start : start + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
        if name != "crc" and not happens(choices, 10):
            batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")

    def _legacy(self, now_ms: int) -> bytes:
        """Messages of magic 0 and 1, wrapped or not, and wrappers within wrappers."""
        choices = self._choices
        magic = choices.below(2)
        found = b"".join(
            old_message(magic, 0, now_ms, b"k", b"v%d" % i, i) for i in range(choices.below(3) + 1)
        )
        for _ in range(one_of(choices, (0, 1, 1, 2, 5))):
            codec = one_of(choices, (1, 2, 3, 4, 7))
            packed = found if codec == 7 else compression.compress(codec, found)
            found = old_message(one_of(choices, (magic, 1 - magic)), codec, now_ms, None, packed, 0)
        return found

    def _bomb(self) -> bytes:
        choices = self._choices
        codec = choices.below(4) + 1
        kind = choices.below(8)
        if kind == 0:
            return bytes(bombs.batch_around(bombs.many_frames(codec, one_of(choices, (2, 900, 1500))), codec))
        if kind == 1:
            return bytes(
                bombs.batch_around(bombs.many_blocks(one_of(choices, (10, 5000))), compression.SNAPPY)
            )
        if kind == 2:
            return nested(codec, choices.below(6) + 1)
        return bomb(kind, codec, choices.below(3))

    def _mangled_body(self, now_ms: int) -> bytes:
        """Records whose lengths, deltas and counts lie, compressed or not, under a header that agrees with none."""
        choices = self._choices
        body = bytearray(
            encode_records([Record(0, now_ms, b"k", b"v"), Record(1, now_ms, None, b"w")], now_ms)
        )
        for _ in range(choices.below(4) + 1):
            at = choices.below(len(body))
            action = choices.below(3)
            if action == 0:
                body[at] = choices.below(256)
            elif action == 1:
                body[at:at] = choices.raw(choices.below(6) + 1)
            else:
                del body[at : at + 1 + choices.below(3)]
            if not body:
                break
        codec = one_of(choices, (0, 0, 1, 2, 3, 4))
        packed: bytes | bytearray = compression.compress(codec, body) if codec else body
        if codec and happens(choices, 100):
            packed = bytearray(packed)
            packed[choices.below(len(packed))] ^= 1 << choices.below(8)
            del packed[len(packed) - choices.below(4) :]
        return bytes(
            bombs.batch_around(bytes(packed), codec, one_of(choices, (2, 2, 2, 1, 3, 0, 2**31 - 1, -1)))
        )


@cache
def bomb(kind: int, codec: int, size: int) -> bytes:
    """Small on the wire. Made once, since packing them takes longer than all else."""
    if kind == 3:
        return bytes(bombs.batch_of_body(bombs.record_of_value((1 << 12, 1 << 20, 1 << 23)[size]), codec))
    if kind == 4:
        return bytes(bombs.batch_of_body(bombs.record_of_headers((20, 9_000, 11_000)[size]), codec))
    if kind == 5:
        count = (20, 3_000, 30_000)[size]
        return bytes(bombs.batch_of_body(bombs.tiny_records(count), codec, count))
    count = (20, 1_000, 9_000)[size]
    return bytes(bombs.batch_of_body(bombs.tiny_records(count, even=False), codec, count))


@cache
def nested(codec: int, depth: int) -> bytes:
    """Compressed again and again; the header says once."""
    body: bytes = bytes(bombs.record(b"\0\0\0\1\2x\0"))
    for _ in range(depth):
        body = compression.compress(codec, body)
    return bytes(bombs.batch_around(body, codec))


def old_message(
    magic: int, attributes: int, now_ms: int, key: bytes | None, value: bytes, offset: int
) -> bytes:
    inside = bytes([magic, attributes]) + (struct.pack(">q", now_ms) if magic else b"")
    inside += struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    inside += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(inside) + 4, zlib.crc32(inside)) + inside


def wrapped(value: int) -> int:
    """Into 32 bits with a sign."""
    return (value + 2**31) % 2**32 - 2**31
