"""The records of `__share_group_state`, byte by byte as Kafka writes them."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.share.service import SharePartitionKey, StateBatch
from kafkacompat.share.state.batches import NO_BATCHES, Batches
from kafkacompat.share.state.records import (
    ShareGroupOffset,
    ShareRecord,
    ShareUpdate,
    decode_in_steps,
    decode_record,
    encode_record,
)

TOPIC_ID = bytes(range(1, 17))
KEY, OTHER = SharePartitionKey("grüppe", TOPIC_ID, 6), SharePartitionKey("g", TOPIC_ID, 0)
BATCHES = Batches((StateBatch(100, 109, 2, 1), StateBatch(110, 110, 4, 5)))
RECORDS = [
    ShareRecord(KEY, ShareGroupOffset(3, 4, 5, 100, 7, BATCHES, 1_700_000_000_000, 1_700_000_000_001)),
    ShareRecord(OTHER, ShareGroupOffset(0, 0, 0, -1, -1, NO_BATCHES)),
    ShareRecord(KEY, ShareUpdate(3, 5, 100, 7, BATCHES)),
    ShareRecord(OTHER, ShareUpdate(0, 0, -1, -1, NO_BATCHES)),
    ShareRecord(OTHER, None),
]
OF_KAFKA = [
    (
        "000000076772c3bc7070650102030405060708090a0b0c0d0e0f1000000006",
        (
            "000000000003000000040000000500000000000000640000018bcfe568000000018bcfe56801030000000000000064000000"
            "000000006d02000100000000000000006e000000000000006e0400050001000400000007"
        ),
    ),
    (
        "00000001670102030405060708090a0b0c0d0e0f1000000000",
        "0000000000000000000000000000ffffffffffffffff000000000000000000000000000000000100",
    ),
    (
        "000100076772c3bc7070650102030405060708090a0b0c0d0e0f1000000006",
        (
            "000000000003000000050000000000000064030000000000000064000000000000006d02000100000000000000006e000000"
            "000000006e0400050001000400000007"
        ),
    ),
    (
        "00010001670102030405060708090a0b0c0d0e0f1000000000",
        "00000000000000000000ffffffffffffffff0100",
    ),
    (
        "00000001670102030405060708090a0b0c0d0e0f1000000000",
        None,
    ),
]
"""What Kafka 4.3's ShareCoordinatorRecordSerde makes of RECORDS."""


def of_kafka() -> list[tuple[bytes, bytes | None]]:
    return [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in OF_KAFKA]


@pytest.mark.parametrize(("record", "told"), list(zip(RECORDS, of_kafka(), strict=True)))
def test_bytes_are_those_of_kafka(record: ShareRecord, told: tuple[bytes, bytes | None]) -> None:
    assert encode_record(record) == told
    assert decode_record(*told) == record


def test_unknown_kinds_are_passed_over() -> None:
    key, value = encode_record(RECORDS[0])
    assert decode_record(b"\x00\x02" + key[2:], value) is None
    update_key, _ = encode_record(RECORDS[2])
    assert decode_record(update_key, None) is None


def _backwards() -> bytes:
    value = encode_record(ShareRecord(KEY, ShareUpdate(0, 0, 0, 0, Batches((StateBatch(9, 8, 0, 0),)))))[1]
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b"\x00\x00"),
        (b"\x00\x00\x05ab", b"\x00\x00"),
        (encode_record(RECORDS[0])[0], b"\x00"),
        (encode_record(RECORDS[0])[0], b"\x00\x01" + bytes(100)),
        (encode_record(RECORDS[0])[0], b"\x00\x00" + bytes(3)),
        (encode_record(RECORDS[2])[0], _backwards()),
    ],
)
def test_what_cannot_be_read_fails_the_load(key: bytes, value: bytes) -> None:
    with pytest.raises(LoadFailure):
        decode_record(key, value)


def test_a_large_value_is_decoded_in_steps() -> None:
    batches = Batches(tuple(StateBatch(2 * each, 2 * each, 2, 1) for each in range(30_000)))
    key, value = encode_record(ShareRecord(KEY, ShareUpdate(0, 0, 0, 0, batches)))
    costs: list[int] = []

    def counted() -> Generator[int, None, None]:
        steps = decode_in_steps(key, value)
        found.append((yield from steps))

    found: list[ShareRecord | None] = []
    costs.extend(counted())
    assert found[0] is not None
    assert found[0].value == ShareUpdate(0, 0, 0, 0, batches)
    assert len(costs) > 20
    assert max(costs) < 20_000
