"""Stand-ins for the doors out: a log in memory, a disk that is a dict, workers that run when told, a fixed clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ports import LogRead
from kafkacompat.records.batch import iterate_batches


class MemoryLog:
    """Only what the metadata log asks of a Log."""

    def __init__(self, data: bytes = b"") -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.syncs = 0
        view = memoryview(data)
        for header in iterate_batches(view):
            self.batches.append(bytes(view[header.position : header.position + header.size]))

    def _headers(self) -> list[Any]:
        return [next(iterate_batches(batch)) for batch in self.batches]

    @property
    def log_end_offset(self) -> int:
        return self._headers()[-1].last_offset + 1 if self.batches else self.log_start_offset

    def latest_epoch(self) -> int:
        return self._headers()[-1].leader_epoch if self.batches else -1

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool) -> LogRead:
        kept = [
            batch
            for batch, header in zip(self.batches, self._headers(), strict=True)
            if header.last_offset >= offset
        ]
        return LogRead(b"".join(kept))

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset

    def append_batch(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        self.batches.append(bytes(batch))

    def begin_sync(self) -> Callable[[], None]:
        def sync() -> None:
            self.syncs += 1

        return sync

    def finish_sync(self) -> None:
        pass

    def drop_below(self, offset: int) -> None:
        self.log_start_offset = offset

    def data(self) -> bytes:
        return b"".join(self.batches)


class ManualWorkers:
    """Submitted calls run in `run_one`, so that a test sees what waits for the disk."""

    def __init__(self) -> None:
        self.pending: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self.pending.append((function, deferred))
        return deferred

    def run_one(self) -> None:
        function, deferred = self.pending.pop(0)
        try:
            value = function()
        except Exception as error:
            deferred.fail(error)
        else:
            deferred.resolve(value)

    def run_all(self) -> None:
        while self.pending:
            self.run_one()


class FixedClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class CountingRandom:
    """Uuids 1000, 1001, ...; randrange always 0 unless told."""

    def __init__(self) -> None:
        self.last = 999
        self.choices: list[int] = []

    def uuid(self) -> bytes:
        self.last += 1
        return self.last.to_bytes(16, "big")

    def randrange(self, stop: int) -> int:
        return self.choices.pop(0) % stop if self.choices else 0
