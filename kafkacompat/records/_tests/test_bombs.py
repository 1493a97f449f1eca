"""The cost of hostile batches, counted in units of work, bytes and steps, never in seconds."""

from __future__ import annotations

import dataclasses
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ports import LogRefused
from kafkacompat.records import compression, scan, validate
from kafkacompat.records._tests.bombs import (
    NOW_MS,
    batch_around,
    batch_of_body,
    many_blocks,
    many_frames,
    record,
    record_of_headers,
    record_of_value,
    records_of_headers,
    tables,
    tiny_records,
)
from kafkacompat.records.batch import ValidatedBatch, build_batch, parse_header
from kafkacompat.records.limits import BatchLimits
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record, RecordMalformed, append_varint, read_varint
from kafkacompat.records.validate import (
    STEP_UNITS,
    Allowance,
    TooMuchAtOnce,
    validate_large,
    validate_produce,
)
from kafkacompat.wire.errors import ErrorCode

CODECS = [*range(1, len(compression.CODEC_NAMES))]
ROOMY = LogConfig(max_message_bytes=100 * 1024 * 1024)


@pytest.fixture(autouse=True)
def _in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are those of the Python implementation. test_scan.py checks that the compiled one counts too."""
    monkeypatch.setattr(scan, "_scan", None)


def at_once(batch: Any, config: LogConfig = ROOMY, allowance: Allowance | None = None) -> ValidatedBatch:
    return validate_produce(batch, config, NOW_MS, allowance=allowance or Allowance())


class Driven:
    """A validate of which the steps of the loop and the jobs for threads are counted."""

    def __init__(self, batch: Any, config: LogConfig, **options: Any) -> None:
        self._coroutine = validate_large(batch, config, NOW_MS, self._in_worker, **options)  # type: ignore[arg-type]
        self._result: ValidatedBatch | Exception | None = None
        self._job: tuple[Callable[[], Any], Deferred[Any]] | None = None
        self.steps, self.jobs = 1, 0

    def _in_worker(self, job: Callable[[], Any]) -> Deferred[Any]:
        assert self._job is None, "one job at a time"
        given: Deferred[Any] = Deferred()
        self._job = job, given
        return given

    def step(self) -> bool:
        """Go on to the next pause or job. Returns whether it is over."""
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self._result = end.value
            return True
        except Exception as error:
            self._result = error
            return True
        if isinstance(waits_for, int):
            self.steps += 1
        return False

    def do_job(self) -> None:
        """Do the job that it waits for, if it waits for one."""
        if self._job is None:
            return
        self.jobs += 1
        (job, given), self._job = self._job, None
        try:
            value = job()
        except Exception as error:
            given.fail(error)
        else:
            given.resolve(value)

    def value(self) -> ValidatedBatch:
        if isinstance(self._result, Exception):
            raise self._result
        assert self._result is not None
        return self._result


def in_steps(
    batch: Any, config: LogConfig = ROOMY, limits: BatchLimits | None = None, **options: Any
) -> tuple[ValidatedBatch, int, int]:
    """(the batch, steps of the loop, jobs for threads)."""
    work = Driven(batch, config, limits=limits or BatchLimits(), **options)
    while not work.step():
        work.do_job()
    return work.value(), work.steps, work.jobs


def refusal(batch: Any, config: LogConfig = ROOMY, limits: BatchLimits | None = None) -> LogRefused:
    with pytest.raises(LogRefused) as caught:
        in_steps(batch, config, limits)
    return caught.value


def test_records_of_a_large_batch_are_measured_in_steps() -> None:
    made = [Record(i, NOW_MS, None, b"v" * 10) for i in range(100_000)]
    made[-1] = Record(99_999, NOW_MS, None, b"v" * 10_000)
    config = dataclasses.replace(ROOMY, max_decompressed_message_bytes=10_100)
    batch = build_batch(made, compression=compression.LZ4)
    _, unmeasured, _ = in_steps(batch)
    _, measured, _ = in_steps(batch, config)
    assert measured > unmeasured + 10
    config = dataclasses.replace(config, max_decompressed_message_bytes=10_000)
    assert refusal(batch, config).code == ErrorCode.INVALID_RECORD


# Lengths and offsets of several bytes.


def test_varints_read_byte_by_byte_are_paid_for() -> None:
    padded = b"\x80\x80\x80\x00"  # zero, in four bytes
    body = bytearray()
    count = 1000
    for index in range(count):
        inside = bytearray(b"\0" + padded)
        append_varint(inside, index)
        body += record(inside + padded + padded + b"\2" + padded + padded)
    facts = validate.check_records(bytes(body), count)
    assert isinstance(facts, validate.BodyFacts)
    # The timestamp, the lengths of key and value, and both lengths of the header.
    assert facts.units >= count * (1 + 5 * scan.VARINT_UNITS)


def test_offsets_of_three_bytes_cost_a_batch_no_more_than_those_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []

    def counted(body: Any, position: int, bits: int = 32) -> Any:
        read.append(position)
        return read_varint(body, position, bits)

    monkeypatch.setattr(scan, "read_varint", counted)
    count = 20_000
    facts = validate.check_records(bytes(tiny_records(count, even=False)), count)
    assert isinstance(facts, validate.BodyFacts)
    assert not read
    wrong = bytearray(b"\x80\x80\x02")  # 16384, in three bytes, in place of 0
    with pytest.raises(RecordMalformed, match="offset delta 16384 in the place of 0"):
        validate.check_records(record(b"\0\0" + wrong + b"\1\1\0"), 1)


# Headers


def test_a_record_of_ten_million_headers_is_refused_without_a_look_at_them(monkeypatch: Any) -> None:
    batch = batch_of_body(record_of_headers(10_000_000), compression.ZSTD)
    assert len(batch) < 2000
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    refused = refusal(batch)
    assert refused.code == ErrorCode.INVALID_RECORD
    assert "10000000 headers" in str(refused.message)


def test_headers_of_a_record_and_of_a_batch_are_bounded_by_what_is_set() -> None:
    limits = BatchLimits(headers=100, headers_a_record=10)
    assert in_steps(batch_of_body(record_of_headers(10), 0), limits=limits)
    assert refusal(batch_of_body(record_of_headers(11), 0), limits=limits).code == ErrorCode.INVALID_RECORD
    assert in_steps(batch_of_body(records_of_headers(10, 10), 0, 10), limits=limits)
    # Fewer records may be accepted: a producer splits a batch that is too large.
    many = batch_of_body(records_of_headers(11, 10), 0, 11)
    assert refusal(many, limits=limits).code == ErrorCode.MESSAGE_TOO_LARGE


def test_many_headers_in_many_records_take_steps() -> None:
    batch = batch_of_body(records_of_headers(100, 1000), compression.LZ4, 100)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    checked, steps, jobs = in_steps(batch)
    assert checked.record_count == 100
    # A record is checked in one step with all its thousand headers.
    assert 100_000 // (STEP_UNITS + 1000) <= steps <= 100_000 // STEP_UNITS
    assert jobs == 1


# One large record


def copied_most(batch: Any, config: LogConfig) -> tuple[int, int]:
    """The most bytes of memory that a step of the loop adds, and that all of the work has at a time."""
    work = Driven(batch, config)
    in_a_step = in_all = 0
    tracemalloc.start()
    try:
        while True:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            is_over = work.step()
            in_a_step = max(in_a_step, tracemalloc.get_traced_memory()[1] - before)
            work.do_job()
            in_all = max(in_all, tracemalloc.get_traced_memory()[1])
            if is_over:
                return in_a_step, in_all
    finally:
        tracemalloc.stop()


LARGE = 24 << 20


@pytest.mark.parametrize("later_ms", [0, 5])
@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd"])
def test_a_large_record_is_recompressed_without_a_copy_of_it(target: str, later_ms: int) -> None:
    source = compression.LZ4 if target == "zstd" else compression.ZSTD
    batch = batch_of_body(record_of_value(LARGE, later_ms), source)
    config = dataclasses.replace(ROOMY, compression_type=target)
    in_a_step, in_all = copied_most(bytearray(batch), config)
    assert in_a_step < 4 << 20
    assert in_all < LARGE * 9 // 8 + (8 << 20)
    checked, _, _ = in_steps(batch, config)
    header = parse_header(checked.buffer)
    ((_, only),) = records_of(checked.buffer, header)
    assert (header.base_timestamp_ms, only) == (
        NOW_MS + later_ms,
        Record(0, NOW_MS + later_ms, None, bytes(LARGE)),
    )


@pytest.mark.parametrize("compact", [True, False])
def test_a_large_record_is_refused_without_a_copy_of_it(compact: bool) -> None:
    """For its key or its timestamp."""
    later_ms = 0 if compact else 1 << 40
    batch = batch_of_body(record_of_value(LARGE, later_ms), compression.ZSTD)
    config = dataclasses.replace(ROOMY, cleanup_policy="compact" if compact else "delete")
    in_a_step, _ = copied_most(batch, config)
    assert in_a_step < 1 << 20
    assert refusal(batch, config).record_errors


def test_a_body_that_does_not_get_small_enough_is_compressed_no_further(monkeypatch: Any) -> None:
    read = 0
    real = compression._compress_xerial

    def counting(body: Any, *beginning: bytes) -> bytes:
        nonlocal read
        read += len(body)
        return real(body, *beginning)

    monkeypatch.setattr(compression, "_compress_xerial", counting)
    batch = batch_of_body(record_of_value(LARGE), compression.ZSTD)
    config = LogConfig(compression_type="snappy", max_message_bytes=100_000)
    assert refusal(batch, config).code == ErrorCode.MESSAGE_TOO_LARGE
    # Snappy makes a twentieth of it.
    assert 0 < read < 4 << 20


def test_a_body_that_is_to_be_stored_unpacked_is_unpacked_as_far_as_it_may_be_stored(
    monkeypatch: Any,
) -> None:
    most = 0
    real = compression._Unpacked.add

    def counting(self: Any, part: bytes) -> None:
        nonlocal most
        most = max(most, len(self.body) + len(part))
        real(self, part)

    monkeypatch.setattr(compression._Unpacked, "add", counting)
    batch = batch_of_body(record_of_value(LARGE), compression.ZSTD)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=100_000)
    refused = refusal(batch, config)
    assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(refused.message)
    assert most <= 100_000


@pytest.mark.parametrize("codec", [compression.NONE, *CODECS])
def test_a_body_packed_in_parts_unpacks_to_the_same(codec: int) -> None:
    body = random.Random(1).randbytes(70_000) * 40
    packed = compression.pack(codec, body, None, len(body) * 2, 61)
    assert packed[:61] == bytes(61)
    assert compression.unpack(codec, packed[61:]) == body
    size = len(packed) - 61
    assert len(compression.pack(codec, body, None, size, 61)) == size + 61
    with pytest.raises(compression.PackedTooLarge):
        compression.pack(codec, body, None, size - 1, 61)
    with pytest.raises(compression.PackedTooLarge):
        compression.pack(codec, b"body", None, 3, 61)


@pytest.mark.parametrize("target", ["gzip", "lz4", "zstd"])
def test_a_job_compresses_no_more_than_others_should_wait_for(target: str, monkeypatch: Any) -> None:
    pieces: list[int] = []
    real = compression.Packer.add

    def counting(self: Any, body: Any, start: int = 0, end: int | None = None) -> None:
        pieces.append(len(body[start:end]))
        real(self, body, start, end)

    monkeypatch.setattr(compression.Packer, "add", counting)
    config = dataclasses.replace(ROOMY, compression_type=target)
    source = compression.SNAPPY
    in_steps(batch_of_body(record_of_value(3_000_000), source), config)
    assert max(pieces) <= 1 << 20
    pieces.clear()
    slow = dataclasses.replace(
        config, compression_gzip_level=9, compression_lz4_level=12, compression_zstd_level=19
    )
    in_steps(batch_of_body(record_of_value(300_000), source), slow)
    assert len(pieces) > 3
    assert max(pieces) <= 64 << 10


@pytest.mark.parametrize(
    ("config", "unpacked_max", "code"),
    [
        ({"compression_type": "gzip"}, 1 << 30, ErrorCode.NONE),
        ({}, 1 << 30, ErrorCode.NONE),
        ({"compression_type": "snappy", "max_message_bytes": 10_000}, 1 << 30, ErrorCode.MESSAGE_TOO_LARGE),
        ({"cleanup_policy": "compact"}, 1 << 30, ErrorCode.INVALID_RECORD),
        ({}, 4_000_000, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_large_body_is_freed_by_a_job(
    config: dict[str, Any], unpacked_max: int, code: ErrorCode, monkeypatch: Any
) -> None:
    monkeypatch.setattr(compression, "FREED_AT_ONCE", 1_000_000)
    left: list[int] = []
    real = compression.free

    def counting(body: bytearray) -> None:
        before = len(body)
        real(body)
        left.append(before - len(body))

    monkeypatch.setattr(compression, "free", counting)
    batch = batch_of_body(record_of_value(6_000_000), compression.ZSTD)
    chosen = dataclasses.replace(ROOMY, **config)
    limits = BatchLimits(unpacked_bytes=unpacked_max)
    if code is ErrorCode.NONE:
        in_steps(batch, chosen, limits)
    else:
        assert refusal(batch, chosen, limits).code == code
    if unpacked_max > 6_000_000:
        assert left[0] >= 5_000_000


def test_a_body_that_needs_more_memory_than_given_is_put_off() -> None:
    batch = batch_of_body(record_of_value(5_000_000), compression.ZSTD)
    with pytest.raises(TooMuchAtOnce):
        in_steps(batch, memory_bytes=4_000_000)
    limits = BatchLimits(unpacked_bytes=4_000_000)
    with pytest.raises(LogRefused, match=r"batch\.max\.unpacked\.bytes"):
        in_steps(batch, limits=limits, memory_bytes=4_000_000)


# Records


@pytest.mark.parametrize("codec", [compression.NONE, *CODECS])
def test_more_records_than_are_set_are_refused_before_one_is_read(monkeypatch: Any, codec: int) -> None:
    body = tiny_records(100)
    batch = batch_of_body(body, codec, 100) if codec else batch_around(bytes(body), codec, 100)
    monkeypatch.setattr(validate, "scan", None)
    refused = refusal(batch, limits=BatchLimits(records=99))
    assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "batch.max.records" in str(refused.message)


@pytest.mark.parametrize("codec", [compression.NONE, *CODECS])
def test_more_records_than_the_bytes_can_hold_are_invalid_whatever_is_set(
    monkeypatch: Any, codec: int
) -> None:
    """As in Apache Kafka: the producer must not split what is damaged."""
    body, count = tiny_records(100), 2**31 - 1
    batch = batch_of_body(body, codec, count) if codec else batch_around(bytes(body), codec, count)
    monkeypatch.setattr(validate, "scan", None)
    assert refusal(batch).code == ErrorCode.INVALID_RECORD
    with pytest.raises(LogRefused) as caught:
        at_once(batch)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_body_that_cannot_be_opened_is_told_as_such_whatever_its_count() -> None:
    assert refusal(batch_around(b"?", compression.ZSTD, 2**31 - 1)).code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("body", [tiny_records, lambda count: tiny_records(count, even=False)])
def test_many_records_take_steps_of_bounded_work(body: Any) -> None:
    count = 50_000
    batch = batch_of_body(body(count), compression.ZSTD, count)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    checked, steps, _ = in_steps(batch)
    assert checked.record_count == count
    assert steps <= 2 + 2 * count // STEP_UNITS


@pytest.mark.costly
def test_a_million_tiny_records_are_taken() -> None:
    count = 1_000_000
    body = bytearray().join(_tiny(index) for index in range(count))
    for codec in (compression.NONE, compression.ZSTD):
        checked, steps, _ = in_steps(batch_of_body(body, codec, count))
        assert checked.record_count == count
        assert steps > count // STEP_UNITS // 2


def _varint(value: int) -> bytes:
    out = bytearray()
    value <<= 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tiny(index: int) -> bytes:
    inside = b"\0\0" + _varint(index) + b"\1\2x\0"
    return bytes((2 * len(inside),)) + inside


# Sizes


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unfolds_beyond_the_bound_is_refused_when_the_bound_is_reached(codec: int) -> None:
    batch = batch_of_body(record_of_value(20_000_000), codec)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    _, steps, jobs = in_steps(batch)
    # A snappy block, and the first piece of other bodies, may be larger than a piece.
    assert (steps, 1 < jobs <= 2 + 20_000_000 // compression.PIECE_BYTES) == (1, True)
    refused = refusal(batch, limits=BatchLimits(unpacked_bytes=10_000_000))
    assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "batch.max.unpacked.bytes" in str(refused.message)


@pytest.mark.parametrize("codec", CODECS)
def test_at_once_no_more_is_unpacked_than_allowed(codec: int, monkeypatch: Any) -> None:
    most: list[int] = []
    real = compression._Unpacked.add

    def counting(self: Any, part: bytes) -> None:
        most.append(len(self.body) + len(part))
        real(self, part)

    monkeypatch.setattr(compression._Unpacked, "add", counting)
    allowance = Allowance()
    batch = batch_of_body(record_of_value(20_000_000), codec)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch, allowance=allowance)
    assert max(most, default=0) <= 2 * 1024 * 1024 + 1
    if most:
        # Failed decompression also took time.
        with pytest.raises(TooMuchAtOnce):
            at_once(batch_of_body(record_of_value(10), codec), allowance=allowance)


def test_large_bodies_without_compression_are_copied_in_a_thread() -> None:
    batch = batch_of_body(record_of_value(5_000_000), compression.NONE)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    checked, steps, jobs = in_steps(batch)
    # One for the CRC, and two for the copy.
    assert (checked.size, steps, jobs) == (len(batch), 1, 3)
    batch[-1] ^= 1
    assert refusal(batch).code == ErrorCode.CORRUPT_MESSAGE
    # What follows a batch does not belong to its CRC.
    batch[-1] ^= 1
    assert in_steps(batch + b"cut off")[0].size == len(batch)


def test_a_large_batch_is_not_read_for_its_crc_at_once(monkeypatch: Any) -> None:
    batch = batch_of_body(record_of_value(5_000_000), compression.NONE)
    monkeypatch.setattr(validate, "crc_of", lambda view: pytest.fail("read"))
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_packed_bytes_count_as_the_slowest_body_of_their_codec(codec: int) -> None:
    """A megabyte of gzip with a table of codes every few bytes takes 0.1 s, whatever it unfolds to."""
    cost = {compression.GZIP: 8, compression.SNAPPY: 1, compression.LZ4: 1, compression.ZSTD: 2}[codec]
    size = 1024 * 1024 // cost
    body = record(b"\0\0\0\1" + _varint(size) + random.Random(1).randbytes(size) + b"\0")
    packed = compression.compress(codec, body)
    batch = batch_around(packed, codec)
    assert size < len(packed)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    allowance = Allowance()
    allowance.packed_bytes = cost * len(packed) + 1
    assert at_once(batch, allowance=allowance).size == len(batch)
    assert allowance.packed_bytes == 1


def test_tables_of_codes_every_few_bytes_are_unpacked_in_a_thread() -> None:
    body = record_of_value(1000)
    for packed in (tables(body, 200_000), compression.compress(compression.GZIP, body)):
        assert compression.unpack(compression.GZIP, packed) == body
    batch = batch_around(tables(body, 200_000), compression.GZIP)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch)
    checked, _, jobs = in_steps(batch)
    assert (checked.size, jobs) == (len(batch), 1)


@pytest.mark.parametrize("codec", CODECS)
def test_many_frames_are_refused(codec: int) -> None:
    assert compression.unpack(codec, many_frames(codec, 900)) in (b"x" * 900, b"")
    refused = refusal(batch_around(many_frames(codec, 2000), codec))
    assert refused.code == ErrorCode.INVALID_RECORD
    assert "batch.max.compressed.frames" in str(refused.message)


def test_many_empty_snappy_blocks_are_refused() -> None:
    with pytest.raises(compression.TooManyFrames):
        compression.unpack(compression.SNAPPY, many_blocks(2000))


def test_small_snappy_blocks_of_an_honest_stream_are_taken() -> None:
    """Java's smallest block is 1 KiB."""
    block = compression.compress(compression.SNAPPY, b"y" * 1024)[16:]
    stream = compression.compress(compression.SNAPPY, b"x") + block * 3000
    assert len(compression.unpack(compression.SNAPPY, stream)) == 1 + 1024 * 3000


def test_members_and_frames_are_read_in_time_that_grows_with_their_number(monkeypatch: Any) -> None:
    """Unused bytes of a frame are copied: a few for each frame, not the whole rest."""
    for codec in (compression.GZIP, compression.LZ4):
        packed = memoryview(many_frames(codec, 1000) + bytes(2_000_000))
        copied = 0

        class Watched:
            def __init__(self, view: memoryview) -> None:
                self.view = view

            def __len__(self) -> int:
                return len(self.view)

            def __getitem__(self, at: slice) -> memoryview:
                nonlocal copied
                part = self.view[at]
                copied += len(part)
                return part

        unpacked = compression._Unpacked("x", 10_000_000, 1000)
        for _ in compression._OPENERS[codec](Watched(packed), unpacked):  # type: ignore[arg-type]
            pass
        assert len(unpacked.body) == 1000
        assert copied < 8_000_000


# The topic's settings.


def test_records_to_blame_are_looked_for_in_steps(monkeypatch: Any) -> None:
    count = 20_000
    config = dataclasses.replace(ROOMY, message_timestamp_before_max_ms=0)
    base = [Record(index, NOW_MS, None, b"v") for index in range(count - 1)]
    batch = build_batch([*base, Record(count - 1, NOW_MS - 5, None, b"v")], compression=compression.LZ4)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch, config)
    paused = 0
    real = validate._refuse_records

    def counting(*arguments: Any) -> Any:
        nonlocal paused
        for step in real(*arguments):
            paused += 1
            yield step

    monkeypatch.setattr(validate, "_refuse_records", counting)
    refused = refusal(batch, config)
    assert paused == -(-count // validate.STEP_ROWS)
    assert refused.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.record_errors] == [count - 1]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ({"compression_type": "snappy"}, 65_000),
        ({"compression_type": "lz4"}, 65_000),
        ({"compression_type": "zstd"}, 65_000),
        ({"compression_type": "zstd", "compression_zstd_level": 1}, 65_000),
        ({"compression_type": "uncompressed"}, 65_000),
        ({"compression_type": "gzip"}, 16_000),
        ({"compression_type": "gzip", "compression_gzip_level": 1}, 16_000),
        ({"compression_type": "gzip", "compression_gzip_level": 7}, 0),
        ({"compression_type": "lz4", "compression_lz4_level": 3}, 0),
        ({"compression_type": "lz4", "compression_lz4_level": 17}, 0),
        ({"compression_type": "zstd", "compression_zstd_level": 4}, 0),
    ],
)
def test_slow_levels_pack_in_a_thread(name: dict[str, Any], most: int) -> None:
    """64 KiB of two letters in random order take up to 0.3 s."""
    config = dataclasses.replace(ROOMY, **name)
    codec = compression.LZ4 if config.compression_type != "lz4" else compression.ZSTD
    if most:
        assert at_once(batch_of_body(record_of_value(most), codec), config)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch_of_body(record_of_value(most + 1000), codec), config)
    checked, _, jobs = in_steps(batch_of_body(record_of_value(most + 1000), codec), config)
    assert checked.record_count == 1
    assert jobs == 2


@pytest.mark.parametrize("first_delta", [0, 5])
def test_large_batches_are_written_anew_in_steps_and_a_thread(first_delta: int) -> None:
    config = dataclasses.replace(ROOMY, compression_type="gzip")
    count = 5000
    body = bytearray()
    for index in range(count):
        inside = b"\0" + _varint(first_delta if not index else 7) + _varint(index) + b"\1" + _varint(40)
        inside += b"%040d" % index + b"\0"
        body += _varint(len(inside)) + inside
    batch = batch_of_body(body, compression.ZSTD, count)
    with pytest.raises(TooMuchAtOnce):
        at_once(batch, config)
    checked, steps, jobs = in_steps(batch, config)
    assert jobs == (3 if first_delta else 2)
    assert steps > (count // validate.STEP_ROWS if first_delta else 0)
    header = parse_header(checked.buffer)
    assert header.base_timestamp_ms == NOW_MS + first_delta
    found = list(records_of(checked.buffer, header))
    assert len(found) == count
    assert [record.timestamp_ms for _, record in found[:2]] == [NOW_MS + first_delta, NOW_MS + 7]
    assert found[-1][1].value == b"%040d" % (count - 1)


# Normal batches.


@pytest.mark.parametrize("codec", range(5))
def test_ordinary_batches_are_validated_at_once(codec: int) -> None:
    """16 KiB of records, and one MiB of them."""
    for count in (16, 1000):
        batch = build_batch(
            [Record(i, NOW_MS, b"k%d" % i, b"%01000d" % i) for i in range(count)], compression=codec
        )
        assert at_once(batch).record_count == count


def test_the_old_formats_are_refused_by_the_first_message_alone(monkeypatch: Any) -> None:
    seen = 0
    real = validate.iterate_batches

    def counting(buffer: Any) -> Any:
        nonlocal seen
        for header in real(buffer):
            seen += 1
            yield header

    monkeypatch.setattr(validate, "iterate_batches", counting)
    message = b"\0" * 8 + (14).to_bytes(4, "big") + bytes(14)
    assert refusal(message * 10_000).code == ErrorCode.INVALID_RECORD
    assert seen <= 2
