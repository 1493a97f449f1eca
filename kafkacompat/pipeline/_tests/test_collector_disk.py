"""The collector over real files: a server that writes, rotates and deletes them, a broker that is slow, a collector that dies.

Time is handed in; what arrives is what the stand-in for the producer was given.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.pipeline.collector import running
from kafkacompat.pipeline.collector.disk import Disk
from kafkacompat.pipeline.collector.followed import Chunk
from kafkacompat.pipeline.collector.lines import Line
from kafkacompat.pipeline.collector.running import SCAN_INTERVAL_S, Collector
from kafkacompat.pipeline.collector.saved_state import decode

READ_BYTES = 400
"""So that a file is read in many steps."""

TURN_S = SCAN_INTERVAL_S + 0.05
ROUNDS = 20 if os.environ.get("KAFKACOMPAT_SOAK") == "1" else 1


class Shipper:
    """Takes as many chunks as it is allowed to, and acknowledges them when told."""

    acknowledged_bytes = cut_lines = resent_lines = 0
    trouble = None

    def __init__(self, arrived: dict[tuple[str, int], set[bytes]]) -> None:
        self.arrived = arrived
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
            self.acknowledged_lines += len(lines)
            chunk.missing = 0
            chunk.file.acknowledge()


class State:
    """What is kept between two runs."""

    path = "in memory"

    def __init__(self) -> None:
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
        self.deleted = False


class World:
    """A folder, the server that writes access.log there, and the collector of `access.log*`."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.log = self.folder / "access.log"
        self.now_s = 1000.0
        self.count = 0
        self.arrived: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self.excused: set[bytes] = set()
        self.state = State()
        self.files: list[Written] = []
        self.rotated: list[tuple[Path, Written]] = []
        self.reopen()
        self.begin()

    def begin(self) -> None:
        self.disk = Disk([str(self.folder / "access.log*")])
        self.shipper = Shipper(self.arrived)
        self.collector = Collector(self.disk, self.state, self.shipper)  # type: ignore[arg-type]

    def reopen(self) -> None:
        if self.files:
            self.files[-1].stream.close()
        self.files.append(Written(self.log))

    def append(self, lines: int, size_bytes: int = 60) -> None:
        for _ in range(lines):
            line = b"%06d %s" % (self.count, b"x" * size_bytes)
            self.count += 1
            self.files[-1].stream.write(line + b"\n")
            self.files[-1].lines.append(line)

    def turn(self) -> None:
        self.now_s += TURN_S
        self.collector.turn(self.now_s)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.turn()
        self.turn()

    def rename(self, name: str) -> Path:
        return self.log.rename(self.folder / f"{name}{len(self.files)}")

    def rename_within(self, lines: int) -> None:
        """To a name that the pattern finds."""
        self.rotated.append((self.rename("access.log."), self.files[-1]))
        self.append(lines)
        self.reopen()

    def rename_away(self, lines: int, seconds: float) -> None:
        """To one that it does not find; the server notices so many seconds and lines later."""
        if not self.files[-1].lines:
            # A file without a first line has nothing to be recognised by after a crash.
            self.append(1)
        self.turn()
        self.rename("away.")
        self.wait(seconds)
        self.append(lines)
        self.reopen()

    def delete(self, lines: int, seconds: float) -> None:
        """The log itself; the server notices so many seconds and lines later."""
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

    def crash(self) -> None:
        """What only the open handle had is lost with it."""
        for file in self.files:
            if file.deleted:
                self.excused.update(file.lines)
        self.disk.close()
        self.begin()

    def drain(self) -> None:
        self.shipper.allowed = 1 << 30
        for _ in range(12):
            self.turn()
            while self.shipper.on_the_way or self.collector.turn(self.now_s):
                self.shipper.deliver(0)

    def values(self) -> Counter[bytes]:
        """How many event ids each line has arrived under."""
        return Counter(value for values in self.arrived.values() for value in values)

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
def a_world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(running, "READ_BYTES", READ_BYTES):
        world = World(folder)
        try:
            yield world
        finally:
            world.close()


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


def handles() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/fd"))


LINES = st.integers(0, 4)
SILENCE_S = st.sampled_from([0.0, 1.0, 4.0])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12), st.integers(0, 300)),
        st.tuples(st.just("rename_within"), LINES),
        st.tuples(st.just("rename_away"), LINES, SILENCE_S),
        st.tuples(st.just("delete"), LINES, SILENCE_S),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 6.0, 61.0, 130.0])),
        st.tuples(st.just("allow"), st.sampled_from([0, 1, 3, 1 << 30])),
        st.tuples(st.just("deliver"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["delete_rotated", "crash", "turn"])),
    ),
    max_size=30,
)


@settings(max_examples=150 * ROUNDS, deadline=None)
@given(OPERATIONS)
def test_every_line_arrives_once_while_its_file_can_be_read(operations: list[tuple]) -> None:
    before = handles()
    with a_world() as world:
        for name, *values in operations:
            match name:
                case "allow":
                    world.shipper.allowed = values[0]
                case "deliver":
                    world.shipper.deliver(values[0])
                case _:
                    getattr(world, name)(*values)
        world.drain()
        assert world.missing() == []
        assert {key: values for key, values in world.arrived.items() if len(values) > 1} == {}
        assert {line: ids for line, ids in world.values().items() if ids > 1} == {}
        # Nothing is held of files that are gone: the log, the server's handle on it, and the collector's.
        world.delete_rotated()
        world.wait(200.0)
        world.wait(200.0)
        assert world.collector.figures().files == 1
        assert handles() <= before + 2
    assert handles() == before


@pytest.mark.parametrize("end", ["delete", "rename_away"])
def test_unread_lines_of_a_file_without_a_name_wait_for_the_broker(world: World, end: str) -> None:
    world.append(200)
    world.shipper.allowed = 3
    world.turn()
    getattr(world, end)(0, 0.0)
    for _ in range(10):
        world.wait(100.0)
    assert world.collector.figures().lag_bytes > 10_000
    world.drain()
    assert world.missing() == []


def test_lines_on_their_way_are_found_again_after_a_crash_though_their_file_was_renamed_long_ago(
    world: World,
) -> None:
    world.append(20)
    world.turn()
    world.rename_away(0, 0.0)
    for _ in range(10):
        world.wait(100.0)
    world.crash()
    world.drain()
    assert world.missing() == []
    assert len(world.values()) == 20


def test_a_silent_file_that_is_renamed_is_read_until_the_server_notices(world: World) -> None:
    world.append(1)
    world.drain()
    world.wait(61.0)
    world.wait(61.0)
    world.rename_away(1, 4.0)
    world.drain()
    assert world.missing() == []


def test_files_deleted_after_a_silence_are_forgotten(world: World) -> None:
    world.drain()
    before = handles()
    for number in range(50):
        path = world.folder / f"access.log.{number}"
        path.write_bytes(b"the first line of %d\n" % number)
        # Another reader keeps the inode from being given out again.
        with open(path, "rb"):
            world.drain()
            world.wait(61.0)
            path.unlink()
            world.wait(61.0)
            world.wait(6.0)
    assert world.collector.figures().files == 1
    assert handles() == before
    assert len(world.values()) == 50


def test_a_file_that_was_out_of_sight_goes_on_under_its_event_ids(world: World) -> None:
    world.append(40)
    world.drain()
    for crash in (False, True):
        away = world.rename("away.")
        world.wait(61.0)
        world.wait(61.0)
        assert world.collector.figures().files == 0
        if crash:
            world.crash()
            world.turn()
        away.rename(world.log)
        world.append(2)
        world.drain()
    assert world.missing() == []
    assert set(world.values().values()) == {1}
    assert len({identity for identity, _ in world.arrived}) == 1


def test_an_inode_of_an_earlier_run_given_to_another_file_is_not_shipped(world: World) -> None:
    world.append(5)
    world.drain()
    world.crash()
    path = world.rename("away.")
    path.write_bytes(b"another program's file, long enough to hold more than was read before " * 20 + b"\n")
    world.turn()
    world.drain()
    assert world.collector.figures().files == 0
    assert len(world.values()) == 5


def test_a_folder_that_cannot_be_read_for_a_while_after_a_crash_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(5)
    world.drain()
    world.append(5)
    world.crash()
    world.rename("away.")

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(13, "not now", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        world.turn()
        assert world.collector.figures().trouble == f"{world.log}: not now"
    world.drain()
    assert world.missing() == []


def test_copies_held_by_an_earlier_run_are_forgotten_with_their_files(world: World) -> None:
    world.append(40)
    world.drain()
    copy = world.folder / "access.log.copy"
    copy.write_bytes(world.log.read_bytes())
    world.drain()
    world.append(1)
    world.drain()
    assert decode(world.state.text or "")[1] != []
    copy.unlink()
    world.crash()
    world.append(1)
    world.drain()
    assert decode(world.state.text or "")[1] == []


def test_files_without_a_name_stay_open_beyond_the_bound_while_their_lines_are_not_shipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacompat.pipeline.collector.disk.MAX_FILES", 3)
    world.shipper.allowed = 0
    for _ in range(8):
        world.append(2)
        world.delete(0, 6.0)
    world.turn()
    assert world.collector.figures().beyond_files == 6
    world.drain()
    assert world.missing() == []
    world.wait(6.0)
    assert world.collector.figures().beyond_files == 0
    assert world.collector.figures().given_up_bytes == 0


def test_followed_files_keep_their_place_when_names_shift(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacompat.pipeline.collector.disk.MAX_FILES", 2)
    (world.folder / "access.log.z").write_bytes(b"z\n")
    world.drain()
    for number in range(3):
        (world.folder / f"access.log.{number}").write_bytes(b"%d\n" % number)
    for crash in (False, True):
        if crash:
            world.crash()
        with open(world.folder / "access.log.z", "ab") as file:
            file.write(b"more %d\n" % crash)
        world.drain()
        assert world.collector.figures().refused_files == 3
    assert set(world.values()) == {b"z", b"more 0", b"more 1"}


def test_bytes_that_go_with_their_file_are_counted(world: World) -> None:
    world.append(1)
    world.files[-1].stream.write(b"no newline")
    world.drain()
    world.delete(0, 0.0)
    world.wait(6.0)
    assert world.collector.figures().given_up_bytes == len(b"no newline")


def test_a_file_that_cannot_be_opened_now_is_followed_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(3)

    def refuse(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        world.turn()
        assert world.collector.figures().trouble == f"{world.log}: too many open files"
    world.drain()
    assert world.missing() == []
