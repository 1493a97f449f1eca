"""A model of the folder of a Parquet table, and of the writer that adds batches to it: for maintenance and backfill that are
killed at any step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from kafkacompat.pipeline.sink_log import LOG, Entry, compact_name, listed
from kafkacompat.pipeline.sink_log import decode as decode_log
from kafkacompat.pipeline.sink_log import encode as encode_log

INTERVAL = 5
GRACE_MS = 1000
OLD, NEW = "date=2026-10-31", "date=2026-11-20"


class Killed(Exception):
    """The program ends here."""


def entry(place: str, size: int) -> Entry:
    told = {
        "path": f"file:///t/shop/orders/{place}",
        "size": size,
        "isDir": False,
        "modificationTime": 1,
        "blockReplication": 1,
        "blockSize": 33554432,
        "action": "add",
    }
    return Entry(place, size, told)


decode_once = lru_cache(decode_log)


@lru_cache
def _listed(log: frozenset[tuple[str, str]]) -> tuple[Entry, ...]:
    texts = {path.rpartition("/")[2]: text for path, text in log}
    found = listed(texts, texts.get)
    assert found is not None
    return tuple(found)


class ModelFolder:
    """A table's folder in memory. `before` is called before each step."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.rows: dict[str, tuple[int, ...]] = {}
        self.sizes: dict[str, int] = {}
        self.aside: dict[str, tuple[int, ...]] = {}
        self.before: Callable[[], None] = lambda: None
        self.has_writer = False
        self.is_locked = False
        self.now_ms = 0
        self.seen_ms: dict[str, int] = {}

    def names(self, folder: str) -> list[str]:
        self.before()
        return self.names_in(folder)

    def names_in(self, folder: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self.texts if path.rpartition("/")[0] == folder]

    def read(self, path: str) -> str | None:
        self.before()
        return self.texts.get(path)

    def write(self, path: str, text: str) -> None:
        self.before()
        self.texts[path] = text

    def remove(self, path: str) -> None:
        self.before()
        if path in self.rows:
            assert self.now_ms - self.seen_ms.get(path, -GRACE_MS) >= GRACE_MS, path
            del self.rows[path]
        self.texts.pop(path, None)

    def merge(self, sources: Sequence[str], made: str) -> tuple[int, int]:
        self.before()
        self.rows[made] = tuple(row for source in sources for row in self.rows[source])
        self.sizes[made] = sum(self.sizes[source] for source in sources)
        return self.sizes[made], 2

    def adopt(self, aside: str, place: str) -> tuple[int, int]:
        self.before()
        self.rows[place] = self.aside[aside]
        self.sizes[place] = 40
        return 40, 2

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        self.before()
        if self.has_writer:
            yield False
            return
        self.is_locked = True
        try:
            yield True
        finally:
            self.is_locked = False

    def put(self, place: str, size: int, rows: tuple[int, ...]) -> Entry:
        """A data file of the writer."""
        self.rows[place], self.sizes[place] = rows, size
        return entry(place, size)

    def listed(self) -> list[Entry]:
        """What a reader finds now."""
        log = frozenset(item for item in self.texts.items() if item[0].startswith(LOG))
        return list(_listed(log))

    def read_all(self) -> list[int]:
        """The rows that a reader finds now. It may need their files for GRACE_MS from now."""
        rows: list[int] = []
        for each in self.listed():
            self.seen_ms[each.place] = self.now_ms
            rows += self.rows[each.place]
        return sorted(rows)


class Writer:
    """Spark's file sink: a batch has one file."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.old = {1, 2}
        self.batch = 0
        self.rows: list[int] = []
        self._ready: tuple[str, str] | None = None

    def prepare(self) -> None:
        """Write the data file of the next batch, and read what its file of the log needs."""
        number = self.batch
        day = OLD if number in self.old else NEW
        size = 500 if number == 4 else 40
        added = [self.folder.put(f"{day}/part-{number}", size, (number,))]
        name = str(number)
        if (number + 1) % INTERVAL == 0:
            name = compact_name(number)
            added = [*self.folder.listed(), *added]
        self._ready = f"{LOG}/{name}", encode_log(added)

    def publish(self) -> None:
        """Write the file of the log."""
        assert self._ready is not None
        path, text = self._ready
        self.folder.texts[path] = text
        self.rows.append(self.batch)
        self.batch += 1
        self._ready = None

    def write_to(self, batch: int) -> None:
        """Write the batches below this one."""
        while self.batch < batch:
            self.prepare()
            self.publish()


def table(batches: int = 9) -> tuple[ModelFolder, Writer]:
    folder = ModelFolder()
    writer = Writer(folder)
    writer.write_to(batches)
    return folder, writer


def steps_of(folder: ModelFolder, call: Callable[[], object]) -> int:
    """The number of the folder's steps within a call."""
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    folder.before = counted
    call()
    return count


def beside_a_writer(
    folder: ModelFolder,
    writer: Writer,
    call: Callable[[], object],
    allowed: Callable[[], Sequence[list[int]]],
    steps: int,
    read_at: int,
    publish_at: int,
    kill_at: int,
) -> None:
    """The first call dies before step kill_at. Before step read_at the writer reads for its next compact file, which it publishes
    before step publish_at. Calls until nothing of it is left, and a reader always finds rows that are `allowed`."""
    folder.has_writer = True
    step = 0

    def act(step: int) -> None:
        if step == read_at:
            writer.prepare()
        if step == publish_at:
            writer.publish()

    def check() -> None:
        assert folder.read_all() in allowed(), (read_at, publish_at, kill_at, step)

    def before() -> None:
        nonlocal step
        step += 1
        act(step)
        check()
        if step == kill_at:
            raise Killed

    folder.before = before
    with contextlib.suppress(Killed):
        call()
    folder.before = lambda: None
    # The second call may come while the writer is between its two steps.
    folder.now_ms += 2 * GRACE_MS
    call()
    for later in range(step + 1, steps + 2):
        act(later)
        check()
    folder.now_ms += 2 * GRACE_MS
    call()
    writer.write_to(15)
    check()
    call()


def while_a_writer_starts(
    folder: ModelFolder,
    writer: Writer,
    call: Callable[[], object],
    allowed: Callable[[], Sequence[list[int]]],
    start_at: int,
    kill_at: int,
) -> None:
    """The first call dies before step kill_at. A writer starts before step start_at, or when it may, and compacts."""
    step = 0

    def before() -> None:
        nonlocal step
        step += 1
        if step >= start_at and not folder.is_locked and not folder.has_writer:
            folder.has_writer = True
            writer.write_to(10)
        assert folder.read_all() in allowed(), (start_at, kill_at, step)
        if step == kill_at:
            raise Killed

    folder.before = before
    with contextlib.suppress(Killed):
        call()
    folder.before = lambda: None
    writer.write_to(10)
    folder.now_ms += 2 * GRACE_MS
    call()
    assert folder.read_all() in allowed()
