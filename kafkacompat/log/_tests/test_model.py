"""The log compared with a list, for any order of appends, rolls, truncations, deletions, restarts and kills."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkacompat.log._tests.logs import NOW_MS, all_values, batch_of, config, look_up, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record

CONFIG = config(segment_bytes=900, index_interval_bytes=100, retention_ms=-1)


class LogAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.log = open_log(self.disk, CONFIG)
        self.model: list[tuple[int, bytes, int]] = []
        """(offset, value, timestamp)."""
        self.epochs: list[tuple[int, int]] = []
        self.serial = 0
        self.epoch = 0

    def _values(self, count: int, size: int) -> list[bytes]:
        self.serial += 1
        return [b"%d.%d" % (self.serial, i) + b"x" * size for i in range(count)]

    def _note_epoch(self, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            # An earlier epoch that also begins here has no record left.
            self.epochs = [item for item in self.epochs if item[1] < offset]
            self.epochs.append((self.epoch, offset))

    @rule(count=st.integers(1, 5), size=st.integers(0, 60), ahead_ms=st.integers(-50, 500))
    def append_as_leader(self, count: int, size: int, ahead_ms: int) -> None:
        first = self.log.log_end_offset
        values = self._values(count, size)
        info = self.log.append_as_leader(batch_of(values, NOW_MS + ahead_ms), self.epoch, NOW_MS)
        self._note_epoch(first)
        assert (info.first_offset, info.last_offset) == (first, first + count - 1)
        self.model += [(first + i, value, NOW_MS + ahead_ms + i) for i, value in enumerate(values)]

    @rule(batches=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=12))
    def append_as_follower(self, batches: list[tuple[int, int]]) -> None:
        """Append several batches at once, with gaps between them as after compaction."""
        data = b""
        offset = self.log.log_end_offset
        for count, gap in batches:
            offset += gap
            values = self._values(count, 10)
            records = [Record(i, NOW_MS, None, value) for i, value in enumerate(values)]
            data += build_batch(records, base_offset=offset, leader_epoch=self.epoch)
            self._note_epoch(offset)
            self.model += [(offset + i, value, NOW_MS) for i, value in enumerate(values)]
            offset += count
        info = self.log.append_as_follower(data + data[:30], self.epoch)
        assert info.last_offset == offset - 1

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # Followers truncate at batch boundaries. Any offset that begins a batch is valid.
        begins = sorted(
            {h.base_offset for s in self.log.segments for h in s.headers()} | {self.log.log_end_offset}
        )
        begins = [offset for offset in begins if offset >= self.log.log_start_offset]
        # After a kill, a log start that no batch reaches is ignored, and the deleted records below it are there again.
        ends = [0] + [h.last_offset + 1 for s in self.log.segments for h in s.headers()]
        begins = [
            offset for offset in begins if max(e for e in ends if e <= offset) >= self.log.log_start_offset
        ] or [self.log.log_end_offset]
        offset = data.draw(st.sampled_from(begins))
        self.log.truncate_to(offset)
        self.model = [item for item in self.model if item[0] < offset]
        self.epochs = [item for item in self.epochs if item[1] < offset]
        assert self.log.log_end_offset == offset

    @rule(offset=st.integers(0, 3000))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.model, self.epochs = [], []
        assert (self.log.log_start_offset, self.log.log_end_offset) == (offset, offset)

    @precondition(lambda self: self.log.log_end_offset > self.log.log_start_offset)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        # As above: not into a gap at the log's end, because a kill loses all knowledge of it.
        reached = max(
            [self.log.log_start_offset, *(h.last_offset + 1 for s in self.log.segments for h in s.headers())]
        )
        offset = data.draw(st.integers(self.log.log_start_offset, min(reached, self.log.log_end_offset)))
        before = self.log.log_start_offset
        assert self.log.increment_log_start_offset(offset) == (offset > before)
        self.log.enforce_retention(NOW_MS)
        self._forget_before(offset)
        assert self.log.log_start_offset >= offset

    def _forget_before(self, offset: int) -> None:
        self.model = [item for item in self.model if item[0] >= offset]
        # Epochs are dropped only together with their segments.
        base = self.log.segments[0].base_offset
        earlier = [item for item in self.epochs if item[1] <= base]
        if earlier:
            self.epochs = [(earlier[-1][0], base)] + [item for item in self.epochs if item[1] > base]

    @rule()
    def stop_and_start(self) -> None:
        start, mark = self.log.log_start_offset, self.log.high_watermark
        self.log.close()
        self.log = open_log(
            self.disk,
            CONFIG,
            clean=True,
            recovery_point=self.log.recovery_point,
            log_start_offset=start,
            high_watermark=mark,
        )
        self._forget_epochs_without_records()

    def _forget_epochs_without_records(self) -> None:
        """Kafka does the same when it opens a log: an epoch that begins at the end has no record."""
        self.epochs = [item for item in self.epochs if item[1] < self.log.log_end_offset]

    @rule(flushed=st.booleans())
    def kill_and_start(self, flushed: bool) -> None:
        """kill -9 loses nothing that was appended, and the indexes equal those of a clean rebuild."""
        if flushed:
            self.log.flush()
        point, start = self.log.recovery_point, self.log.log_start_offset
        self.disk = self.disk.copy()
        self.log = open_log(self.disk, CONFIG, recovery_point=point, log_start_offset=start)
        self._forget_epochs_without_records()

    @invariant()
    def content_is_the_models(self) -> None:
        assert all_values(self.log) == [item[:2] for item in self.model]

    @invariant()
    def epochs_are_the_models(self) -> None:
        assert self.log.epoch_entries == self.epochs

    @invariant()
    def lookups_by_time_are_the_models(self) -> None:
        for target in (NOW_MS - 20, NOW_MS + 100, NOW_MS + 10_000):
            found = look_up(self.log, target)
            # Kafka examines batches in offset order, like the model.
            expected = next((item for item in self.model if item[2] >= target), None)
            assert (found and (found.offset, found.timestamp_ms)) == (expected and (expected[0], expected[2]))

    @invariant()
    def sizes_agree(self) -> None:
        end = self.log.log_end_offset
        assert self.log.size_bytes() == sum(
            len(data) for path, data in self.disk.files.items() if path.endswith(".log")
        )
        if self.log.log_start_offset == self.log.segments[0].base_offset:
            assert self.log.readable_bytes(self.log.log_start_offset, end) == self.log.size_bytes()


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=60, stateful_step_count=30)
