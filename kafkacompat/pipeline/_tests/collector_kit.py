"""For tests: a folder, a server that writes and rotates its log there, a slow broker, and the real collector.

The time is a parameter. The lines that arrive are those that the stand-in for the producer was given.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from kafkacompat.pipeline.collector import running
from kafkacompat.pipeline.collector.disk import Disk
from kafkacompat.pipeline.collector.followed import Chunk
from kafkacompat.pipeline.collector.lines import Begins, Line
from kafkacompat.pipeline.collector.running import SCAN_INTERVAL_S, Collector

READ_BYTES = 400
"""Small, so that a file is read in many steps."""

TURN_S = SCAN_INTERVAL_S + 0.05


class Shipper:
    """Accepts the allowed number of chunks, and acknowledges them when told to."""

    acknowledged_bytes = cut_lines = resent_lines = 0
    trouble = None

    def __init__(
        self, arrived: dict[tuple[str, int], set[bytes]], fields: dict[bytes, set[bytes]] | None = None
    ) -> None:
        """fields: gets the fields with which each value has arrived."""
        self.arrived = arrived
        self.fields = defaultdict(set) if fields is None else fields
        self.allowed = 1 << 30
        self.acknowledged_lines = 0
        self.on_the_way: list[tuple[Chunk, str, list[Line]]] = []

    @property
    def room(self) -> bool:
        return self.allowed > 0

    @property
    def on_the_way_bytes(self) -> int:
        return sum(chunk.size_bytes for chunk, _, _ in self.on_the_way)

    def ship(self, chunk: Chunk, lines: list[Line], identity: str, path: str) -> None:
        self.allowed -= 1
        self.on_the_way.append((chunk, identity, lines))

    def deliver(self, index: int) -> None:
        if self.on_the_way:
            chunk, identity, lines = self.on_the_way.pop(index % len(self.on_the_way))
            for line in lines:
                self.arrived[identity, line.position].add(line.value)
                self.fields[line.value].add(line.fields)
            self.acknowledged_lines += len(lines)
            chunk.missing = 0
            chunk.file.acknowledge()


class State:
    """The state between two runs."""

    path = "in memory"

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.text: str | None = None

    def load(self) -> str | None:
        return self.text

    def save(self, text: str) -> None:
        self.text = text


class Written:
    """One file of the server."""

    def __init__(self, path: Path) -> None:
        self.stream = open(path, "ab", buffering=0)  # noqa: SIM115 - held until the server reopens its log
        self.lines: list[bytes] = []
        self.fields = b""
        self.deleted = False
        status = os.fstat(self.stream.fileno())
        self.key = status.st_dev, status.st_ino


class CollectorKit:
    """A folder, the server that writes access.log there, and the collector of `access.log*`."""

    def __init__(self, folder: str, begins: Begins | None = None) -> None:
        self.begins = begins
        self.folder = Path(folder)
        self.log = self.folder / "access.log"
        self.now_s = 1000.0
        self.count = 0
        self.arrived: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self.fields: dict[bytes, set[bytes]] = defaultdict(set)
        self.written_fields: dict[bytes, bytes] = {}
        """The fields that are in force for each line in its file."""
        self.excused: set[bytes] = set()
        self.troubles = ""
        self.state = State(folder)
        self.files: list[Written] = []
        self.rotated: list[tuple[Path, Written]] = []
        self.reopen()
        self.begin()

    def begin(self) -> None:
        self.disk = Disk([str(self.folder / "access.log*")])
        self.shipper = Shipper(self.arrived, self.fields)
        self.collector = Collector(self.disk, self.state, self.shipper, begins=self.begins)  # type: ignore[arg-type]

    def reopen(self) -> None:
        if self.files:
            self.files[-1].stream.close()
        self.files.append(Written(self.log))

    def append(self, lines: int, size_bytes: int = 60) -> None:
        for _ in range(lines):
            line = b"%06d %s" % (self.count, b"x" * size_bytes)
            self.count += 1
            self._write(line)

    def append_fields(self, is_usable: bool, lines: int) -> None:
        """Write a `#Fields` line, and then lines."""
        names = b"n%06d sc-status" % self.count
        self.count += 1
        self.files[-1].fields = names if is_usable else b""
        self._write(b"#Fields: %s%s" % (names, b"" if is_usable else b" \x01"))
        self.append(lines)

    def _write(self, line: bytes) -> None:
        file = self.files[-1]
        file.stream.write(line + b"\n")
        file.lines.append(line)
        self.written_fields[line] = file.fields

    def turn(self) -> None:
        self.now_s += TURN_S
        self.collector.turn(self.now_s)
        self.troubles += str(self.collector.figures().trouble)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.turn()
        self.turn()

    def rename(self, name: str) -> Path:
        return self.log.rename(self.folder / f"{name}{len(self.files)}")

    def rename_within(self, lines: int) -> None:
        """Rename the log to a name that the pattern matches."""
        self.rotated.append((self.rename("access.log."), self.files[-1]))
        self.append(lines)
        self.reopen()

    def rename_away(self, lines: int, seconds: float) -> None:
        """Rename the log to a name that the pattern does not match. The server notices after that many seconds and lines."""
        if not self.log.stat().st_size:
            # A file without a first line cannot be recognised after a crash.
            self.append(1)
        self.turn()
        self.rename("away.")
        self.wait(seconds)
        self.append(lines)
        self.reopen()

    def copy_and_truncate(self) -> None:
        """Copy the log to a name that the pattern matches, and truncate it."""
        self.count += 1
        (self.folder / f"access.log.copy{self.count}").write_bytes(self.log.read_bytes())
        os.truncate(self.log, 0)
        self.files[-1].fields = b""

    def replace_by_copy(self, lines: int, late: int = 0) -> None:
        """Replace the log by a copy of itself with more lines, as `sed -i` and rsync do. The server notices after that
        many lines of its own."""
        copy = self.folder / "being copied"
        copy.write_bytes(self.log.read_bytes())
        copy.replace(self.log)
        self.files[-1].deleted = True
        self.append(late)
        fields = self.files[-1].fields
        self.reopen()
        self.files[-1].fields = fields
        self.append(lines)

    def delete(self, lines: int, seconds: float) -> None:
        """Delete the log. The server notices after that many seconds and lines."""
        self.turn()
        self.log.unlink()
        self.files[-1].deleted = True
        self.wait(seconds)
        self.append(lines)
        self.reopen()

    def delete_rotated(self) -> None:
        self.turn()
        for path, file in self.rotated:
            path.unlink()
            file.deleted = True
        self.rotated.clear()

    def die(self) -> None:
        """The collector dies. Content that only its open handles had is lost, and so is a file without a name that was not
        identified yet: a copy waits for the acknowledgements of its original."""
        newest = {file.key: file for file in self.files}
        unidentified = [
            newest.get((file.device, file.inode))
            for file in self.collector._following.files()
            if file.identity is None and not file.named
        ]
        for file in self.files:
            if file.deleted or file in unidentified:
                self.excused.update(file.lines)
        self.disk.close()

    def crash(self) -> None:
        self.die()
        self.begin()

    def pack_while_down(self, lines: int) -> None:
        """Between two runs of the collector, write more lines, rotate the log, and compress all rotated files."""
        if not self.log.stat().st_size:
            self.append(1)
        self.turn()
        self.die()
        if lines:
            self.append(lines)
            self.rename_within(0)
        for path, _ in self.rotated:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        self.rotated.clear()
        self.begin()

    def drain_some(self, chunks: int) -> None:
        for _ in range(chunks):
            self.shipper.deliver(0)
        self.collector.turn(self.now_s)

    def drain(self) -> None:
        self.shipper.allowed = 1 << 30
        for _ in range(12):
            self.turn()
            while self.shipper.on_the_way or self.collector.turn(self.now_s):
                self.shipper.deliver(0)

    def values(self) -> Counter[bytes]:
        """Return the number of event ids under which each line has arrived, alone or with others."""
        return Counter(
            line
            for values in self.arrived.values()
            for line in {line for value in values for line in value.split(b"\n")}
        )

    def missing(self) -> list[bytes]:
        arrived = self.values()
        return [
            line
            for file in self.files
            for line in file.lines
            if line not in arrived and line not in self.excused
        ]

    def close(self) -> None:
        self.files[-1].stream.close()
        self.disk.close()


@contextmanager
def a_collector(begins: Begins | None = None) -> Iterator[CollectorKit]:
    """begins: the rule that puts lines together."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(running, "READ_BYTES", READ_BYTES),
        mock.patch.object(running, "RECORD_WAIT_S", 2 * TURN_S),
    ):
        world = CollectorKit(folder, begins)
        try:
            yield world
        finally:
            world.close()
