"""Commands whose output has no reader any more: they end as after a request, together with the processes they started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kafkacompat.pipeline import demo_command
from kafkacompat.pipeline.demo.plan import ENDING_ORDER, DemoPlan
from kafkacompat.pipeline.demo_command import READY_WORDS, Demo, listen
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import CONFIGS


@contextmanager
def listened_to() -> Iterator[Callable[[], None]]:
    """Inside, standard output is a pipe. The yielded function closes its other end."""
    reads, writes = os.pipe()
    open_ends = [reads]
    kept = sys.stdout
    with open(writes, "w") as stream:
        sys.stdout = stream
        try:
            yield lambda: os.close(open_ends.pop()) if open_ends else None
        finally:
            sys.stdout = kept
            for end in open_ends:
                os.close(end)


def test_a_reader_that_has_gone_is_noticed_once_and_the_rest_goes_nowhere() -> None:
    noticed: list[str] = []
    terminal = Terminal(lambda: noticed.append("gone"))
    with listened_to() as go_away:
        terminal.say("heard")
        assert noticed == []
        go_away()
        for _ in range(3):
            terminal.say("not heard")
    assert noticed == ["gone"]


def test_a_full_disk_is_not_taken_for_a_reader_that_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ended with status 0 would not be restarted."""
    noticed: list[str] = []
    terminal = Terminal(lambda: noticed.append("gone"))
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(PipelineFailed, match="cannot be written: No space left on device"):
            terminal.say("to a file")
        terminal.say("what is said while it ends")
        monkeypatch.undo()
    assert noticed == []


def test_a_name_that_is_no_text_is_said_in_escapes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python reads a file's name in this form if it is not in the system's encoding."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        Terminal(lambda: None).say("follows caf\u00e9-\udcff.log")
        monkeypatch.undo()
    assert capfd.readouterr().out == "follows caf\\xe9-\\udcff.log\n"


def test_a_line_goes_out_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(lambda: None)
    terminal.say("to a person")
    terminal.say("drawn", end="")
    terminal.warn("trouble")
    assert capfd.readouterr() == ("to a person\ndrawn", "trouble\n")


class Played(DemoPlan):
    """A demo whose children report ready and then wait for their end."""

    def command(self, child: str) -> list[str]:
        ready = READY_WORDS.get(child, "nothing")
        return [sys.executable, "-c", f"import time; print('it is {ready} x', flush=True); time.sleep(60)"]


def test_a_demo_whose_reader_ends_first_ends_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For example, `demo | tee FILE` when Ctrl-C ends both."""
    ending: list[Callable[[], None]] = []

    class Sizes:
        def __init__(self, bootstrap: str) -> None:
            pass

        def newest_ms(self, topics: object) -> None:
            return None

        def ask(self) -> dict[str, int]:
            ending[0]()
            return dict.fromkeys(CONFIGS, 0)

    monkeypatch.setattr(demo_command, "TopicSizes", Sizes)
    monkeypatch.setattr(demo_command, "create_missing", lambda bootstrap, topics: [])
    plan = Played(tmp_path, 3, 7, 50.0, 60.0, 5.0, "local[1]", "2026-01-01T00:00:00+00:00")
    signals: list[int] = []
    demo = Demo(plan, signals, Terminal(lambda: signals.append(signal.SIGPIPE)))
    # Other tests may leave Spark's JVM running.
    others = psutil.Process().children()
    with listened_to() as go_away:
        ending.append(go_away)
        try:
            demo.start()
            children = [child for child in psutil.Process().children() if child not in others]
            assert len(children) == len(ENDING_ORDER)
            demo.watch(60.0)
        finally:
            demo.end()
    assert signals == [signal.SIGPIPE]
    assert not any(child.is_running() for child in children)


def test_a_demo_that_cannot_say_so_ends_all_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a full disk."""
    plan = Played(tmp_path, 3, 7, 50.0, 60.0, 5.0, "local[1]", "2026-01-01T00:00:00+00:00")
    demo = Demo(plan, [], Terminal(lambda: None))
    others = psutil.Process().children()
    for name in ENDING_ORDER:
        demo._start_child(name)
    children = [child for child in psutil.Process().children() if child not in others]
    assert len(children) == len(ENDING_ORDER)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(PipelineFailed, match="No space left"):
            demo.end()
        monkeypatch.undo()
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize("minded", [True, False])
def test_a_closed_terminal_asks_for_the_end_once_unless_it_is_not_to_be_minded(minded: bool) -> None:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signals: list[int] = []
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL if minded else signal.SIG_IGN)
        listen(signals)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals == ([signal.SIGHUP] if minded else [])
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals[-1] == signal.SIGTERM
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
