"""The refusals of a produced batch, with Kafka's codes, and the batches that are stamped or rewritten."""

from __future__ import annotations

import contextlib
import dataclasses
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.config import LogConfig
from kafkacompat.ports import LogRefused
from kafkacompat.records import compression
from kafkacompat.records import validate as validation
from kafkacompat.records.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    ValidatedBatch,
    assemble,
    build_batch,
    crc_of,
    has_valid_crc,
    parse_header,
)
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.limits import BatchLimits
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record, encode_record, encode_records
from kafkacompat.records.scan import IS_COMPILED
from kafkacompat.records.validate import Allowance, Origin, TooMuchAtOnce, validate_produce
from kafkacompat.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
CONFIG = LogConfig()


def records(count: int = 3, *, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, NOW_MS + i, key, b"value %d" % i) for i in range(count)]


def validate(
    batch: bytes | bytearray, *, origin: Origin = Origin.CLIENT, zstd: bool = True, **config: object
) -> ValidatedBatch:
    changed = dataclasses.replace(CONFIG, **config)  # type: ignore[arg-type]
    return validate_produce(batch, changed, NOW_MS, zstd_allowed=zstd, origin=origin)


def refusal(batch: bytes | bytearray, **kwargs: object) -> LogRefused:
    with pytest.raises(LogRefused) as caught:
        validate(batch, **kwargs)  # type: ignore[arg-type]
    return caught.value


def with_body(body: bytes | bytearray, count: int, codec: int = 0) -> bytearray:
    """A batch with a valid CRC around any body."""
    return assemble(
        body if not codec else compression.compress(codec, body),
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


@pytest.mark.parametrize("codec", range(len(compression.CODEC_NAMES)))
def test_a_sound_batch_stays_in_its_buffer(codec: int) -> None:
    batch = build_batch(records(), compression=codec)
    before = bytes(batch)
    checked = validate(batch)
    assert isinstance(checked.buffer, memoryview)
    assert checked.buffer.obj is batch
    assert bytes(batch) == before
    assert (checked.record_count, checked.last_offset_delta, checked.max_timestamp_ms) == (3, 2, NOW_MS + 2)
    assert checked.compression == codec
    assert checked.size == len(batch)


def test_read_only_bytes_are_copied() -> None:
    checked = validate(bytes(build_batch(records())))
    assert isinstance(checked.buffer, bytearray)


def test_bytes_after_the_batch_that_are_no_batch_are_dropped() -> None:
    batch = build_batch(records())
    assert validate(batch + b"\0" * 9).size == len(batch)


@pytest.mark.parametrize("size", [0, 5, 16, 17, 60])
def test_no_whole_batch_is_invalid(size: int) -> None:
    """Empty records are refused, not left unanswered."""
    assert refusal(build_batch(records())[:size]).code == ErrorCode.INVALID_RECORD


def test_more_than_one_batch_is_invalid() -> None:
    assert refusal(build_batch(records()) * 2).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_invalid(magic: int) -> None:
    message = bytes((magic, 0)) + bytes(8 * magic) + struct.pack(">ii", -1, -1)
    old = struct.pack(">qiI", 0, len(message) + 4, 0) + message
    assert refusal(old).code == ErrorCode.INVALID_RECORD


def test_unknown_magic_and_short_length_and_wrong_crc_are_corrupt() -> None:
    magic, length, crc = (build_batch(records()) for _ in range(3))
    magic[16] = 9
    struct.pack_into(">i", length, 8, 20)
    crc[-1] ^= 1
    for batch in (magic, length, crc):
        assert refusal(batch).code == ErrorCode.CORRUPT_MESSAGE


def test_base_offset_must_be_zero_for_clients() -> None:
    batch = build_batch(records(), base_offset=4)
    assert refusal(batch).code == ErrorCode.INVALID_RECORD
    assert validate(batch, origin=Origin.COORDINATOR).record_count == 3


def test_too_large_is_told_before_the_crc() -> None:
    batch = build_batch(records())
    batch[-1] ^= 1
    assert refusal(batch, max_message_bytes=len(batch) - 1).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(batch, max_message_bytes=len(batch)).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("field", "value"), [(23, 1), (23, 5), (23, -1), (57, 2), (57, 0), (57, -1), (57, 4)]
)
def test_count_and_offsets_must_agree(field: int, value: int) -> None:
    batch = build_batch(records())
    struct.pack_into(">i", batch, field, value)
    renew_crc(batch)
    assert refusal(batch).code == ErrorCode.INVALID_RECORD


def renew_crc(batch: bytearray) -> None:
    from kafkacompat.records.batch import crc_of

    struct.pack_into(">I", batch, 17, crc_of(batch))


def test_control_batches_come_only_from_the_broker() -> None:
    marker = build_end_transaction_marker(
        committed=False, coordinator_epoch=1, producer_id=3, producer_epoch=0, timestamp_ms=NOW_MS
    )
    assert refusal(marker).code == ErrorCode.INVALID_RECORD
    assert validate(marker, origin=Origin.COORDINATOR, compression_type="lz4").is_control


def test_a_producer_id_needs_a_sequence() -> None:
    batch = build_batch(records(), producer_id=3, producer_epoch=0)
    assert refusal(batch).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    batch = build_batch(records())
    struct.pack_into(">h", batch, 21, codec)
    assert refusal(batch).code == ErrorCode.CORRUPT_MESSAGE, "it may have changed on the way"
    renew_crc(batch)
    assert refusal(batch).code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal(batch, max_message_bytes=len(batch) - 1).code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(1, len(compression.CODEC_NAMES)))
def test_a_body_that_cannot_be_opened(codec: int) -> None:
    batch = with_body(b"\x99" * 40, 1)
    struct.pack_into(">h", batch, 21, codec)
    renew_crc(batch)
    assert refusal(batch).code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_zstd_needs_version_7() -> None:
    assert (
        refusal(build_batch(records(), compression=4), zstd=False).code
        == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_malformed_records_inside_a_good_crc(count: int, codec: int) -> None:
    """Refused without naming records."""
    good = encode_records(records(count), NOW_MS)
    body = encode_record(records(count)[-1]._replace(headers=()), NOW_MS)
    start = len(good) - len(body) - 1
    assert good[start + 1 :] == body
    trailing_in_record = good[:start] + bytes((good[start] + 2,)) + body + b"\0"
    longer = good[:start] + bytes((good[start] + 2,)) + body
    negative_headers = good[:-1] + b"\x01"
    header_without_key = good[:start] + bytes((good[start] + 4,)) + body[:-1] + b"\x02\x01\x01"
    for bad in (trailing_in_record, longer, negative_headers, header_without_key, good + b"\0", good[:-1]):
        caught = refusal(with_body(bad, count, codec))
        assert caught.code == ErrorCode.INVALID_RECORD
        assert not caught.record_errors
    assert (
        validate(with_body(good, count, codec), message_timestamp_after_max_ms=HOUR_MS).record_count == count
    )


def test_keyless_records_in_a_compacted_topic_are_named() -> None:
    mixed = records()
    mixed[1] = mixed[1]._replace(key=None)
    caught = refusal(build_batch(mixed), cleanup_policy=("compact", "delete"))
    assert caught.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.record_errors] == [1]
    assert validate(build_batch(mixed)).record_count == 3


def test_timestamps_too_far_ahead_or_behind_are_named() -> None:
    ahead = [Record(0, NOW_MS, None, b""), Record(1, NOW_MS + HOUR_MS + 1, None, b"")]
    caught = refusal(build_batch(ahead))
    assert caught.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.record_errors] == [1]
    behind = [Record(0, NOW_MS, None, b""), Record(1, NOW_MS - 11, None, b"")]
    assert (
        refusal(build_batch(behind), message_timestamp_before_max_ms=10).code == ErrorCode.INVALID_TIMESTAMP
    )
    validate(build_batch([Record(0, NOW_MS + HOUR_MS, None, b"")]))
    validate(build_batch([Record(0, -1, None, b"")]), message_timestamp_before_max_ms=10)
    validate(build_batch(ahead), message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("target", ["producer", "gzip"])
@pytest.mark.parametrize("delta", [1, 2**62, 2**63 - 1])
def test_a_timestamp_beyond_64_bits_is_refused_however_late_ones_are_taken(delta: int, target: str) -> None:
    late = 2**63 - 1
    for codec in (0, 3):
        config = {"message_timestamp_after_max_ms": late, "compression_type": target}
        body = encode_records([Record(0, late, None, b"a"), Record(1, late + delta, None, b"b")], late)
        batch = with_body(body, 2, codec)
        struct.pack_into(">qq", batch, 27, late, late)
        renew_crc(batch)
        caught = refusal(batch, **config)
        assert caught.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in caught.record_errors] == [1]
        sound = build_batch([Record(0, late, None, b"a")], compression=codec)
        assert validate(sound, **config).max_timestamp_ms == late


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_timestamps_that_do_not_count_may_be_beyond_64_bits(kind: str) -> None:
    """As in Kafka, where the sums overflow: with append time, and where the producer gave the type LogAppendTime itself."""
    body = encode_records([Record(0, 9, None, b"a"), Record(1, 2**62, None, b"b")], 0)
    batch = with_body(body, 2)
    attributes = 8 if kind == "CreateTime" else 0
    struct.pack_into(">hiqq", batch, 21, attributes, 1, 2**63 - 1, NOW_MS)
    renew_crc(batch)
    for target in ("producer", "gzip"):
        checked = validate(bytes(batch), message_timestamp_type=kind, compression_type=target)
        assert checked.max_timestamp_ms == NOW_MS
        header = parse_header(checked.buffer)
        assert has_valid_crc(checked.buffer, header)
        assert header.is_log_append_time is (kind == "LogAppendTime")
        assert [one.value for _, one in records_of(checked.buffer, header)] == [b"a", b"b"]


def test_a_lying_max_timestamp_is_put_right() -> None:
    batch = build_batch(records())
    struct.pack_into(">q", batch, 35, NOW_MS + 10 * HOUR_MS)
    renew_crc(batch)
    checked = validate(batch)
    header = parse_header(batch)
    assert checked.max_timestamp_ms == header.max_timestamp_ms == NOW_MS + 2
    assert has_valid_crc(batch, header)


def test_log_append_time_is_stamped() -> None:
    batch = build_batch([Record(0, 5, None, b"x")])
    checked = validate(batch, message_timestamp_type="LogAppendTime")
    header = parse_header(batch)
    assert checked.log_append_time
    assert header.is_log_append_time
    assert checked.max_timestamp_ms == header.max_timestamp_ms == NOW_MS
    assert header.base_timestamp_ms == 5
    assert has_valid_crc(batch, header)
    assert [r.timestamp_ms for _, r in records_of(batch, header)] == [NOW_MS]


def test_a_producers_append_time_bit_is_cleared_and_other_bits_kept() -> None:
    batch = build_batch(records(), log_append_time_ms=NOW_MS - 7)
    struct.pack_into(">h", batch, 21, 0x0108)
    renew_crc(batch)
    checked = validate(batch)
    header = parse_header(batch)
    assert not checked.log_append_time
    assert header.attributes == 0x0100
    assert has_valid_crc(batch, header)
    assert (
        refusal(
            build_batch(records(), log_append_time_ms=NOW_MS), message_timestamp_type="LogAppendTime"
        ).code
        == ErrorCode.INVALID_TIMESTAMP
    )


@pytest.mark.parametrize("target", compression.CODEC_OF_SETTING)
@pytest.mark.parametrize("source", range(len(compression.CODEC_NAMES)))
def test_the_topics_codec_wins(source: int, target: str) -> None:
    sent = records(40)
    batch = build_batch(
        sent, compression=source, producer_id=9, producer_epoch=1, base_sequence=5, is_transactional=True
    )
    checked = validate(batch, compression_type=target)
    header = parse_header(checked.buffer)
    assert checked.compression == header.codec == compression.CODEC_OF_SETTING[target]
    assert has_valid_crc(checked.buffer, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 5)
    assert header.is_transactional
    assert [r for _, r in records_of(checked.buffer, header)] == sent
    assert (checked.buffer.obj is batch if isinstance(checked.buffer, memoryview) else True) == (
        source == header.codec or isinstance(checked.buffer, bytearray)
    )


def test_size_after_re_encoding_counts() -> None:
    sent = [Record(i, NOW_MS, None, b"x" * 500) for i in range(10)]
    batch = build_batch(sent, compression=1)
    assert len(batch) < 1000
    assert (
        refusal(batch, compression_type="uncompressed", max_message_bytes=1000).code
        == ErrorCode.MESSAGE_TOO_LARGE
    )


def test_re_encoding_begins_with_the_first_records_timestamp() -> None:
    body = encode_records([Record(0, NOW_MS + 5, None, b"a"), Record(1, NOW_MS + 3, None, b"b")], NOW_MS)
    checked = validate(with_body(body, 2), compression_type="gzip")
    header = parse_header(checked.buffer)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS + 5, NOW_MS + 5)
    assert [r.timestamp_ms for _, r in records_of(checked.buffer, header)] == [NOW_MS + 5, NOW_MS + 3]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_record_of_a_compressed_batch_may_be_so_large(codec: int) -> None:
    """max.decompressed.message.bytes counts a record without its length, as Apache Kafka does: 7 bytes here besides the
    value."""
    limited = {"max_decompressed_message_bytes": 100}

    def batch(*sizes: int, compression: int = codec) -> bytearray:
        made = [Record(i, NOW_MS, None, bytes(size)) for i, size in enumerate(sizes)]
        return build_batch(made, compression=compression)

    assert validate(batch(93), **limited).record_count == 1
    assert validate(batch(*[40] * 10), **limited).record_count == 10
    assert validate(batch(94, compression=0), **limited).record_count == 1
    for sizes in ((94,), (40, 300, 40)):
        refused = refusal(batch(*sizes), **limited)
        assert refused.code == ErrorCode.INVALID_RECORD
        assert "max.decompressed.message.bytes, 100" in str(refused.message)
        # A topic that compresses anew judges what came.
        assert refusal(batch(*sizes), compression_type="uncompressed", **limited).code == refused.code


def test_header_size_is_what_the_format_says() -> None:
    assert HEADER_SIZE == 61


FIELDS_OF_A_HEADER = st.tuples(
    st.integers(0, 12),
    st.sampled_from([-2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 64, 1 << 14, NOW_MS, NOW_MS + 2]),
)
CONFIGS = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from([("delete",), ("compact",)]),
    compression_type=st.sampled_from(["producer", "producer", "producer", "lz4", "uncompressed"]),
    max_message_bytes=st.sampled_from([1_000_000, 1_000_000, 150]),
    max_decompressed_message_bytes=st.sampled_from([2147483639, 2147483639, 300, 20, 1]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_after_max_ms=st.sampled_from([HOUR_MS, 1, 0]),
    message_timestamp_before_max_ms=st.sampled_from([2**63 - 1, 0]),
)
LIMITS = st.builds(
    BatchLimits,
    unpacked_bytes=st.sampled_from([1 << 28, 100]),
    records=st.sampled_from([1000, 2]),
    headers=st.sampled_from([1000, 1]),
    headers_a_record=st.sampled_from([1000, 1]),
)


def outcome(function: object, batch: bytearray, left: dict[str, int], *given: object) -> tuple[object, ...]:
    """What becomes of a batch, and of the allowance."""
    allowance = Allowance()
    for name, value in left.items():
        setattr(allowance, name, value)
    data = memoryview(bytearray(batch))
    found: tuple[object, ...]
    try:
        valid = function(data, *given, allowance)  # type: ignore[operator]
    except TooMuchAtOnce:
        found = ("too much",)
    except LogRefused as refused:
        found = (type(refused), refused.code, refused.message, refused.record_errors, refused.fault)
    else:
        found = tuple(
            bytes(valid.buffer) if name == "buffer" else getattr(valid, name)
            for name in ValidatedBatch.__slots__
        )
    return (*found, bytes(data), [getattr(allowance, name) for name in ALLOWED])


ALLOWED = ("copied_bytes", "packed_bytes", "unpacked_bytes", "re_encoded_bytes", "units")


@given(
    made=st.lists(
        st.builds(
            Record,
            st.just(0),
            st.sampled_from([NOW_MS, NOW_MS, NOW_MS - 1, NOW_MS + 5, -1]),
            st.sampled_from([None, b"k"]),
            st.sampled_from([None, b"", b"value", b"v" * 300]),
            st.sampled_from([(), (), (("h", b"x"),), (("h", None), ("i", b"y"))]),
        ),
        min_size=1,
        max_size=5,
    ),
    codec=st.integers(0, 4),
    producer=st.sampled_from([(-1, -1, -1), (7, 0, 0), (7, 1, 5), (7, 0, -1)]),
    transactional=st.booleans(),
    changed=st.lists(FIELDS_OF_A_HEADER, max_size=2),
    damage=st.one_of(st.none(), st.none(), st.integers(0, 1 << 20)),
    seals=st.booleans(),
    more=st.sampled_from([b"", b"", b"x", bytes(70)]),
    config=CONFIGS,
    zstd_allowed=st.booleans(),
    client=st.sampled_from([True, True, False]),
    limits=LIMITS,
    left=st.fixed_dictionaries({}, optional={name: st.sampled_from([1, 40, 150, 5000]) for name in ALLOWED}),
)
@settings(max_examples=600, deadline=None)
def test_the_short_way_agrees_with_the_long_one(
    made: list[Record],
    codec: int,
    producer: tuple[int, int, int],
    transactional: bool,
    changed: list[tuple[int, int]],
    damage: int | None,
    seals: bool,
    more: bytes,
    config: LogConfig,
    zstd_allowed: bool,
    client: bool,
    limits: BatchLimits,
    left: dict[str, int],
) -> None:
    """On the bytes, the fields, each refusal with its words, and what is left of the loop's time."""
    batch = build_batch(
        [record._replace(offset_delta=at) for at, record in enumerate(made)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
        compression=codec,
    )
    if damage is not None:
        batch[HEADER_SIZE + damage % (len(batch) - HEADER_SIZE)] ^= 1 << damage % 7
    fields = list(HEADER.unpack_from(batch))
    for at, value in changed:
        fields[at] = value & 0xFFFFFFFF if at == 4 else value
    with contextlib.suppress(struct.error):  # the value is too large for the field
        HEADER.pack_into(batch, 0, *fields)
    if seals:
        struct.pack_into(">I", batch, CRC_POSITION, crc_of(batch))
    batch += more
    origin = Origin.CLIENT if client else Origin.COORDINATOR

    def short(data: memoryview, allowance: Allowance) -> ValidatedBatch:
        return validate_produce(
            data,
            config,
            NOW_MS,
            zstd_allowed=zstd_allowed,
            origin=origin,
            limits=limits,
            allowance=allowance,
        )

    def long(data: memoryview, allowance: Allowance) -> ValidatedBatch:
        return validation._validated(data, config, NOW_MS, zstd_allowed, client, limits, allowance)

    assert outcome(short, batch, left) == outcome(long, batch, left)


@pytest.mark.skipif(not IS_COMPILED, reason="the short way needs the compiled extension")
def test_the_usual_batch_takes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_validated", None)
    monkeypatch.setattr(validation, "_checked_at_once", None)
    for codec in range(5):
        validate(build_batch(records(), compression=codec, producer_id=7, producer_epoch=0, base_sequence=0))
