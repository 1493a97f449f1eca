"""The disks of unit tests and of the simulation compared with the real one: the same calls give the same results and errors."""

from __future__ import annotations

import ast
import inspect
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.disk import RealDisk
from kafkacompat.ports import Disk, File, SyncFailed
from kafkacompat.ports.files import CHANGES, MEETS, OPERATIONS, SYNCS, WRITES
from kafkacompat.sim.disk import SimulatedDisk
from kafkacompat.testing import memory_disk as testing
from kafkacompat.testing.faults import Faults
from kafkacompat.testing.faulty_disk import SLOW, FaultyDisk
from kafkacompat.testing.folder_disk import FolderDisk, new_folder

PACKAGE = Path(__file__).parents[2]
FILE_NAMES = ("f", "g")
DIRECTORY_NAMES = ("d", "e")
DIRECTORIES = ("", *(f"/{name}" for name in DIRECTORY_NAMES), "/d/e")
directories = st.sampled_from(DIRECTORIES[1:])
parents = st.sampled_from(DIRECTORIES)
names = st.sampled_from(FILE_NAMES + DIRECTORY_NAMES)
anything = st.builds("{}/{}".format, parents, names)
CALLS: dict[str, Callable[[Any], Any]] = {
    "exists": lambda disk: disk.exists("/d/f"),
    "list_directory": lambda disk: disk.list_directory("/d"),
    "make_directory": lambda disk: disk.make_directory("/e"),
    "read_bytes": lambda disk: disk.read_bytes("/d/f"),
    "write_atomic": lambda disk: disk.write_atomic("/d/g", b"", sync=False),
    "rename": lambda disk: disk.rename("/d/f", "/d/g"),
    "remove": lambda disk: disk.remove("/d/f"),
    "remove_tree": lambda disk: disk.remove_tree("/d"),
    "file_size": lambda disk: disk.file_size("/d/f"),
    "modified_ms": lambda disk: disk.modified_ms("/d/f"),
    "set_modified_ms": lambda disk: disk.set_modified_ms("/d/f", 1),
    "sync_directory": lambda disk: disk.sync_directory("/d"),
    "usage": lambda disk: disk.usage("/d"),
    "open": lambda disk: (disk.open("/d/f"), disk.open("/d/g", create=True)),
    "write_now": lambda disk: disk.open("/d/f").write_now(b"more"),
    "try_read": lambda disk: disk.open("/d/f").try_read(0, 1),
    "read_cold": lambda disk: disk.open("/d/f").read_cold(0, 1),
    "read_into": lambda disk: disk.open("/d/f").read_into(0, memoryview(bytearray(1))),
    "truncate": lambda disk: disk.open("/d/f").truncate(0),
    "sync": lambda disk: disk.open("/d/f").sync(),
    "forget_cached": lambda disk: disk.open("/d/f").forget_cached(),
}
"""A call of each method that a disk may refuse."""
COMPARED_ELSEWHERE = {"lock", "usage", "set_modified_ms", "fileno", "send_to", "forget_cached"}
"""By the tests of each disk."""
contents = st.binary(max_size=12)
positions = st.integers(0, 20)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the call's result, or the error that the caller sees."""
    try:
        return call()
    except OSError as error:
        return error.errno, isinstance(error, SyncFailed)
    except ValueError:
        return "not a file any more"


def doubles(folder: str) -> list[Any]:
    """A new disk of each kind besides the system's."""
    return [
        MemoryDisk(),
        SimulatedDisk(),
        testing.MemoryDisk(lambda: 1),
        FolderDisk(new_folder(folder)),
        FaultyDisk(testing.MemoryDisk(lambda: 1), Faults(), 1),
    ]


class Disks(RuleBasedStateMachine):
    """Makes every call on all disks. A handle is one file of each, opened in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.folder = tempfile.mkdtemp()
        others = doubles(self.folder)
        for disk in others:
            disk.make_directory("/data")
        self.disks: list[tuple[Any, str]] = [(RealDisk(), self.root), *((disk, "/data") for disk in others)]
        self.handles: list[list[Any]] = []

    def teardown(self) -> None:
        for handle in self.handles:
            handle[0].close()
        for disk, _ in self.disks:
            if isinstance(disk, FolderDisk | testing.MemoryDisk):
                disk.close()
        shutil.rmtree(self.root)
        shutil.rmtree(self.folder)

    def ask(self, call: Callable[[Any, str], Any]) -> list[Any]:
        """Return the result of each disk. The results are equal."""
        return self._same([outcome(lambda d=disk, r=root: call(d, r)) for disk, root in self.disks])  # type: ignore[misc]

    def ask_files(self, handle: list[Any], call: Callable[[Any], Any]) -> None:
        self._same([outcome(lambda f=file: call(f)) for file in handle])  # type: ignore[misc]

    def _same(self, found: list[Any]) -> list[Any]:
        assert found[1:] == found[:1] * (len(found) - 1), (
            f"{[type(disk).__qualname__ for disk, _ in self.disks]}: {found}"
        )
        return found

    @initialize()
    def begin(self) -> None:
        self.ask(lambda disk, root: disk.make_directory(f"{root}/d"))

    # Names.

    @rule(path=directories)
    def make_directory(self, path: str) -> None:
        self.ask(lambda disk, root: disk.make_directory(root + path))

    @rule(parent=parents, source=names, onto=names)
    def rename(self, parent: str, source: str, onto: str) -> None:
        self.ask(lambda disk, root: disk.rename(f"{root}{parent}/{source}", f"{root}{parent}/{onto}"))

    @rule(path=anything)
    def remove(self, path: str) -> None:
        self.ask(lambda disk, root: disk.remove(root + path))

    @rule(path=directories)
    def remove_tree(self, path: str) -> None:
        self.ask(lambda disk, root: disk.remove_tree(root + path))

    @rule(path=parents)
    def sync_directory(self, path: str) -> None:
        self.ask(lambda disk, root: disk.sync_directory(root + path))

    @rule(path=anything)
    def look(self, path: str) -> None:
        self.ask(lambda disk, root: disk.exists(root + path))
        self.ask(lambda disk, root: disk.list_directory(root + path))
        self.ask(lambda disk, root: disk.read_bytes(root + path))
        self.ask(lambda disk, root: type(disk.modified_ms(root + path)))

    @rule(path=st.builds("{}/{}".format, parents, st.sampled_from(FILE_NAMES)))
    def file_size(self, path: str) -> None:
        self.ask(lambda disk, root: disk.file_size(root + path) if is_file(disk, root + path) else None)

    @rule(path=anything, data=contents, sync=st.booleans())
    def write_atomic(self, path: str, data: bytes, sync: bool) -> None:
        self.ask(lambda disk, root: disk.write_atomic(root + path, data, sync=sync))

    # Files.

    @rule(path=anything, create=st.booleans())
    def open(self, path: str, create: bool) -> None:
        opened: list[Any] = []

        def open_one(disk: Any, root: str) -> None:
            opened.append(disk.open(root + path, create=create))

        self.ask(open_one)
        if opened:
            self.handles.append(opened)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), buffers=st.lists(contents, min_size=1, max_size=3))
    def write(self, data: st.DataObject, buffers: list[bytes]) -> None:
        self.ask_files(self._handle(data), lambda file: file.write_now(*buffers))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), position=positions, length=st.integers(1, 20))
    def read(self, data: st.DataObject, position: int, length: int) -> None:
        handle = self._handle(data)
        self.ask_files(handle, lambda file: file.read_cold(position, length))
        self.ask_files(handle, lambda file: file.try_read(position, length))

        def read_into(file: Any) -> tuple[int, bytes]:
            buffer = bytearray(length)
            return file.read_into(position, memoryview(buffer)), bytes(buffer)

        self.ask_files(handle, read_into)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), size=positions)
    def truncate(self, data: st.DataObject, size: int) -> None:
        self.ask_files(self._handle(data), lambda file: file.truncate(size))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.ask_files(self._handle(data), lambda file: file.sync())

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.ask_files(self._handle(data), lambda file: file.close())

    def _handle(self, data: st.DataObject) -> list[Any]:
        return data.draw(st.sampled_from(self.handles))

    # Invariants.

    @invariant()
    def the_sizes_agree(self) -> None:
        for handle in self.handles:
            self.ask_files(handle, lambda file: file.size())

    @invariant()
    def the_names_agree(self) -> None:
        for path in DIRECTORIES:
            self.ask(lambda disk, root, path=path: disk.list_directory(root + path))  # type: ignore[misc]


def is_file(disk: Any, path: str) -> bool:
    if isinstance(disk, RealDisk):
        return Path(path).is_file()
    try:
        disk.read_bytes(path)
    except OSError:
        return False
    return True


TestDisks = Disks.TestCase
TestDisks.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def operations_of(port: type) -> set[str]:
    return {name for name, value in vars(port).items() if callable(value) and not name.startswith("_")}


def test_every_disk_is_compared(tmp_path: Path) -> None:
    """A class that lists directories and writes whole files is one."""
    compared = {type(each).__name__ for each in (RealDisk(), *doubles(str(tmp_path)))}
    found: list[str] = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name != Disk.__name__:
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                found += [node.name] * (methods >= {"list_directory", "write_atomic"})
    assert set(found) == compared
    assert len(found) == 1 + len(doubles(str(tmp_path)))


def test_each_operation_of_the_ports_is_compared_and_can_be_refused() -> None:
    methods = operations_of(Disk) | operations_of(File)
    assert methods == MEETS.keys()
    assert CALLS.keys() == {name for name in methods if MEETS[name]}
    source = inspect.getsource(Disks)
    assert {name for name in methods if f".{name}(" not in source} == COMPARED_ELSEWHERE


def test_the_doubles_meet_each_operation() -> None:
    """No fault refuses what has another name."""
    for name in CALLS:
        assert met_by(MemoryDisk(), "refuse", name) == MEETS[name]
        # The simulation never refuses to tell how full a file system is.
        assert met_by(SimulatedDisk(), "meet", name) == (set() if name == "usage" else MEETS[name])
        # A read that may not be done in the loop is left to a worker.
        asked = set() if name == "try_read" else MEETS[name] & (WRITES | SYNCS | SLOW)
        faulty = FaultyDisk(testing.MemoryDisk(lambda: 1), Faults(), 1)
        assert met_by(faulty, "_meeting", name, Met) == asked, name


class Met:
    """What a FaultyDisk asks of its faults."""

    def __init__(self, met: Callable[[str, str], None]) -> None:
        self.meet = met

    def is_slow(self, path: str) -> bool:
        return False


def test_operations_are_of_one_kind() -> None:
    assert CHANGES | SYNCS <= OPERATIONS
    assert not CHANGES & SYNCS


def met_by(disk: Any, observer: str, name: str, kind: Callable[[Any], Any] = lambda met: met) -> set[str]:
    """What the operation does, apart from opening its file."""
    disk.make_directory("/d")
    disk.write_atomic("/d/f", b"some")
    met: list[str] = []
    setattr(disk, observer, kind(lambda operation, path: met.append(operation)))
    CALLS[name](disk)
    return set(met) - ({"open"} if name != "open" else set())
