"""The journal as a source of lines, by a stand-in for journalctl: what arrives, and what deaths, cursors and odd entries do."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from kafkacompat.pipeline import collect_command
from kafkacompat.pipeline._tests.collector_kit import State
from kafkacompat.pipeline._tests.test_collect_command import words
from kafkacompat.pipeline._tests.test_collector_standard_input import SlowShipper
from kafkacompat.pipeline.collector import journal as collecting
from kafkacompat.pipeline.collector.journal import Entry, Journal, decode, encode, entry_of, words_of
from kafkacompat.pipeline.collector.lines import LineCutter
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

PROGRAM = """#!{python} -IS
import json, pathlib, signal, sys
folder = pathlib.Path({folder!r})
with open(folder / "calls", "a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
fails = folder / "fails"
if fails.exists():
    sys.exit(fails.read_text())
cursor = next((word.partition("=")[2] for word in sys.argv if word.startswith("--cursor=")), None)
lines = (folder / "entries").read_text().splitlines()
begin = next((n for n, line in enumerate(lines) if cursor is not None and cursor in line), 0)
for line in lines[begin:]:
    print(line, flush=True)
if "--follow" in sys.argv and not (folder / "dies").exists():
    signal.pause()
"""


def cursor_of(number: int) -> str:
    return f"s=0c{'f' * 30};i={number:x};b=4{'0' * 31};m=1;t=2;x=3"


def entry(
    number: int, message: Any = "text", unit: str | None = "nginx.service", **more: Any
) -> dict[str, Any]:
    told = {"__CURSOR": cursor_of(number), "MESSAGE": message, "_TRANSPORT": "stdout", **more}
    return told if unit is None else told | {"_SYSTEMD_UNIT": unit}


class Machine:
    """A journal, and the collector's state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = State(str(folder))
        self.shipper = SlowShipper()
        (folder / "entries").touch()
        program = folder / "journalctl"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def write(self, *entries: dict[str, Any]) -> None:
        with open(self.folder / "entries", "a") as journal:
            for each in entries:
                print(json.dumps(each), file=journal)

    def collect(self, **options: Any) -> Journal:
        return Journal(self.shipper, self.state, **{"until_end": True, **options})  # type: ignore[arg-type]

    def run(self, **options: Any) -> None:
        self.collect(**options).run(lambda: False, lambda figures: None)

    def turn_until_read(self, journal: Journal) -> None:
        """The process needs some time to start."""
        for _ in range(100):
            if journal.turn(1.0, 0.0):
                return
        raise AssertionError("nothing was read")

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(collecting, "PROGRAM", str(tmp_path / "journalctl"))
    return Machine(tmp_path)


def test_entries_arrive_once_with_the_number_that_they_have_in_their_journal(machine: Machine) -> None:
    machine.write(entry(1, "one"), entry(2, "two", "cron.service"), entry(3, "three"))
    machine.run()
    journal = f"journal-0c{'f' * 30}"
    arrived = {(journal, 1): {b"one"}, (journal, 2): {b"two"}, (journal, 3): {b"three"}}
    assert machine.shipper.arrived == arrived
    assert machine.state.text is not None
    assert decode(machine.state.text) == cursor_of(3)
    machine.write(entry(4, "four"))
    machine.shipper.arrived.clear()
    machine.run(matches=["_SYSTEMD_UNIT=nginx.service", "--x=1"])
    assert machine.shipper.arrived == {(journal, 4): {b"four"}}
    assert f"--cursor={cursor_of(3)}" in machine.calls[1]
    # No match is taken for an option.
    assert machine.calls[1][-3:] == ["--", "_SYSTEMD_UNIT=nginx.service", "--x=1"]
    assert machine.run() is None


def test_the_cursor_is_that_of_what_the_broker_has(machine: Machine) -> None:
    machine.write(
        entry(1, "one"), entry(2, "two", "b"), entry(3, None, "b"), entry(4, "four", "c"), entry(5, "five")
    )
    journal = machine.collect()
    machine.turn_until_read(journal)
    while len(machine.shipper.on_the_way) < 4:
        machine.turn_until_read(journal)
    # The answers come in another order.
    machine.shipper.deliver(1)
    journal._save(0)
    assert machine.state.text is None
    machine.shipper.deliver(0)
    journal._save(0)
    assert machine.state.text is not None
    # The entry without a message has nothing to wait for.
    assert decode(machine.state.text) == cursor_of(3)
    journal._end()
    # As after SIGKILL: what was on the way comes again, under the same numbers.
    machine.shipper.on_the_way.clear()
    machine.run()
    assert machine.shipper.lines() == [b"one", b"two", b"four", b"five"]


def test_nothing_is_read_while_the_broker_is_behind(machine: Machine) -> None:
    machine.write(entry(1, "one"))
    journal = machine.collect()
    machine.shipper.allowed = 0
    assert not journal.turn(0, 0)
    assert not (machine.folder / "calls").exists()
    machine.shipper.allowed = 10
    machine.turn_until_read(journal)
    journal._end()


def test_a_journalctl_that_dies_is_started_again_after_what_was_read(machine: Machine) -> None:
    machine.write(entry(1, "one"), entry(2, "two"))
    (machine.folder / "dies").touch()
    journal = machine.collect(until_end=False)
    machine.turn_until_read(journal)
    while journal._process is not None:
        journal.turn(1.0, 10.0)
    assert "is started again" in str(journal.figures().trouble)
    assert not journal.turn(0, 10.5)
    assert journal._process is None
    machine.write(entry(3, "three"))
    for _ in range(100):
        journal.turn(1.0, 11.0)
        if any(line.value == b"three" for _, _, lines in machine.shipper.on_the_way for line in lines):
            break
    journal._end()
    machine.shipper.flush(0)
    assert machine.shipper.lines() == [b"one", b"two", b"three"]
    assert machine.shipper.acknowledged_lines == 3
    assert "--follow" in machine.calls[0]


def no_process(machine: Machine, patch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **options: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    patch.setattr(subprocess, "Popen", refuse)


def no_temporary_file(machine: Machine, patch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(tempfile, "TemporaryFile", refuse)


def no_descriptors(machine: Machine, patch: pytest.MonkeyPatch) -> None:
    (machine.folder / "fails").write_text("Failed to open journal: Too many open files")


@pytest.mark.parametrize("lacks", [no_process, no_temporary_file, no_descriptors])
def test_a_journalctl_that_cannot_be_started_again_now_is_started_later(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    lacks: Callable[[Machine, pytest.MonkeyPatch], None],
) -> None:
    machine.write(entry(1, "one"))
    (machine.folder / "dies").touch()
    journal = machine.collect(until_end=False)
    machine.turn_until_read(journal)
    while journal._process is not None:
        journal.turn(1.0, 10.0)
    with monkeypatch.context() as patch:
        lacks(machine, patch)
        journal.turn(1.0, 11.0)
        while journal._process is not None:
            journal.turn(1.0, 11.0)
    (machine.folder / "fails").unlink(missing_ok=True)
    assert "started again" in str(journal.figures().trouble)
    machine.write(entry(2, "two"))
    for _ in range(100):
        journal.turn(1.0, 12.0)
        if any(line.value == b"two" for _, _, lines in machine.shipper.on_the_way for line in lines):
            break
    journal._end()
    machine.shipper.flush(0)
    assert machine.shipper.lines() == [b"one", b"two"]


def test_a_journalctl_that_cannot_do_what_it_is_asked_ends_the_collector(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.folder / "fails").write_text("Failed to add match: Invalid argument\nmore")
    with pytest.raises(PipelineFailed, match=r"status 1: Failed to add match: Invalid argument$"):
        machine.run(until_end=False)
    monkeypatch.setattr(collecting, "PROGRAM", str(machine.folder / "none"))
    with pytest.raises(PipelineFailed, match="cannot be started: No such file"):
        machine.run()


def test_the_state_of_a_collector_of_files_is_refused(machine: Machine) -> None:
    machine.state.text = json.dumps({"version": 1, "files": [], "held": []})
    with pytest.raises(PipelineFailed, match="it is not that of a collector of the journal"):
        machine.collect()
    for text in ("{", "[]", '{"version": 2, "journal": {"cursor": "c"}}', '{"version": 1, "journal": {}}'):
        with pytest.raises(ValueError, match="is not that of"):
            decode(text)
    assert decode(encode("c")) == "c"


def parsed(told: dict[str, Any]) -> Entry:
    text = json.dumps(told).encode()
    found = entry_of(text, len(text))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("text \u00e9", "text \u00e9".encode()),
        ("lines\nof one entry", b"lines\nof one entry"),
        ([255, 254, 10], b"\xff\xfe\n"),
        (["a", [98, 255]], b"a\nb\xff"),
        ("\ud800", b"?"),
        ("", b""),
        ([], b""),
        (None, None),
        (5, None),
    ],
)
def test_the_message_is_what_the_writer_has_written(message: Any, value: bytes | None) -> None:
    found = parsed(entry(7, message))
    assert (found.value, found.number, found.unit) == (value, 7, "nginx.service")


def test_the_source_is_the_unit_or_else_the_name_or_the_way() -> None:
    assert parsed(entry(1, "m", None)).unit == "stdout"
    assert parsed(entry(1, "m", None, SYSLOG_IDENTIFIER="sudo")).unit == "sudo"
    assert len(parsed(entry(1, "m", "u" * 1000)).unit) == 256


def test_what_is_too_long_is_cut_and_its_cursor_is_kept() -> None:
    found = parsed(entry(1, "x" * (LINE_BYTES_MAX + 5)))
    assert (found.value, found.length_bytes) == (b"x" * LINE_BYTES_MAX, LINE_BYTES_MAX + 5)
    forged = {"MESSAGE": '"__CURSOR":"s=1;i=1;"' + "x" * 100, "__CURSOR": cursor_of(9), "rest": "y" * 900}
    text = json.dumps(forged).encode()
    assert entry_of(text[:500], len(text)) == Entry(cursor_of(9), f"0c{'f' * 30}", 9, "", b"", len(text))
    assert entry_of(text[:50], len(text)) is None


@pytest.mark.parametrize(
    "text", [b"", b"no", b"[]", b"{}", b'{"__CURSOR": 5}', b'{"__CURSOR": "s=;i="}', b"[" * 9999]
)
def test_what_is_no_entry_is_said(text: bytes) -> None:
    assert entry_of(text, len(text)) is None


def test_what_is_no_entry_does_not_stop_the_others(machine: Machine) -> None:
    (machine.folder / "entries").write_text("no entry\n")
    machine.write(entry(1, "one"))
    journal = machine.collect()
    journal.run(lambda: False, lambda figures: None)
    assert machine.shipper.lines() == [b"one"]
    assert journal.figures().trouble is not None


def test_memory_for_an_entry_is_bounded(machine: Machine) -> None:
    machine.write(entry(1, "one"))
    journal = machine.collect()
    machine.turn_until_read(journal)
    journal._end()
    assert isinstance(journal._cutter, LineCutter)
    assert journal._cutter.max_line_bytes == collecting.ENTRY_BYTES_MAX


def test_only_matches_of_fields_are_given_to_journalctl(tmp_path: Path) -> None:
    assert words_of([], None, until_end=True)[-1].startswith("--output-fields=")
    for names, why in (
        (["journal:", "a.log"], "is collected alone"),
        (["journal:--file=/etc/passwd"], "is not journal:FIELD=VALUE"),
        (["journal:nginx.service"], "is not journal:FIELD=VALUE"),
    ):
        given = words(tmp_path)
        given.files = names
        with pytest.raises(PipelineFailed, match=why):
            collect_command.run(given)  # type: ignore[arg-type]
    given = words(tmp_path)
    given.files, given.record_start = ["journal:"], lambda line: True
    with pytest.raises(PipelineFailed, match="--record-start is for lines"):
        collect_command.run(given)  # type: ignore[arg-type]


def test_two_runs_have_the_same_event_ids(machine: Machine) -> None:
    machine.write(entry(1, "one"))
    machine.run()
    machine.state.text = None
    machine.run()
    assert dict(machine.shipper.arrived) == defaultdict(set, {(f"journal-0c{'f' * 30}", 1): {b"one"}})
    assert machine.shipper.acknowledged_lines == 2
