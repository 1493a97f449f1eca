"""Large batches leave nothing behind: neither their records nor their bodies wait for the garbage collector, which
counts objects and comes seldom."""

from __future__ import annotations

import errno
import gc
from collections.abc import Iterator

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import LogConfig
from kafkacompat.partition import replica_manager
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.replica_manager import LargeBatches
from kafkacompat.ports import LogRefused
from kafkacompat.records import compression
from kafkacompat.records._tests.bombs import batch_of_body, record_of_value
from kafkacompat.records.limits import BatchLimits
from kafkacompat.wire.errors import ErrorCode

CONFIG = LogConfig(max_message_bytes=1 << 20)


@pytest.fixture(autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def validated(records: bytearray, config: LogConfig = CONFIG) -> object:
    time, workers = HandTime(), HandWorkers()
    batches = LargeBatches(partition_services(1, None, time, workers), BatchLimits(unpacked_bytes=1 << 20))
    verdict = batches.validate(records, config, True)
    while not verdict.done:
        while time.step():
            pass
        workers.run()
    return verdict.result()


def openers() -> int:
    return sum([isinstance(each, compression.Unpacking) for each in gc.get_objects()])


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.ZSTD])
@pytest.mark.parametrize("is_huge", [False, True])
def test_a_valid_batch(codec: int, is_huge: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_manager, "USUAL_BYTES", 1_000 if is_huge else 1 << 20)
    before = openers()
    records = batch_of_body(record_of_value(100_000), codec)
    assert not isinstance(validated(records), LogRefused)
    records.append(0)  # BufferError if anything still has a view of it
    assert openers() == before


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (batch_of_body(b"\xff" * 100_000, compression.NONE), ErrorCode.INVALID_RECORD),
        (batch_of_body(record_of_value(2 << 20), compression.GZIP), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of_body(record_of_value(2 << 20), compression.NONE), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_refused_batch(records: bytearray, code: ErrorCode) -> None:
    before = openers()
    verdict = validated(records)
    assert isinstance(verdict, LogRefused)
    assert verdict.code is code
    records.append(0)
    assert openers() == before


def test_a_batch_that_another_codec_makes_too_large() -> None:
    before = openers()
    records = batch_of_body(record_of_value(900_000), compression.GZIP)
    verdict = validated(records, LogConfig(max_message_bytes=2_000, compression_type="lz4"))
    assert isinstance(verdict, LogRefused)
    assert verdict.code is ErrorCode.MESSAGE_TOO_LARGE
    records.append(0)
    assert openers() == before


@pytest.mark.parametrize("fault", [OSError(errno.EMFILE, "no library"), MemoryError()])
def test_a_batch_that_cannot_be_opened_now_is_refused_alone(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other partitions of its request may have their records. A failure would tell their producer that they have not."""

    def lacks(*_: object) -> bool:
        raise fault

    monkeypatch.setattr(compression.Unpacking, "go_on", lacks)
    records = batch_of_body(record_of_value(100_000), compression.GZIP)
    verdict = validated(records)
    assert isinstance(verdict, LogRefused)
    assert verdict.code is ErrorCode.KAFKA_STORAGE_ERROR
