"""The collector's command when the broker is away at its start."""

from __future__ import annotations

import argparse
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("confluent_kafka")

from kafkacompat.pipeline import collect_command
from kafkacompat.pipeline.collector.identity import file_identity, fingerprint
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.failure import PipelineFailed

STATE = '{"version": 1, "files": [], "held": []}'


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def words(tmp_path: Path, until_end: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        state=str(tmp_path / "state"),
        files=[str(tmp_path / "a.log")],
        bootstrap="127.0.0.1:1",
        command_config=None,
        topic="logs.raw",
        host="web",
        interval=1e6,
        until_end=until_end,
        record_start=None,
        field=[],
    )


class Producer:
    """Replaces the client, whose threads would outlive the test. It never gets an answer."""

    def __init__(self, files: set[bytes]) -> None:
        self._files = files

    def poll(self, timeout_s: float) -> None:
        pass

    def flush(self, timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def produce(self, topic: str, headers: list[tuple[str, bytes]], **record: object) -> None:
        self._files.add(dict(headers)["file"])


@pytest.mark.parametrize("until_end", [False, True])
def test_a_first_run_and_one_that_is_to_end_say_that_nobody_answers(
    until_end: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nobody(bootstrap: str, topics: object, timeout_s: float) -> None:
        assert timeout_s == collect_command.DEFAULT_TIMEOUT_S
        raise PipelineFailed("no broker answers")

    monkeypatch.setattr(collect_command, "create_missing", nobody)
    if until_end:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "positions.json").write_text(STATE)
    with pytest.raises(PipelineFailed, match="no broker answers"):
        collect_command.run(words(tmp_path, until_end))  # type: ignore[arg-type]


def test_a_later_run_holds_the_files_and_asks_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[float] = []
    log = tmp_path / "a.log"
    log.write_text("a line\n")
    seen = log.stat()
    held: list[bool] = []
    shipped: set[bytes] = set()

    def nobody(bootstrap: str, topics: object, timeout_s: float) -> None:
        asked.append(timeout_s)
        if len(asked) == 2:
            log.unlink()
        if len(asked) == 4:
            held.append(any(f"{log} (deleted)" == target for target in open_files()))
            os.kill(os.getpid(), signal.SIGTERM)
        raise PipelineFailed("no broker answers")

    monkeypatch.setattr(collect_command, "create_missing", nobody)
    monkeypatch.setattr(Shipper, "_new_producer", lambda self: Producer(shipped))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "positions.json").write_text(STATE)
    watchdog = threading.Timer(60.0, os.kill, (os.getpid(), signal.SIGTERM))
    watchdog.start()
    try:
        assert collect_command.run(words(tmp_path)) == 0  # type: ignore[arg-type]
    finally:
        watchdog.cancel()
    assert asked == [collect_command.DEFAULT_TIMEOUT_S, *[collect_command.TOPICS_AGAIN_TIMEOUT_S] * 3]
    assert held == [True]
    head = fingerprint(b"a line\n")
    assert head is not None
    assert shipped == {file_identity("web", seen.st_dev, seen.st_ino, head, 0).encode()}
    said = capsys.readouterr()
    assert "collector: no broker answers; follows the files meanwhile\n" in said.err
    assert "collector stopped: 0 lines, 0.0 MB shipped, lag 0 bytes in 1 files" in said.out


def open_files() -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("env", "'env' is not NAME=VALUE"),
        ("=a", "'=a' is not NAME=VALUE"),
        ("position=1", "position is a header of the collector's own"),
        ("env=" + "a" * 257, "env has more than 256 characters"),
    ],
)
def test_a_field_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(why)):
        collect_command._field(text)


def test_fields_have_different_names_and_a_bound(tmp_path: Path) -> None:
    given = words(tmp_path)
    given.field = [collect_command._field("env=a=b"), collect_command._field("team=")]
    assert collect_command._fields(given) == [("env", b"a=b"), ("team", b"")]  # type: ignore[arg-type]
    given.field.append(("env", b""))
    with pytest.raises(PipelineFailed, match="--field has env twice"):
        collect_command.run(given)  # type: ignore[arg-type]
    given.field = [(f"f{number}", b"") for number in range(17)]
    with pytest.raises(PipelineFailed, match="--field was given 17 times, at most 16 are possible"):
        collect_command.run(given)  # type: ignore[arg-type]
