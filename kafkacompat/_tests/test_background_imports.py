"""Modules that are imported in the background, and what waits for them."""

from __future__ import annotations

import errno
import importlib
import sys
from functools import partial
from pathlib import Path

import pytest

from kafkacompat import late
from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.deferred import Deferred
from kafkacompat.late import AGAIN_MS, BEGIN_MS, HELD_MAX_MS, PAUSE_MS, Provisions, came_of_an_import
from kafkacompat.tasks import Tasks

NAMES = ["provision_a", "provision_b", "provision_c"]


class ProvidedModules:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.syspath_prepend(str(folder))
        for name in NAMES:
            monkeypatch.delitem(sys.modules, name, raising=False)
            self.put(name)
        self.time = HandTime()
        self.workers = HandWorkers()
        self.kept = 0
        self.problem: Exception | None = None
        self.provisions = Provisions(
            lambda: list(NAMES), self.workers, Tasks(self.time), self._keep, self._check
        )

    def put(self, name: str) -> None:
        (self.folder / f"{name}.py").write_text("")
        importlib.invalidate_caches()

    def take_away(self, name: str) -> None:
        (self.folder / f"{name}.py").unlink()
        importlib.invalidate_caches()

    def _keep(self) -> None:
        self.kept += 1

    def _check(self) -> None:
        if self.problem is not None:
            raise type(self.problem)(*self.problem.args)  # a new one each time, as of the system

    def run(self, ms: int) -> None:
        """Let time pass, with workers that are at once."""
        for _ in range(ms):
            self.time.advance(1)
            self.workers.run()

    def loaded(self) -> list[str]:
        return [name for name in NAMES if name in sys.modules]


@pytest.fixture
def provided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProvidedModules:
    return ProvidedModules(tmp_path, monkeypatch)


def test_one_module_after_another_and_none_before_the_first_answers(provided: ProvidedModules) -> None:
    provided.provisions.begin()
    provided.run(BEGIN_MS - 1)
    assert not provided.loaded()
    sizes = []
    for _ in range(BEGIN_MS + PAUSE_MS * 10):
        before = len(provided.loaded())
        provided.time.advance(1)
        assert len(provided.workers.submitted) <= 1
        provided.workers.run()
        sizes.append(len(provided.loaded()) - before)
    assert provided.loaded() == NAMES
    assert max(sizes) == 1
    assert provided.provisions.is_complete
    assert provided.kept == 1


def test_a_module_that_cannot_be_imported_is_tried_again(
    provided: ProvidedModules, caplog: pytest.LogCaptureFixture
) -> None:
    provided.take_away("provision_b")
    provided.provisions.begin()
    provided.run(BEGIN_MS + 3 * AGAIN_MS)
    assert provided.loaded() == ["provision_a"]
    assert not provided.provisions.is_complete
    provided.put("provision_b")
    provided.run(2 * AGAIN_MS)
    assert provided.loaded() == NAMES
    assert provided.provisions.is_complete
    assert caplog.text.count("trying again") == 1, "it is told once, not for each attempt"


def test_nothing_is_imported_from_another_version(provided: ProvidedModules) -> None:
    provided.problem = OSError(errno.ESTALE, "replaced")
    provided.provisions.begin()
    provided.run(BEGIN_MS + 3 * AGAIN_MS)
    assert not provided.loaded()
    provided.problem = None
    provided.run(2 * AGAIN_MS)
    assert provided.provisions.is_complete


def test_a_list_that_cannot_be_read_is_read_again(provided: ProvidedModules) -> None:
    problems: list[Exception] = [FileNotFoundError("the package is away")]

    def names() -> list[str]:
        if problems:
            raise problems.pop()
        return NAMES

    provisions = Provisions(names, provided.workers, Tasks(provided.time))
    provisions.begin()
    provided.run(BEGIN_MS + 2 * AGAIN_MS)
    assert provisions.is_complete


def test_a_waiting_request_is_served_when_all_modules_are_loaded(provided: ProvidedModules) -> None:
    provided.take_away("provision_c")
    provided.provisions.begin()
    held = [provided.provisions.hold(lambda number=number: Deferred.of(number)) for number in range(3)]
    given_up = provided.provisions.hold(lambda: pytest.fail("nobody wants it any more"))
    given_up.abandon()
    kept = bytearray(1)  # a request, whose client may come back with the next one
    provided.provisions.hold(partial(Deferred.of, memoryview(kept))).abandon()
    kept.append(0)  # raises while something refers to it
    provided.run(BEGIN_MS + AGAIN_MS)
    assert not any(each.done for each in held)
    provided.put("provision_c")
    provided.run(2 * AGAIN_MS)
    assert [each.result() for each in held] == [0, 1, 2]
    assert provided.provisions.hold(lambda: Deferred.of("at once")).result() == "at once"


def test_a_request_that_waited_too_long_is_served_without_the_modules(provided: ProvidedModules) -> None:
    provided.take_away("provision_a")
    provided.provisions.begin()
    held = provided.provisions.hold(lambda: Deferred.of("tried"))
    provided.run(HELD_MAX_MS - 1)
    assert not held.done
    provided.run(1)
    assert held.result() == "tried"


def test_an_error_of_an_import_is_told_from_one_of_a_log(
    provided: ProvidedModules, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided.take_away("provision_a")
    with pytest.raises(ImportError) as missing:
        importlib.import_module("provision_a")
    assert came_of_an_import(missing.value)

    def no_descriptor(_loader: object, _path: str) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("importlib._bootstrap_external.SourceFileLoader.get_data", no_descriptor)
    with pytest.raises(OSError, match="Too many") as lacking:
        importlib.import_module("provision_b")
    assert came_of_an_import(lacking.value)
    with pytest.raises(OSError, match="away") as of_a_log:
        (provided.folder / "away").open()
    assert not came_of_an_import(of_a_log.value)


def test_the_name_of_the_importer_is_pythons() -> None:
    assert importlib.__import__.__code__.co_filename.startswith(late.IMPORTER)
