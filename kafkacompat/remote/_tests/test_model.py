"""Random lives of a tiered log with one replica, beside a model of what it must still have."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, SMALL, TOPIC_ID, batch_of
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.unified_log import LogServices, UnifiedLog
from kafkacompat.ports import FileSlice
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.remote._tests.manager_kit import TIERED, MemoryMetadata, Tier
from kafkacompat.remote.ports import RemoteStorageException, RetriableRemoteStorageException

SEEDS = range(60)
MINUTE_MS = 60_000


class FailingMetadata(MemoryMetadata):
    """Some steps fail, of these half after they were recorded."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.failing = 0.0

    def _step(self, record: Callable[[Any], Deferred[None]], step: Any) -> Deferred[None]:
        if self._rng.random() >= self.failing:
            return record(step)
        if self._rng.random() < 0.5:
            record(step)
        failed: Deferred[None] = Deferred()
        failed.fail(RetriableRemoteStorageException("of the metadata"))
        return failed

    def add_remote_log_segment_metadata(self, metadata: Any) -> Deferred[None]:
        return self._step(super().add_remote_log_segment_metadata, metadata)

    def update_remote_log_segment_metadata(self, update: Any) -> Deferred[None]:
        return self._step(super().update_remote_log_segment_metadata, update)


class Life:
    """A leader, which starts again, is killed, loses power, is truncated. `truncates`: as after unclean elections."""

    def __init__(self, seed: int, retention_bytes: int, *, truncates: bool) -> None:
        self.rng = random.Random(seed)
        self.retention_bytes = retention_bytes
        self.metadata = FailingMetadata(self.rng)
        self.store_fails = 0.0
        self.tier = Tier(replace(TIERED, retention_bytes=retention_bytes))
        self.tier.manager._metadata = self.tier.metadata = self.metadata
        self.tier.storage.fail = self._fail
        self.epoch = 0
        self.records: dict[int, bytes] = {}
        self.batches: list[tuple[int, int]] = []
        """First offset and size."""
        self.start = 0
        """Up to where something may be gone."""
        self.checkpoint = 0
        """The log start that a start finds."""
        self.written = 0
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (4, self.append),
            (3, self.roll),
            (3, self.pass_on),
            (2, self.delete_local_segments),
            (2, self.lead_again),
            (1, self.follow_and_lead),
            (2, self.kill),
            (1, self.stop),
            (1, self.lose_power),
            (1, self.let_the_store_fail),
            (1, self.let_the_metadata_fail),
            (1, self.write_the_checkpoint),
            (1, self.pass_hours),
        ]
        if retention_bytes < 0:
            self.steps.append((1, self.delete_records))
        else:
            self.steps.append((1, self.stop_or_go_on_copying))
        if truncates:
            self.steps.append((1, self.truncate))

    @property
    def log(self) -> UnifiedLog:
        return self.tier.log

    def live(self) -> None:
        self.tier.lead()
        weights, steps = zip(*self.steps, strict=True)
        for step in self.rng.choices(steps, weights, k=self.rng.randrange(5, 40)):
            step()
            self.check_start()
        self.check()

    def _fail(self, operation: str) -> None:
        if self.rng.random() < self.store_fails:
            raise self.rng.choice((RetriableRemoteStorageException, RemoteStorageException))(operation)

    # What happens

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            first = self.log.log_end_offset
            values = [b"%d" % (self.written + at) for at in range(self.rng.randrange(1, 4))]
            self.written += len(values)
            batch = batch_of(values, NOW_MS + first)
            self.batches.append((first, batch.size))
            self.log.append_as_leader(batch, self.epoch, NOW_MS)
            self.records |= {first + at: value for at, value in enumerate(values)}
        self.log.set_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        self.log.roll(self.log.log_end_offset, NOW_MS)

    def pass_on(self) -> None:
        self.tier.pass_on(self.rng.choice((100, MINUTE_MS)))

    def pass_hours(self) -> None:
        self.tier.pass_on(70 * MINUTE_MS)

    def delete_local_segments(self) -> None:
        self.log.enforce_retention(NOW_MS)

    def delete_records(self) -> None:
        offset = self.rng.randrange(self.log.log_start_offset, self.log.high_watermark + 1)
        self.log.increment_log_start_offset(offset)
        self.start = max(self.start, offset)

    def stop_or_go_on_copying(self) -> None:
        config = self.log.config
        self.log.config = replace(config, remote_log_copy_disable=not config.remote_log_copy_disable)
        self.tier.lead()

    def let_the_store_fail(self) -> None:
        self.store_fails = self.rng.choice((0.0, 0.3))

    def let_the_metadata_fail(self) -> None:
        self.metadata.failing = self.rng.choice((0.0, 0.3))

    def write_the_checkpoint(self) -> None:
        self.checkpoint = self.log.log_start_offset

    def lead_again(self) -> None:
        self.epoch += self.rng.randrange(1, 3)
        self.tier.core.leader_epoch, self.tier.core.is_leader = self.epoch, True
        self.log.assign_epoch_start(self.epoch, self.log.log_end_offset)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.tier.lead()

    def _follow(self) -> None:
        self.epoch += 1
        self.tier.core.leader_epoch, self.tier.core.is_leader = self.epoch, False
        self.tier.lead()

    def follow_and_lead(self) -> None:
        self._follow()
        self.tier.pass_on()
        self.lead_again()

    def truncate(self) -> None:
        first, end = self.log.local_log_start_offset, self.log.log_end_offset
        if first == end:
            return
        self._follow()
        self.log.truncate_to(self.rng.randrange(first, end))
        end = self.log.log_end_offset
        self.records = {offset: value for offset, value in self.records.items() if offset < end}
        self.batches = [batch for batch in self.batches if batch[0] < end]
        self.lead_again()

    def kill(self) -> None:
        self.log.flush()
        self._start(self.tier.disk.copy(), self.rng.choice((self.checkpoint, None)), clean=False)

    def stop(self) -> None:
        self.log.close()
        self.checkpoint = self.log.log_start_offset
        self._start(self.tier.disk.copy(), self.checkpoint, clean=True)

    def lose_power(self) -> None:
        self.log.flush()
        disk = self.tier.disk.lose_power(kept=("/logs",))
        self._start(disk, self.rng.choice((self.checkpoint, None)), clean=False)

    def _start(self, disk: MemoryDisk, log_start_offset: int | None, *, clean: bool) -> None:
        before = self.tier
        before.manager.close()
        config = before.log.config
        tier = self.tier = Tier(config)
        tier._ids = before._ids + 1_000
        parts = open_directory(
            disk,
            DIRECTORY,
            SMALL,
            NOW_MS,
            clean=clean,
            recovery_point=before.log.recovery_point,
            log_start_offset=log_start_offset or 0,
            may_be_tiered=True,
        )
        name, services = TopicPartition("t", 0), LogServices(remote_storage=True)
        tier.log = UnifiedLog(disk, DIRECTORY, name, TOPIC_ID, SMALL, parts, services)
        tier.log.config = config
        tier.core = SimpleNamespace(
            topic_id=TOPIC_ID, topic_partition=name, leader_epoch=self.epoch, is_leader=True, log=tier.log
        )
        tier.storage.segments, tier.storage.fail = before.storage.segments, self._fail
        tier.disk = tier.storage._disk = tier.manager._disk = disk
        tier.manager._metadata = tier.metadata = self.metadata
        passed_ms = before.time.monotonic_ms() - tier.time.monotonic_ms()
        tier.time.advance(max(0, passed_ms))
        self.lead_again()

    # What must be

    def check_start(self) -> None:
        """The log start moves only for DeleteRecords and retention by size."""
        start = self.log.log_start_offset
        if start > self.start:
            left = sum(size for first, size in self.batches if first >= start)
            assert left >= self.retention_bytes >= 0, f"{left} bytes are left from {start} on"
            self.start = start

    def check(self) -> None:
        """Everything is read, in order, from the local files or the remote storage."""
        self.store_fails = self.metadata.failing = 0.0
        for _ in range(6):
            self.tier.pass_on()
        self.check_start()
        found: list[tuple[int, bytes | None]] = []
        offset = self.start
        while offset < self.log.log_end_offset:
            records = [each for each in self._read(offset) if each[0] >= offset]
            assert records, f"nothing from {offset} on"
            found += records
            offset = records[-1][0] + 1
        assert found == [each for each in sorted(self.records.items()) if each[0] >= self.start]

    def _read(self, offset: int) -> list[tuple[int, bytes | None]]:
        max_bytes = self.rng.choice((1, 300, 5_000))
        if offset >= self.log.local_log_start_offset:
            records = self.log.read(offset, max_bytes, self.log.log_end_offset, True).records
            data = records.read() if isinstance(records, FileSlice) else records
        else:
            manager = self.tier.manager
            read = manager._tasks.run(
                "a read",
                manager.read(self.tier.core, offset, max_bytes, minimum_one_batch=True, read_committed=False),
            )
            self.tier.settle()
            data = read.result().records
        return [
            (at, record.value)
            for header in iterate_batches(data)
            for at, record in records_of(data[header.position : header.position + header.size], header)
        ]


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_but_by_delete_records(seed: int, truncates: bool) -> None:
    Life(seed, -1, truncates=truncates).live()


@pytest.mark.parametrize("retention_bytes", [1, 500])
@pytest.mark.parametrize("seed", SEEDS)
def test_retention_by_size_leaves_as_much_as_it_says(seed: int, retention_bytes: int) -> None:
    Life(seed, retention_bytes, truncates=False).live()
