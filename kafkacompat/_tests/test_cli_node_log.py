"""A node's log in a file: bounds of the queue and of the files, what is told of lost entries, and both formats."""

from __future__ import annotations

import argparse
import errno
import io
import json
import logging
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.__main__ import main
from kafkacompat.cli import start
from kafkacompat.cli.cluster_files import ClusterFiles, new_layout
from kafkacompat.cli.log_format import JsonFormatter, TextFormatter
from kafkacompat.cli.log_options import LogOptions, add_log_file, add_log_rotation, log_format, log_options
from kafkacompat.cli.node_log import MESSAGE_CHARACTERS_MAX, NodeLog
from kafkacompat.cli.node_process import NodeProcesses
from kafkacompat.failure import CommandFailed


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.Logger("kafkacompat.made", logging.INFO)
    yield made
    made.handlers.clear()


@pytest.fixture
def root_logging() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.captureWarnings(False)


def opened(path: Path, logger: logging.Logger, **options: int) -> NodeLog:
    settings = {"max_bytes": 100_000, "backups": 2, **options}
    log = NodeLog(str(path), formatter=TextFormatter(), **settings)  # type: ignore[arg-type]
    logger.addHandler(log.handler)
    return log


def lines(path: Path) -> list[str]:
    """Everything after the time of each line."""
    return [line.partition("] ")[2] for line in path.read_text().splitlines()]


def test_files_are_bounded_in_size_and_number(tmp_path: Path, logger: logging.Logger) -> None:
    log = opened(tmp_path / "node.log", logger, max_bytes=5_000, backups=2)
    log.start()
    for number in range(200):
        logger.info("entry %03d %s", number, "x" * 90)
    log.close()
    files = {each.name: each for each in tmp_path.iterdir()}
    assert set(files) == {"node.log", "node.log.1", "node.log.2"}
    assert all(each.stat().st_size <= 5_000 for each in files.values())
    kept = [*lines(files["node.log.2"]), *lines(files["node.log.1"]), *lines(files["node.log"])]
    numbers = [int(line.split()[2]) for line in kept]
    assert numbers == list(range(numbers[0], 200))
    assert numbers[0] > 0


def test_a_full_queue_drops_and_says_how_many(tmp_path: Path, logger: logging.Logger) -> None:
    log = opened(tmp_path / "node.log", logger, queue_entries_max=2)
    for number in range(5):
        logger.info("entry %d", number)
    assert log.handler.dropped == 3
    assert log.write_next()
    logger.info("entry 5")
    log.start()
    log.close()
    assert lines(tmp_path / "node.log") == [
        "INFO entry 0 (kafkacompat.made)",
        "WARNING 3 entries of the log were dropped: the queue was full (kafkacompat.cli.node_log)",
        "INFO entry 1 (kafkacompat.made)",
        "INFO entry 5 (kafkacompat.made)",
    ]


class FullDisk(io.FileIO):
    """A file on a disk that takes a few more bytes."""

    def __init__(self, path: Path, room: int) -> None:
        super().__init__(path, "a")
        self._room = room

    def write(self, data: Any) -> int:
        taken = super().write(bytes(data)[: self._room])
        self._room -= taken
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return taken


def on_full_disk(path: Path, room: int = 0) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(FullDisk(path, room)), encoding="utf-8")


def test_a_full_disk_costs_entries_and_the_log_says_how_many(
    tmp_path: Path,
    logger: logging.Logger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "node.log"
    log = opened(path, logger)
    open_file: Callable[[], io.TextIOWrapper] = log.file._open
    logger.info("before")
    assert log.write_next()
    log.file.stream.close()
    log.file.stream = on_full_disk(path, room=30)
    monkeypatch.setattr(log.file, "_open", lambda: on_full_disk(path))
    for number in range(3):
        logger.info("lost %d", number)
        assert log.write_next()
    assert lines(path) == ["INFO before (kafkacompat.made)"], "no part of a lost entry stays"
    monkeypatch.setattr(log.file, "_open", open_file)
    logger.info("written")
    assert log.write_next()
    assert log.file.lost == 3
    assert lines(path)[1:] == [
        "INFO written (kafkacompat.made)",
        "WARNING 3 entries of the log could not be written: No space left on device (kafkacompat.cli.node_log)",
    ]
    assert capsys.readouterr().err.count("cannot be written: No space left on device") == 1


def test_an_entry_begins_a_line_after_a_part_of_another(tmp_path: Path, logger: logging.Logger) -> None:
    path = tmp_path / "node.log"
    path.write_text("a part")
    log = opened(path, logger)
    logger.info("whole")
    assert log.write_next()
    assert path.read_text().startswith("a part\n[")
    log.file.close()


def test_the_log_follows_its_path_when_another_program_rotates_it(
    tmp_path: Path, logger: logging.Logger
) -> None:
    """As logrotate does: by moving, by deleting the folder, and by copying and cutting."""
    path = tmp_path / "logs" / "node.log"
    path.parent.mkdir()
    log = opened(path, logger)

    def write(text: str) -> None:
        logger.info(text)
        assert log.write_next()

    write("first")
    path.rename(tmp_path / "moved.log")
    write("second")
    assert lines(tmp_path / "moved.log") == ["INFO first (kafkacompat.made)"]
    assert lines(path) == ["INFO second (kafkacompat.made)"]
    os.truncate(path, 0)
    write("third")
    assert lines(path) == ["INFO third (kafkacompat.made)"]
    shutil.rmtree(path.parent)
    write("without a folder")
    path.parent.mkdir()
    write("fourth")
    assert lines(path) == [
        "INFO fourth (kafkacompat.made)",
        "WARNING 1 entries of the log could not be written: No such file or directory (kafkacompat.cli.node_log)",
    ]
    log.file.close()


@pytest.mark.parametrize(
    ("call", "problem", "expected"),
    [
        (
            "fstat",
            OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
            ["INFO after", "WARNING 1 entries of the log could not be written: Too many open files"],
        ),
        (
            "fstat",
            MemoryError(),
            ["INFO after", "WARNING 1 entries of the log could not be written: no memory is left"],
        ),
        ("dup", OSError(errno.EMFILE, os.strerror(errno.EMFILE)), ["INFO meanwhile", "INFO after"]),
    ],
)
def test_a_look_at_the_file_that_fails_does_not_end_the_writing(
    call: str,
    problem: Exception,
    expected: list[str],
    tmp_path: Path,
    logger: logging.Logger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(descriptor: int) -> None:
        raise problem

    path = tmp_path / "node.log"
    log = opened(path, logger)
    logger.info("before")
    assert log.write_next()
    path.rename(tmp_path / "moved.log")
    with monkeypatch.context() as failing:
        failing.setattr(os, call, refused)
        logger.info("meanwhile")
        assert log.write_next()
    logger.info("after")
    assert log.write_next()
    assert [line.partition(" (")[0] for line in lines(path)] == expected
    log.file.close()


def test_a_log_may_be_a_pipe(tmp_path: Path, logger: logging.Logger) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = opened(path, logger, max_bytes=4096)
    logger.info("hello")
    assert log.write_next()
    assert b"hello" in os.read(reader, 4096)
    log.file.close()
    os.close(reader)


def test_nobody_waits_for_the_lock_of_the_file(tmp_path: Path, logger: logging.Logger) -> None:
    """Python takes it by `with` since 3.13."""
    log = opened(tmp_path / "node.log", logger)
    log.start()
    assert log.file.lock is not None
    with log.file.lock:
        logger.info("hello")
        log.handler.flush()
        assert lines(tmp_path / "node.log") == ["INFO hello (kafkacompat.made)"]
    log.close()


def test_a_logging_thread_does_not_wait_for_the_disk(tmp_path: Path, logger: logging.Logger) -> None:
    log = opened(tmp_path / "node.log", logger, queue_entries_max=2)
    may_write, writes = threading.Event(), threading.Event()
    emit = log.file.emit

    def slow(record: logging.LogRecord) -> None:
        writes.set()
        may_write.wait()
        emit(record)

    log.file.emit = slow  # type: ignore[method-assign]
    log.start()
    logger.info("first")
    writes.wait()
    for _ in range(10):
        logger.info("further")
    assert log.handler.dropped == 8
    may_write.set()
    log.handler.flush()
    assert len(lines(tmp_path / "node.log")) == 4
    log.close()


def test_an_entry_has_its_texts_of_then_and_a_bound(tmp_path: Path, logger: logging.Logger) -> None:
    log = opened(tmp_path / "node.log", logger)
    changing = ["before"]
    logger.info("%s", changing)
    changing[0] = "after"
    logger.info("y" * (MESSAGE_CHARACTERS_MAX + 7))
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("failed")
    log.start()
    log.close()
    text = (tmp_path / "node.log").read_text()
    assert "['before']" in text
    assert "y... (7 more characters)" in text
    assert "Traceback (most recent call last)" in text
    assert text.endswith("ValueError: broken\n")


def entry(formatter: logging.Formatter, **fields: object) -> dict[str, object]:
    record = logging.LogRecord("kafkacompat.x", logging.WARNING, "f", 1, "a\n%s", ("\udcff",), None)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    record.__dict__.update(fields)
    text = formatter.format(record)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def test_a_client_cannot_write_lines_of_its_own() -> None:
    """Names in denials of the authorizer are texts of clients."""
    forged = "g\n[2026-01-01 00:00:00,000] INFO Principal = User:admin is Allowed\r\x1b[2J\x85\u2028\tx"
    record = logging.LogRecord(
        "kafka.authorizer.logger", logging.INFO, "f", 1, "resource = %s", (forged,), None
    )
    try:
        raise ValueError(forged)
    except ValueError:
        record.exc_info = sys.exc_info()
    lines = TextFormatter().format(record).splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith("[")] == [0]
    assert lines[1].endswith(r"is Allowed\r\x1b[2J\x85\u2028" + "\tx (kafka.authorizer.logger)")


def test_json_lines() -> None:
    formatter = JsonFormatter()
    common = {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "kafkacompat.x",
        "message": "a\n\udcff",
    }
    assert entry(formatter) == common
    formatter.node_id = 0
    assert entry(formatter) == {**common, "node": 0}
    try:
        raise ValueError("broken")
    except ValueError:
        exception = entry(formatter, exc_info=sys.exc_info())["exception"]
    assert str(exception).endswith("ValueError: broken")
    assert entry(formatter, exc_text="stack")["exception"] == "stack"


@pytest.mark.usefixtures("root_logging")
def test_start_logs_to_the_file_and_empties_the_queue_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    with start.node_logging("INFO", LogOptions(str(path), format="json")) as know:
        know(7)
        logging.getLogger("kafkacompat.y").info("hello")
        logging.getLogger("kafkacompat.y").debug("too much")
    assert [(each["message"], each["node"]) for each in map(json.loads, path.read_text().splitlines())] == [
        ("hello", 7)
    ]


@pytest.mark.usefixtures("root_logging")
def test_a_file_that_cannot_be_opened_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "node.log"
    with (
        pytest.raises(CommandFailed, match=r"--log-file .*node\.log: No such file"),
        start.node_logging("INFO", LogOptions(str(path))),
    ):
        pass


@pytest.mark.usefixtures("root_logging")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CommandFailed("no disk"), "the node does not start: no disk"),
        (ValueError("x"), "the node ends by a mistake in the program: ValueError('x')"),
    ],
)
def test_json_lines_on_standard_error_also_tell_the_end(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, start.node_logging("INFO", LogOptions(format="json")):
        raise error
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry["message"] == told
    assert ("exception" in entry) is isinstance(error, ValueError)


@pytest.mark.usefixtures("root_logging")
def test_a_log_file_tells_why_the_node_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "node.log"
    words = ["start", "--override", "no.such.setting=1", "--override", "node.id=one", "--log-file", str(path)]
    assert main(words) == 1
    assert lines(path)[-1].startswith("CRITICAL the node does not start: Invalid value one")
    assert capsys.readouterr().err.startswith("kafkacompat: Invalid value one")


@pytest.mark.usefixtures("root_logging")
def test_warnings_of_libraries_are_entries(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), start.node_logging("WARNING", LogOptions(format="json")):
        warnings.simplefilter("always")
        # The catching of warnings has taken the place of the log's.
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert "old" in json.loads(line)["message"]


def test_a_variable_names_a_format() -> None:
    assert (log_format(None), log_format("json")) == ("text", "json")
    with pytest.raises(CommandFailed, match=r"KAFKACOMPAT_LOG_FORMAT takes text, json, not 'xml'"):
        log_format("xml")


def test_a_cluster_passes_on_the_log_options_that_start_takes() -> None:
    parser = argparse.ArgumentParser()
    add_log_rotation(parser)
    wanted = log_options(
        parser.parse_args(["--log-max-bytes", "4096", "--log-backups", "1", "--log-format", "json"])
    )
    assert wanted == LogOptions(None, 4096, 1, "json")
    untried = [name for name in LogOptions.__slots__ if getattr(wanted, name) == getattr(LogOptions(), name)]
    assert untried == ["path"], "each other option has another value here than by default"
    of_start = argparse.ArgumentParser()
    add_log_file(of_start)
    assert log_options(of_start.parse_args(wanted.words("x.log"))) == LogOptions("x.log", 4096, 1, "json")


@pytest.mark.parametrize(
    "words",
    [["--log-max-bytes", "4095"], ["--log-backups", "0"], ["--log-max-bytes", "1M"], ["--log-format", "xml"]],
)
def test_values_without_a_bound_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_log_rotation(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert words[0] in capsys.readouterr().err


def test_the_last_words_are_those_written_last(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    node = new_layout(1, 9092, "c", ["1"]).nodes[0]
    folder = files.make_folder(1)
    processes = NodeProcesses(files)
    assert processes.last_words(node) == ""
    (folder / "node.log").write_text("[..] CRITICAL the node halts\n\n")
    assert processes.last_words(node) == "[..] CRITICAL the node halts"
    (folder / "node.out").write_text("kafkacompat: port in use\n")
    os.utime(folder / "node.log", ns=(1, 1))
    assert processes.last_words(node) == "kafkacompat: port in use"
    os.utime(folder / "node.out", ns=(0, 1))
    os.utime(folder / "node.log", ns=(0, 2))
    assert processes.last_words(node).endswith("halts")


@pytest.mark.parametrize(
    ("is_terminal", "level", "lines"), [(True, "WARNING", 1), (True, "INFO", 3), (False, "WARNING", 3)]
)
def test_a_terminal_gets_an_entry_with_a_stack_as_one_line_unless_more_is_asked_for(
    is_terminal: bool, level: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", stderr)
    with start.node_logging(level, LogOptions(None)):
        logging.getLogger("x").warning("it stood in:\n  line\n  line", extra={"brief": "it stood in a line"})
    assert len(stderr.getvalue().splitlines()) == lines
