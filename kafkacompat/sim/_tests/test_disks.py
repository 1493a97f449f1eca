"""The disks of unit tests and of the simulation compared with the real one: the same calls give the same results and errors."""

from __future__ import annotations

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
from kafkacompat.ports import SyncFailed
from kafkacompat.sim.disk import SimulatedDisk

FILE_NAMES = ("f", "g")
DIRECTORY_NAMES = ("d", "e")
DIRECTORIES = ("", *(f"/{name}" for name in DIRECTORY_NAMES), "/d/e")
directories = st.sampled_from(DIRECTORIES[1:])
parents = st.sampled_from(DIRECTORIES)
names = st.sampled_from(FILE_NAMES + DIRECTORY_NAMES)
anything = st.builds("{}/{}".format, parents, names)
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


class Disks(RuleBasedStateMachine):
    """Makes every call on all three disks. A handle is three files that were opened in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        memory, simulated = MemoryDisk(), SimulatedDisk()
        memory.make_directory("/data")
        simulated.make_directory("/data")
        self.disks: list[tuple[Any, str]] = [(RealDisk(), self.root), (memory, "/data"), (simulated, "/data")]
        self.handles: list[list[Any]] = []

    def teardown(self) -> None:
        for handle in self.handles:
            handle[0].close()
        shutil.rmtree(self.root)

    def ask(self, call: Callable[[Any, str], Any]) -> list[Any]:
        """Return the result of each disk. The results are equal."""
        return self._same([outcome(lambda d=disk, r=root: call(d, r)) for disk, root in self.disks])  # type: ignore[misc]

    def ask_files(self, handle: list[Any], call: Callable[[Any], Any]) -> None:
        self._same([outcome(lambda f=file: call(f)) for file in handle])  # type: ignore[misc]

    def _same(self, found: list[Any]) -> list[Any]:
        assert found[1:] == found[:1] * (len(found) - 1), f"real, memory, simulated: {found}"
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
