"""Random lives of a compacted topic that is tiered: two replicas that are cleaned each for itself, beside a model of what a
consumer must find."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, SMALL, TOPIC_ID, marker
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import REMOTE_CLEANING
from kafkacompat.log.cleaner._tests.cleaning import clean, cleaner_of
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.unified_log import LogServices, UnifiedLog
from kafkacompat.ports import FileSlice
from kafkacompat.records.batch import build_batch, iterate_batches, trusted_batch
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.remote._tests.manager_kit import TIERED, Tier
from kafkacompat.remote._tests.test_model import FailingMetadata
from kafkacompat.remote.cleaning import first_dirty_offset
from kafkacompat.remote.ports import RemoteStorageException, RetriableRemoteStorageException

SEEDS = range(40)
KEYS = [b"key-%d" % number for number in range(12)]
COMPACTED = replace(
    TIERED,
    cleanup_policy=("compact",),
    delete_retention_ms=60_000,
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=900,
)
PLAIN = replace(COMPACTED, remote_storage_enable=False)
NAME = TopicPartition("t", 0)
MINUTE_MS = 60_000


class Lives:
    """A leader and a follower with one remote store. Each may be killed, and may lose its disk while it follows."""

    def __init__(self, seed: int, *, begins_tiered: bool) -> None:
        self.rng = random.Random(seed)
        self.metadata = FailingMetadata(self.rng)
        self.store_fails = 0.0
        self.config = COMPACTED if begins_tiered else PLAIN
        self.epoch = 0
        self.now_ms = NOW_MS
        self.written = 0
        self.sequences: dict[int, int] = {}
        self.values: dict[bytes, bytes | None] = {}
        self.replicas = [self._tier(MemoryDisk()), self._tier(MemoryDisk())]
        first = self.replicas[0].storage
        for tier in self.replicas:
            tier.storage.segments, tier.storage.fail = first.segments, self._fail
        self.segments = first.segments
        self.steps = [
            (8, self.append),
            (2, self.append_transaction),
            (5, self.roll),
            (5, self.clean_leader),
            (3, self.clean_follower),
            (5, self.pass_on),
            (4, self.delete_local_segments),
            (5, self.follow),
            (3, self.elect),
            (1, self.kill),
            (1, self.wipe_follower),
            (1, self.let_the_store_fail),
            (1, self.let_the_metadata_fail),
            (2, self.pass_time),
            (1, self.pass_hours),
        ]

    @property
    def leader(self) -> Tier:
        return self.replicas[0]

    @property
    def follower(self) -> Tier:
        return self.replicas[1]

    def live(self) -> None:
        self._take_roles()
        if not self.config.remote_storage_enable:
            self.live_untiered()
        weights, steps = zip(*self.steps, strict=True)
        for step in self.rng.choices(steps, weights, k=self.rng.randrange(20, 200)):
            step()
        self.store_fails = self.metadata.failing = 0.0
        self.check()
        self.elect()
        for _ in range(6):
            self.pass_on()
        self.delete_local_segments()
        self.check()
        self.pass_hours()
        self.check()
        self.check_nothing_is_left_over()

    def live_untiered(self) -> None:
        """Its replicas drop tombstones, one before the other."""
        steps = [
            self.append,
            self.append,
            self.roll,
            self.clean_leader,
            self.clean_follower,
            self.pass_time,
            self.follow,
        ]
        for step in self.rng.choices(steps, k=self.rng.randrange(80)):
            step()
        self.config = COMPACTED
        for tier in self.replicas:
            tier.log.config = COMPACTED
            tier.lead()

    def _fail(self, operation: str) -> None:
        if self.rng.random() < self.store_fails:
            raise self.rng.choice((RetriableRemoteStorageException, RemoteStorageException))(operation)

    def _tier(self, disk: MemoryDisk, before: Tier | None = None) -> Tier:
        tier = Tier(self.config)
        parts = open_directory(disk, DIRECTORY, SMALL, NOW_MS, clean=False, may_be_tiered=True)
        tier.log = UnifiedLog(disk, DIRECTORY, NAME, TOPIC_ID, SMALL, parts, LogServices(remote_storage=True))
        tier.log.config = self.config
        tier.core = SimpleNamespace(
            topic_id=TOPIC_ID, topic_partition=NAME, leader_epoch=self.epoch, is_leader=True, log=tier.log
        )
        tier.disk = tier.storage._disk = tier.manager._disk = disk
        tier.manager._metadata = tier.metadata = self.metadata
        tier.manager._cleaner = lambda: cleaner_of(disk, tier.log)
        tier._ids = self.rng.getrandbits(60)
        if before is not None:
            before.manager.close()
            tier.storage.segments, tier.storage.fail = self.segments, self._fail
            tier.log.cleaned_to = min(before.log.cleaned_to, tier.log.log_end_offset)
        self._advance(tier, 0)
        return tier

    def _advance(self, tier: Tier, delay_ms: int) -> None:
        tier.time.wall_shift_ms = 0
        tier.time.wall_shift_ms = self.now_ms - tier.time.now_ms()
        tier.time.advance(delay_ms)

    def _take_roles(self) -> None:
        for tier, is_leader in ((self.leader, True), (self.follower, False)):
            tier.core.leader_epoch, tier.core.is_leader = self.epoch, is_leader
        self.leader.log.assign_epoch_start(self.epoch, self.leader.log.log_end_offset)
        self.leader.log.set_high_watermark(self.leader.log.log_end_offset)
        for tier in self.replicas:
            tier.lead()

    # What happens

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self._append(-1)
        self.leader.log.set_high_watermark(self.leader.log.log_end_offset)

    def _append(self, producer_id: int) -> dict[bytes, bytes | None]:
        records, written = [], {}
        for at in range(self.rng.randrange(1, 4)):
            key = self.rng.choice(KEYS)
            self.written += 1
            value = None if self.rng.random() < 0.3 else b"%d" % self.written * 3
            records.append(Record(at, self.now_ms, key, value))
            written[key] = value
        options = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        else:
            self.values |= written
        self.leader.log.append_as_leader(
            trusted_batch(build_batch(records, **options)), self.epoch, self.now_ms
        )
        return written

    def append_transaction(self) -> None:
        producer_id = self.rng.randrange(2)
        written = {}
        for _ in range(self.rng.randrange(1, 3)):
            written |= self._append(producer_id)
            if self.rng.random() < 0.3:
                self.roll()
        committed = self.rng.random() < 0.5
        self.leader.log.append_as_leader(marker(producer_id, committed=committed), self.epoch, self.now_ms)
        self.leader.log.set_high_watermark(self.leader.log.log_end_offset)
        if committed:
            self.values |= written

    def roll(self) -> None:
        self.leader.log.roll(self.leader.log.log_end_offset, self.now_ms)

    def clean_leader(self) -> None:
        clean(self.leader.disk, self.leader.log, self.now_ms)

    def clean_follower(self) -> None:
        clean(self.follower.disk, self.follower.log, self.now_ms)

    def pass_on(self) -> None:
        for tier in self.replicas:
            self._advance(tier, MINUTE_MS)
            tier.settle()
        self.now_ms += MINUTE_MS

    def pass_time(self) -> None:
        for _ in range(3):
            self.pass_on()

    def delete_local_segments(self) -> None:
        for tier in self.replicas:
            tier.log.enforce_retention(self.now_ms)

    def pass_hours(self) -> None:
        self.now_ms += 60 * MINUTE_MS
        for _ in range(6):
            self.pass_on()

    def follow(self) -> bool:
        """Returns whether the follower has everything."""
        leader, log = self.leader.log, self.follower.log
        log.roll(log.log_end_offset, self.now_ms)
        while (offset := log.log_end_offset) < leader.log_end_offset:
            if offset < leader.local_log_start_offset:
                if not self._begin_after_remote_segment():
                    return False
                continue
            records = leader.read(offset, 900, leader.log_end_offset, True).records
            data = records.read() if isinstance(records, FileSlice) else bytes(records)
            if not data:
                break
            log.append_as_follower(bytearray(data), self.epoch)
            log.set_high_watermark(leader.high_watermark)
        return log.log_end_offset == leader.log_end_offset

    def _begin_after_remote_segment(self) -> bool:
        leader, tier = self.leader.log, self.follower
        offset = leader.local_log_start_offset - 1
        epoch = leader.epoch_for_offset(offset)
        end_offset = leader.end_offset_for_epoch(epoch).offset
        state = tier.manager._tasks.run(
            "the state", tier.manager.follower_state(self.leader.core, epoch, offset, end_offset)
        )
        tier.settle()
        if not state.done or state.result() is None:
            return False
        end, epochs, snapshot = state.result()
        while not tier.log.start_after_remote_segment(end, leader.log_start_offset, epochs, snapshot):
            pass
        return True

    def elect(self) -> None:
        if self.follow():
            self.replicas.reverse()
            self.epoch += 1
            self._take_roles()
            self.check()

    def kill(self) -> None:
        for at, tier in enumerate(self.replicas):
            tier.log.flush()
            self.replicas[at] = self._tier(tier.disk.copy(), tier)
        self.epoch += 1
        self._take_roles()

    def wipe_follower(self) -> None:
        before = self.follower
        self.replicas[1] = self._tier(MemoryDisk(), before)
        self.follower.log.cleaned_to = -1
        self._take_roles()

    def let_the_store_fail(self) -> None:
        self.store_fails = self.rng.choice((0.0, 0.3))

    def let_the_metadata_fail(self) -> None:
        self.metadata.failing = self.rng.choice((0.0, 0.3))

    # What must be

    def check(self) -> None:
        found: dict[bytes, bytes | None] = {}
        log = self.leader.log
        offset = 0
        fails, self.store_fails = self.store_fails, 0.0
        assert log.log_start_offset == 0
        while offset < log.log_end_offset:
            data, starts = self._read(offset)
            assert data, f"nothing from {offset} on"
            aborted: set[int] = set()
            for header in iterate_batches(data):
                if header.last_offset < offset:
                    continue
                offset = header.last_offset + 1
                batch = data[header.position : header.position + header.size]
                producer_id = header.producer_id
                aborted |= {each for each, first in starts if first <= header.last_offset}
                starts = [each for each in starts if each[1] > header.last_offset]
                if header.is_control:
                    if header.record_count:
                        key = next(record.key for _, record in records_of(batch, header))
                        if parse_control_key(key) == ControlType.ABORT:
                            aborted.discard(producer_id)
                    continue
                if header.is_transactional and producer_id in aborted:
                    continue
                if header.record_count:
                    found |= {record.key: record.value for _, record in records_of(batch, header)}
        self.store_fails = fails
        there = {key: value for key, value in found.items() if value is not None}
        assert there == {key: value for key, value in self.values.items() if value is not None}

    def check_nothing_is_left_over(self) -> None:
        """In the remote storage and on the disks is only what is read, and in the clean part each key has one record."""
        copies = self.metadata.cache.list_all_remote_log_segments()
        pieces = self.metadata.cache.pieces()
        read = {piece.metadata.remote_log_segment_id.id for piece in pieces}
        assert {each.remote_log_segment_id.id for each in copies} == read == set(self.segments)
        clean_to = first_dirty_offset(pieces)
        keys: list[bytes | None] = []
        for piece in pieces:
            data = self.segments[piece.metadata.remote_log_segment_id.id]["log"]
            for header in iterate_batches(data):
                if header.is_control or not piece.start_offset <= header.base_offset < piece.next_offset:
                    continue
                batch = data[header.position : header.position + header.size]
                found = records_of(batch, header) if header.record_count else []
                keys += [record.key for offset, record in found if offset < clean_to]
        assert len(keys) == len(set(keys))
        for tier in self.replicas:
            assert not tier.disk.exists(f"{DIRECTORY}/{REMOTE_CLEANING}")

    def _read(self, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
        log, manager = self.leader.log, self.leader.manager
        max_bytes = self.rng.choice((1, 300, 5_000))
        if offset >= log.local_log_start_offset:
            records = log.read(offset, max_bytes, log.log_end_offset, True).records
            data = records.read() if isinstance(records, FileSlice) else bytes(records)
            ends = [header.last_offset + 1 for header in iterate_batches(data)]
            aborted = log.aborted_transactions(offset, ends[-1] if ends else offset)[0]
        else:
            read = manager._tasks.run(
                "a read",
                manager.read(
                    self.leader.core, offset, max_bytes, minimum_one_batch=True, read_committed=True
                ),
            )
            self.leader.settle()
            data, aborted = read.result()
        return data, [(each.producer_id, each.first_offset) for each in aborted]


@pytest.mark.parametrize("begins_tiered", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_finds_the_last_value_of_each_key(seed: int, begins_tiered: bool) -> None:
    Lives(seed, begins_tiered=begins_tiered).live()


def put(lives: Lives, key: bytes, value: bytes | None, *, rolls: bool = True) -> None:
    """In a segment of its own, if each one rolls."""
    log = lives.leader.log
    batch = build_batch([Record(0, lives.now_ms, key, value)])
    log.append_as_leader(trusted_batch(batch), lives.epoch, lives.now_ms)
    log.set_high_watermark(log.log_end_offset)
    lives.values[key] = value
    if rolls:
        lives.roll()


def test_a_tombstone_that_another_replica_dropped_before_still_holds() -> None:
    """The leader has not met it when the topic is tiered, and the follower has dropped it already."""
    lives = Lives(0, begins_tiered=False)
    lives._take_roles()
    put(lives, b"a", b"1")
    put(lives, b"b", b"2" * 700)
    lives.clean_leader()
    assert lives.leader.log.cleaned_to == 2
    put(lives, b"a", None)
    for key in (b"c", b"d", b"e"):
        put(lives, key, b"3" * 700)
        lives.follow()
        lives.clean_follower()
        lives.pass_time()
    lives.config = COMPACTED
    for tier in lives.replicas:
        tier.log.config = COMPACTED
        tier.lead()
    lives.pass_on()
    lives.delete_local_segments()
    lives.elect()
    lives.check()


def test_what_is_deleted_leaves_the_remote_storage_and_its_tombstone_follows() -> None:
    lives = Lives(0, begins_tiered=True)
    lives._take_roles()

    def remote_keys() -> list[bytes | None]:
        parts = [part["log"] for part in lives.segments.values()]
        batches = [(data, header) for data in parts for header in iterate_batches(data)]
        return [
            record.key
            for data, header in batches
            for _, record in records_of(data[header.position : header.position + header.size], header)
        ]

    def go_on() -> None:
        lives.clean_leader()
        for _ in range(4):
            lives.pass_on()
        lives.delete_local_segments()

    put(lives, b"a", b"1")
    put(lives, b"b", b"2" * 700)
    go_on()
    assert sorted(remote_keys()) == [b"a", b"b"]
    put(lives, b"a", None)
    put(lives, b"c", b"3" * 700)
    go_on()
    assert sorted(remote_keys()) == [b"a", b"b", b"c"]
    assert lives.leader.log.local_log_start_offset == 2
    for key in (b"d", b"e", b"f"):
        put(lives, key, b"4" * 700)
        lives.pass_time()
        go_on()
    assert sorted(remote_keys()) == [b"b", b"c", b"d", b"e", b"f"]
    lives.check()


def test_a_cleaning_that_fails_again_and_again_is_tried_less_and_less_often() -> None:
    """Each one fetches what it cleans."""
    lives = Lives(0, begins_tiered=True)
    lives._take_roles()
    storage = lives.leader.storage

    def damage(operation: str) -> None:
        if operation == "fetch":
            raise RemoteStorageException("damaged")

    storage.fail = damage
    for key in (b"a", b"b"):
        put(lives, key, b"1" * 700)
        lives.clean_leader()
        lives.pass_time()
    for _ in range(100):
        lives.pass_on()
    assert 4 <= storage.calls.count("fetch") <= 8
    storage.fail = lives._fail
    for _ in range(64):
        lives.pass_on()
    assert first_dirty_offset(lives.metadata.cache.pieces()) == 2
    put(lives, b"c", b"1" * 700)
    lives.clean_leader()
    lives.pass_time()
    assert first_dirty_offset(lives.metadata.cache.pieces()) == 3


def test_copies_from_before_a_topic_was_not_tiered_are_not_taken_for_those_of_now() -> None:
    """The store fails, so tiering is disabled, and enabled when it works again. Meanwhile tombstones have gone."""
    lives = Lives(0, begins_tiered=True)
    lives._take_roles()

    def set_config(config: LogConfig) -> None:
        for tier in lives.replicas:
            tier.log.config = config
            tier.lead()

    put(lives, b"b", b"1" * 700)
    put(lives, b"a", b"1", rolls=False)
    put(lives, b"c", b"1" * 700)
    lives.clean_leader()
    lives.pass_on()
    assert len(lives.segments) == 2
    lives.store_fails = 1.0
    set_config(replace(PLAIN, remote_log_delete_on_disable=True))
    put(lives, b"a", None)
    for key in (b"d", b"e", b"f"):
        put(lives, key, b"2" * 700)
        lives.clean_leader()
        lives.pass_time()
    assert len(lives.segments) == 2
    lives.store_fails = 0.0
    set_config(COMPACTED)
    put(lives, b"g", b"3" * 700)
    lives.clean_leader()
    for _ in range(5):
        lives.pass_on()
        lives.delete_local_segments()
    assert lives.leader.log.local_log_start_offset > 2
    lives.check()
    lives.pass_hours()
    lives.check_nothing_is_left_over()
