"""The compiled reader of a plain Produce compared with its simple twin, for any bytes. It accepts nothing that the checks of
a broker refuse, and what it finds is what they find."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.config import LogConfig
from kafkacompat.records import plain_produce
from kafkacompat.records._tests.bombs import batch_around, record_of_headers, tiny_records
from kafkacompat.records._tests.examples import examples
from kafkacompat.records._tests.plain_request import BYTES_MOST, UNPACKED_A_CALL, UNPACKED_MOST, parsed
from kafkacompat.records._tests.test_scan import hostile_bodies, one_record
from kafkacompat.records.batch import CRC_POSITION, HEADER, HEADER_SIZE, build_batch, crc_of
from kafkacompat.records.compression import LZ4, compress, decompress
from kafkacompat.records.crc import crc32c
from kafkacompat.records.limits import BatchLimits
from kafkacompat.records.plain_produce import (
    PlainAllowance,
    allowance_for,
    bounds_of,
    read_frame,
    scan_packed,
)
from kafkacompat.records.record import Record, encode_records
from kafkacompat.records.scan import scan_in_python
from kafkacompat.records.validate import (
    BATCH_UNITS,
    PARTITION_UNITS,
    STEP_UNITS,
    Allowance,
    validate_produce,
)
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.produce_response import ProduceResponse

try:
    from kafkacompat.records import _produce
except ImportError:
    _produce = None  # type: ignore[assignment]
pytestmark = pytest.mark.skipif(
    plain_produce.compiled is None, reason="no compiler built kafkacompat.records._produce"
)

NOW_MS = 1_700_000_000_000
EVERYTHING = (1 << 40, 1, 1 << 62, 1 << 62, 1 << 62, 1 << 62)
"""Units, units of a partition, records, headers, headers of a record, unpacked bytes."""
if _produce is not None and hasattr(_produce, "use_lz4"):
    assert _produce.use_lz4(lz4.frame._frame.__file__)


def request(*batches: bytes | bytearray | None, acks: int = -1, **fields: Any) -> ProduceRequest:
    """For partitions of one topic."""
    partitions = [PartitionProduceData(index=at, records=each) for at, each in enumerate(batches)]
    topic = TopicProduceData(name="t", topic_id=b"i" * 16, partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic], **fields)


def framed(body: bytes | bytearray, version: int, client_id: bytes | None = b"me") -> bytes:
    """A frame with an old header, or with a flexible one without tags."""
    size = -1 if client_id is None else len(client_id)
    tags = b"\0" if version >= 9 else b""
    return struct.pack(">hhih", 0, version, 7, size) + (client_id or b"") + tags + bytes(body)


def both(
    body: bytes | bytearray,
    version: int,
    bounds: tuple[int, ...] = EVERYTHING,
    client_id: bytes | None = b"me",
) -> Any:
    """What both find in a request; they must agree."""
    return both_in(framed(body, version, client_id), version, bounds)


def both_in(frame: bytes, version: int, bounds: Any = EVERYTHING) -> Any:
    found = _produce.read_frame(frame, version, bounds)
    assert found == parsed(frame, version, bounds)
    return found


def usual(made: ProduceRequest, version: int = 9) -> Any:
    """What is found within the usual limits."""
    return read_frame(memoryview(framed(encode(made, version), version)), version, bounds_of(BatchLimits()))


def plain_batch(count: int = 3, **options: Any) -> bytearray:
    return build_batch([Record(at, NOW_MS + at, b"k", b"value") for at in range(count)], **options)


# Whole requests.

batches = st.builds(
    lambda records, codec, producer: build_batch(
        [each._replace(offset_delta=at) for at, each in enumerate(records)], compression=codec, **producer
    ),
    st.lists(
        one_record.map(lambda each: each._replace(timestamp_ms=each.timestamp_ms % (1 << 40))),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    st.fixed_dictionaries(
        {},
        optional={
            "producer_id": st.integers(-1, 5),
            "producer_epoch": st.integers(-1, 3),
            "base_sequence": st.integers(-1, 9),
            "is_transactional": st.booleans(),
            "is_control": st.just(False) | st.booleans(),
            "log_append_time_ms": st.none() | st.just(NOW_MS),
            "base_offset": st.sampled_from([0, 0, 0, 1]),
        },
    ),
)
hostile_batches = st.builds(lambda made: bytes(batch_around(made[0], 0, made[1])), hostile_bodies())


@st.composite
def changed_headers(draw: st.DrawFn) -> bytes:
    """A batch with one header field replaced, and a CRC that covers it."""
    batch = plain_batch()
    fields = list(HEADER.unpack_from(batch))
    at = draw(st.integers(0, len(fields) - 1))
    size = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)[at]
    bits = 8 * size
    value = draw(
        st.integers(-2, 6) | st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.just((1 << bits - 1) - 1)
    )
    fields[at] = value & 0xFFFFFFFF if at == 4 else value
    HEADER.pack_into(batch, 0, *fields)
    if at != 4:
        struct.pack_into(">I", batch, CRC_POSITION, crc_of(batch))
    return bytes(batch)


@st.composite
def lz4_frames(draw: st.DrawFn) -> tuple[bytes, int]:
    """Frames of all kinds, also of several blocks, whole or damaged behind any correct checksum of the header. And a count."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        body, count = draw(hostile_bodies())
    else:
        value = draw(st.binary(max_size=40)) * draw(st.sampled_from([1, 3, 3000]))
        sizes = draw(st.lists(st.sampled_from([0, 9, 30_000, 70_000]), min_size=1, max_size=4))
        made = [Record(at, 0, None, bytes(size) + value) for at, size in enumerate(sizes)]
        body, count = bytes(encode_records(made, 0)), len(made)
    frame = bytearray(
        lz4.frame.compress(
            body,
            block_size=draw(st.integers(4, 7)),
            block_linked=draw(st.booleans()),
            store_size=draw(st.booleans()),
            content_checksum=draw(st.sampled_from([False, False, True])),
            block_checksum=draw(st.sampled_from([False, False, True])),
        )
    )
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at = draw(st.integers(0, min(len(frame), 24)) | st.integers(0, len(frame)))
        frame[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3) | st.just(b"\x80"))
    end = 14 if len(frame) > 14 and frame[4] & 0x08 else 6
    if len(frame) > end and draw(st.booleans()):
        frame[end] = xxhash.xxh32(bytes(frame[4:end])).intdigest() >> 8 & 0xFF
    return bytes(frame), count


any_records = st.one_of(
    lz4_frames().map(lambda made: bytes(batch_around(made[0], LZ4, made[1]))),
    batches,
    batches,
    hostile_batches,
    changed_headers(),
    st.none(),
    st.binary(max_size=70),
    batches.map(lambda batch: batch + batch),
    batches.map(lambda batch: batch[:-1]),
)


@st.composite
def requests(draw: st.DrawFn) -> ProduceRequest:
    """Several topics, some named twice, with the partitions of each, some named twice."""
    of = draw(st.sampled_from([batches, any_records]))
    topics = [
        TopicProduceData(
            name=name,
            topic_id=name.encode()[:16].ljust(16, b"\0"),
            partition_data=[
                PartitionProduceData(index=index, records=draw(of))
                for index in draw(st.lists(st.integers(-1, 4), max_size=3))
            ],
        )
        for name in draw(st.lists(st.sampled_from(["t", "topic", "\u00e9", "n" * 200]), max_size=3))
    ]
    return ProduceRequest(
        transactional_id=draw(st.sampled_from([None, None, None, None, "", "id"])),
        acks=draw(st.sampled_from([-1, 0, 1, -1, 0, 1, 2, -2])),
        timeout_ms=draw(st.integers(-(2**31), 2**31 - 1)),
        topic_data=topics,
    )


client_ids = st.none() | st.binary(max_size=9) | st.just(b"producer-1") | st.just("\u00e9".encode())
bounds_of_both = st.tuples(
    st.sampled_from([1 << 40, 1 << 40, 100, 5, 1]),
    st.sampled_from([1, 48]),
    st.sampled_from([1 << 40, 2]),
    st.sampled_from([1 << 40, 2, 0]),
    st.sampled_from([1 << 40, 1, 0]),
    st.sampled_from([1 << 40, 1 << 40, 60, 0, -1]),
)


@settings(max_examples=examples(600), deadline=None)
@given(requests(), st.integers(3, 13), bounds_of_both, client_ids)
def test_both_find_the_same_in_any_request(
    made: ProduceRequest, version: int, bounds: tuple[int, ...], client_id: bytes | None
) -> None:
    both(encode(made, version), version, bounds, client_id)


@settings(max_examples=examples(600), deadline=None)
@given(requests(), st.integers(3, 13), st.data())
def test_both_find_the_same_in_damaged_requests(
    made: ProduceRequest, version: int, data: st.DataObject
) -> None:
    """Bytes that are changed, removed or inserted at any place after key and version, mostly in front of the records."""
    body = bytearray(framed(encode(made, version), version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, min(len(body), 54)) | st.integers(4, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=3)
            | st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x01"])
        )
    both_in(bytes(body), version)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(3, 13))
def test_both_find_nothing_in_noise(noise: bytes, version: int) -> None:
    both(noise, version)
    both_in(struct.pack(">hh", 0, version) + noise, version)


@pytest.mark.parametrize("version", range(3, 14))
def test_a_plain_request_is_found_whole_and_never_a_part_of_it(version: int) -> None:
    made = request(
        plain_batch(),
        plain_batch(2, producer_id=7, producer_epoch=1, base_sequence=9),
        plain_batch(compression=3),
    )
    body = encode(made, version)
    found = both(body, version, client_id=b"header")
    assert found is not None
    frame = framed(body, version, b"header")
    position, acks, timeout_ms, units, all_read, ((name, rows, _),) = found
    assert (frame[position:], all_read) == (body, True)
    assert (acks, timeout_ms, units) == (-1, 30_000, EVERYTHING[0] - 3)
    assert name == ("t" if version < 13 else b"i" * 16)
    assert [row[0] for row in rows] == [0, 1, 2]
    assert [row[4] for row in rows] == [0, 0, 3]
    assert rows[1][8:11] == (7, 1, 9)
    assert [row[11] for row in rows] == [1, 1, 1]
    for part, row in zip(made.topic_data[0].partition_data, rows, strict=True):
        assert frame[row[1] : row[2]] == part.records
    for end in range(len(frame)):
        assert _produce.read_frame(frame[:end], version, EVERYTHING) is None
    assert both(bytes(body) + b"\0", version) is None


@settings(max_examples=examples(200), deadline=None)
@given(any_records, st.integers(7, 13))
def test_nothing_is_accepted_that_the_checks_refuse(records: Any, version: int) -> None:
    """With the settings of a usual topic the long way finds the same batch."""
    found = usual(request(records), version)
    if found is None:
        return
    ((_, (row,), summary),) = found[5]
    view = memoryview(bytearray(framed(encode(request(records), version), version)))[row[1] : row[2]]
    if row[4]:
        seen = scan_packed(view, row[4], row[5], row[6], row[7], BatchLimits(), Allowance())
        if row[11]:
            assert seen == (summary[2], summary[4])
        if seen is None:
            return
    batch = validate_produce(view, LogConfig(message_timestamp_after_max_ms=1 << 62), NOW_MS)
    assert bytes(batch.buffer) == records
    assert (batch.size, batch.compression, batch.record_count) == row[3:6]
    assert (batch.max_timestamp_ms, batch.producer_id, batch.producer_epoch, batch.base_sequence) == row[7:11]


# Answers.


@st.composite
def answers(draw: st.DrawFn) -> tuple[int, Any, Any, int | None]:
    """A version, topics, results and a correlation id, mostly as many as there are partitions, and mostly without refusals."""
    version = draw(st.integers(5, 13))
    int64 = st.integers(-(1 << 63), (1 << 63) - 1)
    topics, count = [], 0
    for name in draw(st.lists(st.sampled_from(["t", "\u00e9", "n" * 126, "n" * 127, "n" * 249]), max_size=4)):
        indexes = draw(st.lists(st.integers(-1, 1 << 31 - 1), max_size=3) | st.just(list(range(40))))
        topics.append(
            (name if version < 13 else name.encode()[:16].ljust(16), [(each,) for each in indexes], None)
        )
        count += len(indexes)
    results: list[Any] = [draw(st.tuples(int64, int64)) for _ in range(count)]
    if draw(st.integers(0, 9)) == 0 and results:
        results[draw(st.integers(0, count - 1))] = "refused"
    return version, topics, results, draw(st.none() | st.integers(-(1 << 31), (1 << 31) - 1))


@settings(max_examples=examples(400), deadline=None)
@given(answers())
def test_both_pack_the_same_answer(answer: tuple[int, Any, Any, int | None]) -> None:
    version, _, results, correlation_id = answer
    packed = plain_produce.packed_in_python(*answer)
    if len(results) > 128:
        packed = None
    assert _produce.pack_answer(*answer) == packed
    if packed is None:
        return
    if correlation_id is not None:
        assert struct.unpack_from(">ii", packed) == (len(packed) - 4, correlation_id)
        packed = packed[8 + (version >= 9) :]
    response = decode(ProduceResponse, version, packed)
    assert encode(response, version) == packed
    rows = [
        (one.base_offset, one.log_start_offset)
        for topic in response.responses
        for one in topic.partition_responses
    ]
    assert rows == results


def test_what_is_no_answer_is_refused() -> None:
    one: Any = [("t", [(0,)], None)]
    assert _produce.pack_answer(9, one, [(1, 2)], None)
    for version, topics, results in [
        (4, one, [(1, 2)]),
        (14, one, [(1, 2)]),
        (9, one, []),
        (9, one, [(1, 2), (1, 2)]),
        (9, one, [(1, 2, 3)]),
        (9, one, [[1, 2]]),
        (9, [("t", [()], None)], [(1, 2)]),
        (9, [("t", 7, None)], [(1, 2)]),
        (9, [("n" * 250, [(0,)], None)], [(1, 2)]),
        (9, [(b"t", [(0,)], None)], [(1, 2)]),
        (13, one, [(1, 2)]),
        (13, [(b"i" * 15, [(0,)], None)], [(1, 2)]),
        (9, [None], [(1, 2)]),
        (9, one * 129, [(1, 2)] * 129),
    ]:
        assert _produce.pack_answer(version, topics, results, None) is None  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        _produce.pack_answer(9, one, [(1 << 63, 2)], None)
    with pytest.raises(TypeError):
        _produce.pack_answer(9, one, [("a", 2)], None)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        _produce.pack_answer(9, tuple(one), [(1, 2)], None)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        _produce.pack_answer(9, [("\ud800", [(0,)], None)], [(1, 2)], None)  # type: ignore[list-item]


# Bounds.


def test_a_request_has_so_many_partitions_and_bytes_at_most() -> None:
    batch = plain_batch(1)
    for count, is_plain in ((128, True), (129, False)):
        assert (both(encode(request(*[batch] * count), 9), 9) is not None) is is_plain
    half = build_batch([Record(0, 0, None, bytes(BYTES_MOST // 2))])
    room = BYTES_MOST - len(framed(encode(request(half), 9), 9))
    for more, is_plain in ((-9, True), (9, False)):
        large = build_batch([Record(0, 0, None, bytes(BYTES_MOST // 2 + room + more))])
        assert (both(encode(request(large), 9), 9) is not None) is is_plain


def test_work_is_counted_and_bounded() -> None:
    body = encode(request(build_batch([Record(at, 0, b"k", b"v", (("h", None),)) for at in range(160)])), 9)
    for units, left in ((21 + 48, 1), (20 + 48, 0), (19 + 48, None)):
        found = both(body, 9, (units, 48, 1 << 40, 1 << 40, 1 << 40, 0))
        assert (None if found is None else found[3]) == left
    most = STEP_UNITS // (PARTITION_UNITS + BATCH_UNITS)
    for count, is_plain in ((most, True), (most + 1, False)):
        assert (usual(request(*[plain_batch(1)] * count)) is not None) is is_plain


def test_limits_of_records_and_headers_hold() -> None:
    many = encode(request(batch_around(bytes(tiny_records(5)), 0, 5)), 9)
    assert both(many, 9, (1 << 40, 1, 5, 0, 0, 0)) is not None
    assert both(many, 9, (1 << 40, 1, 4, 0, 0, 0)) is None
    headed = encode(request(batch_around(record_of_headers(5), 0)), 9)
    assert both(headed, 9, (1 << 40, 1, 1, 5, 5, 0)) is not None
    assert both(headed, 9, (1 << 40, 1, 1, 4, 5, 0)) is None
    assert both(headed, 9, (1 << 40, 1, 1, 5, 4, 0)) is None


@pytest.mark.parametrize(
    ("base_ms", "deltas"),
    [((1 << 63) - 1, (1,)), (-(1 << 63), (-1, 0)), ((1 << 63) - 1, (0, -5)), (0, (0, (1 << 62)))],
)
def test_timestamps_that_overflow_are_not_plain(base_ms: int, deltas: tuple[int, ...]) -> None:
    batch = build_batch([Record(at, delta, b"k", b"v") for at, delta in enumerate(deltas)])
    fields = list(HEADER.unpack_from(batch))
    shift = fields[7]
    fields[7] = base_ms
    for max_ms in {(base_ms + max(deltas) - shift + (1 << 63)) % (1 << 64) - (1 << 63), base_ms}:
        fields[8] = max_ms
        HEADER.pack_into(batch, 0, *fields)
        struct.pack_into(">I", batch, CRC_POSITION, crc_of(batch))
        both(encode(request(batch), 9), 9)


def test_wrong_arguments_are_told() -> None:
    frame = framed(encode(request(plain_batch()), 9), 9)
    assert _produce.read_frame(frame, 9, EVERYTHING) is not None
    for version in (2, 14, -1, 1 << 40):
        assert _produce.read_frame(frame, version, EVERYTHING) is None
    assert _produce.read_frame(frame, 9, (1 << 40, 0, 1, 1, 1, 1)) is None
    assert _produce.read_frame(frame, 9, (-5, 1, 1 << 40, 1, 1, 1)) is None
    hostile: Any
    for hostile in ((frame, 1 << 64, EVERYTHING), (frame, 9, (1 << 64, *EVERYTHING[1:]))):
        with pytest.raises(OverflowError):
            _produce.read_frame(*hostile)
    for hostile in (
        (frame, 9),
        (frame, 9, EVERYTHING[1:]),
        (frame, 9, list(EVERYTHING)),
        (frame, None, EVERYTHING),
        (None, 9, EVERYTHING),
    ):
        with pytest.raises(TypeError):
            _produce.read_frame(*hostile)


def test_headers_that_the_usual_way_must_see() -> None:
    """No client id that is not ASCII, no tags, and no length beyond the end."""
    body = encode(request(plain_batch()), 9)
    for client_id in (None, b"", b"me", bytes(range(128))):
        assert both(body, 9, client_id=client_id) is not None
    for client_id in (b"\x80", "\u00e9".encode(), b"a\xff"):
        assert both(body, 9, client_id=client_id) is None
    for size in (-(1 << 15), -2, 3, (1 << 15) - 1):
        frame = bytearray(framed(body, 9))
        struct.pack_into(">h", frame, 8, size)
        assert both_in(bytes(frame), 9) is None
    tagged = bytearray(framed(body, 9))
    tagged[12:13] = b"\1\0\0"
    assert both_in(bytes(tagged), 9) is None


def test_without_the_extension_nothing_is_plain() -> None:
    made = request(plain_batch())
    assert usual(made) is not None
    frame = memoryview(framed(encode(made, 9), 9))
    assert plain_produce.read_nothing(frame, 9, bounds_of(BatchLimits())) is None


# Checksums.


@given(st.binary(max_size=70), st.integers(0, 7), st.integers(0, 9000))
def test_both_checksums_are_crc_32c(data: bytes, skipped: int, times: int) -> None:
    """Of any length and alignment, also of several parts of a kilobyte."""
    whole = memoryview(data * (times // 70 + 1))[skipped:]
    for by_instruction in (True, False):
        assert _produce.checksum(whole, by_instruction) == crc32c(whole)


def test_checksums_around_the_parts() -> None:
    data = bytes(itertools.islice(itertools.cycle(range(251)), 3 * 3072 + 20))
    for size in [*range(20), *(part + more for part in (1024, 3072, 6144, 9216) for more in range(-9, 10))]:
        for by_instruction in (True, False):
            assert _produce.checksum(data[:size], by_instruction) == crc32c(data[:size])


# Batches with a codec.


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(lz4_frames(), min_size=1, max_size=3), st.sampled_from([1 << 20, 1 << 20, 70_000, 100, 0]))
def test_both_find_the_same_in_any_lz4_frame(frames: list[tuple[bytes, int]], most: int) -> None:
    """What is read is a frame that the library unpacks, to what is allowed at most."""
    made = [batch_around(body, LZ4, count) for body, count in frames]
    found = both(encode(request(*made), 13), 13, (*EVERYTHING[:5], most))
    if found is None:
        return
    for (body, count), row in zip(frames, found[5][0][1], strict=True):
        if row[11]:
            assert scan_or_none(decompress(LZ4, body, most), count) is not None


def test_the_usual_frames_of_lz4_are_read() -> None:
    """Of Kafka's producer, librdkafka and this broker, of one block and of several. With a checksum of the content: unread."""
    for value in (b"v", b"value " * 50_000, random.Random(1).randbytes(200_000)):
        body = bytes(encode_records([Record(0, 0, None, value), Record(1, 0, None, value)], 0))
        for options in ({"block_linked": False, "store_size": False}, {}, {"block_size": 7}):
            packed = lz4.frame.compress(body, **options)
            (row,) = both(encode(request(batch_around(packed, LZ4, 2)), 9), 9)[5][0][1]
            assert row[11] == 1
        packed = lz4.frame.compress(body, content_checksum=True)
        (row,) = both(encode(request(batch_around(packed, LZ4, 2)), 9), 9)[5][0][1]
        assert row[11] == 0


def test_a_call_unpacks_so_much_of_a_batch_and_of_a_request() -> None:
    """A batch beyond the one bound is left unread, as are those after it. Beyond the other the request is not plain."""
    whole = bytes(encode_records([Record(0, 0, None, bytes(UNPACKED_MOST - 30))], 0))
    more = bytes(encode_records([Record(0, 0, None, bytes(UNPACKED_MOST))], 0))
    assert len(whole) < UNPACKED_MOST < len(more)
    full, over = (batch_around(compress(LZ4, each), LZ4) for each in (whole, more))
    little = plain_batch(1, compression=LZ4)

    def read(*made: bytearray) -> list[int] | None:
        found = both(encode(request(*made), 9), 9)
        return None if found is None else [row[11] for row in found[5][0][1]]

    assert read(full, little) == [1, 1]
    assert read(little, over, little) == [1, 0, 0]
    assert read(*[full] * (UNPACKED_A_CALL // UNPACKED_MOST)) == [1] * 4
    assert read(*[full] * (UNPACKED_A_CALL // UNPACKED_MOST + 1)) is None


def test_a_library_without_the_functions_is_not_used(tmp_path: Path) -> None:
    for path in (_produce.__file__, str(tmp_path / "nothing.so"), str(tmp_path)):
        assert _produce.use_lz4(path) is False
    with pytest.raises(TypeError):
        _produce.use_lz4(None)  # type: ignore[arg-type]
    (row,) = both(encode(request(plain_batch(compression=LZ4)), 9), 9)[5][0][1]
    assert row[11] == 1


def test_the_library_is_shown_with_the_first_batch_that_is_opened_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(plain_produce, "_has_shown_lz4", False)
    monkeypatch.setattr(plain_produce, "_use_lz4", shown.append)
    for codec in (2, 3, 3):
        batch = memoryview(plain_batch(compression=codec))
        assert scan_packed(batch, codec, 3, NOW_MS, NOW_MS + 2, BatchLimits(), Allowance()) is not None
    assert shown == [lz4.frame._frame.__file__]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_packed_batch_is_scanned_as_it_unpacks(codec: int) -> None:
    records = [Record(at, NOW_MS - at, b"k" if at else None, b"v" * 50) for at in range(40)]
    batch = memoryview(build_batch(records, compression=codec))
    facts = (codec, 40, NOW_MS, NOW_MS)
    allowance = Allowance()
    assert scan_packed(batch, *facts, BatchLimits(), allowance) == (NOW_MS - 39, 1)
    assert allowance.units < STEP_UNITS
    assert scan_packed(batch, codec, 39, NOW_MS, NOW_MS, BatchLimits(), Allowance()) is None
    assert scan_packed(batch, codec, 40, NOW_MS, NOW_MS + 1, BatchLimits(), Allowance()) is None
    assert scan_packed(batch, *facts, BatchLimits(unpacked_bytes=99), Allowance()) is None
    assert scan_packed(batch[:-9], *facts, BatchLimits(), Allowance()) is None
    little = Allowance()
    little.units = 1
    assert scan_packed(batch, *facts, BatchLimits(), little) is None


@given(hostile_bodies())
def test_a_packed_batch_of_hostile_records_is_plain_only_if_it_is_valid(made: tuple[bytes, int]) -> None:
    body, count = made
    batch = memoryview(batch_around(compress(3, body), 3, count))
    greatest = scan_or_none(body, count)
    for latest_ms in {NOW_MS, NOW_MS + (greatest or 0)}:
        found = scan_packed(batch, 3, count, NOW_MS, latest_ms, BatchLimits(), Allowance())
        assert (found is not None) is (greatest is not None and latest_ms == NOW_MS + greatest)


def scan_or_none(body: bytes, count: int) -> int | None:
    """The greatest timestamp delta of a valid body."""
    try:
        found = scan_in_python(body, 0, len(body), 0, count, 1 << 40, 10_000, False)
    except ValueError:
        return None
    return found[5] if found[:2] == (len(body), count) else None


def test_the_header_is_where_the_format_says() -> None:
    assert HEADER.size == HEADER_SIZE


@pytest.mark.parametrize(("codec", "cost"), [(1, 8), (3, 1), (4, 2)])
def test_a_request_unpacks_half_of_what_a_step_may(codec: int, cost: int) -> None:
    """Before anything is unpacked its packed bytes are counted, by what their codec costs."""
    most = Allowance.packed_bytes // 2 // cost // 4
    for more, is_plain in ((0, True), (1, False)):
        batch = batch_around(bytes(most + more - HEADER_SIZE), codec)
        _, _, _, units, all_read, topics = usual(request(*[batch] * 4))
        assert not all_read
        assert (allowance_for(units, topics) is not None) is is_plain
    record = Record(0, NOW_MS, b"k", bytes(Allowance.unpacked_bytes // 2))
    batch = memoryview(build_batch([record], compression=codec))
    for allowance in (Allowance(), PlainAllowance()):
        found = scan_packed(batch, codec, 1, NOW_MS, NOW_MS, BatchLimits(), allowance)
        assert (found is None) is isinstance(allowance, PlainAllowance)
