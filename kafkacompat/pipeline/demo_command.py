"""`kafkacompat pipeline demo`: broker, traffic, collector, jobs and page in one command, which also ends all of them."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from kafkacompat.pipeline.argument_types import positive
from kafkacompat.pipeline.demo.board import Rates, board, line
from kafkacompat.pipeline.demo.child_processes import ChildProcess, exit_reason
from kafkacompat.pipeline.demo.plan import (
    BROKER,
    COLLECTOR,
    CONSOLE,
    ENDING_ORDER,
    GENERATOR,
    HISTORY_S,
    HISTORY_SPEED,
    JOBS,
    DemoPlan,
)
from kafkacompat.pipeline.demo.topic_sizes import TopicSizes
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.session import require_java, require_writable
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import INPUTS, LOGS_RAW, create_missing, plans
from kafkacompat.security.cluster_address import ClusterAddress

DEFAULT_RATE: Final = 10.0
DEFAULT_TRIGGER_S: Final = 5.0
DEFAULT_PAGE_PORT: Final = 8088
READY_TIMEOUT_S: Final = {BROKER: 60.0, CONSOLE: 60.0, JOBS: 180.0}
"""The jobs may first have to download Spark's connector."""

STAMPED_BY_EVENTS: Final = [topic for topic in INPUTS if topic != LOGS_RAW]
"""Topics whose records have the generator's timestamps. Log lines have the collector's."""

READY_WORDS: Final = {BROKER: " serving PLAINTEXT://", CONSOLE: "console at ", JOBS: "running "}
POLL_S: Final = 0.1
BOARD_LINES: Final = 25
"""The minimum height of a terminal on which the table is redrawn in place."""

BOARD_INTERVAL_S: Final = 1.0
LINE_INTERVAL_S: Final = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed makes the same traffic (%(default)s)"
    )
    parser.add_argument(
        "--duration", type=positive, metavar="S", help="end after this many seconds of traffic"
    )
    parser.add_argument(
        "--rate",
        type=positive,
        default=DEFAULT_RATE,
        metavar="N",
        help="events per second, averaged over a day (%(default)s)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="keep broker, tables and logs here; otherwise they are removed at the end",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PAGE_PORT,
        metavar="P",
        help="port of the web console; 0 takes a free one (%(default)s)",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open the web console")
    parser.add_argument("--master", default="local[*]", help="Spark's master (%(default)s)")
    parser.add_argument(
        "--trigger",
        type=positive,
        default=DEFAULT_TRIGGER_S,
        metavar="SECONDS",
        help="interval of the jobs' batches (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C, SIGTERM or the end of the duration, and return 0. PipelineFailed names the child that ended
    and the reason."""
    require_extra("spark", "pyspark", "confluent_kafka")
    require_extra("console", "hypercorn", "starlette", "prometheus_client")
    require_java()
    signals: list[int] = []
    listen(signals)
    terminal = Terminal(partial(_note_once, signals, signal.SIGPIPE))
    with data_folder(arguments.data) as folder:
        demo = Demo(planned(arguments, folder), signals, terminal)
        try:
            demo.start()
            if demo.wanted:
                if not arguments.no_browser:
                    open_page(demo.page)
                demo.watch(arguments.duration)
        finally:
            demo.end()
    terminal.say("demo ended")
    return 0


def listen(signals: list[int]) -> None:
    """Record the signals that ask for the end: Ctrl-C, SIGTERM, and SIGHUP of a closed terminal unless nohup ignores it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signals.append(number))
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # Shell and system may both send SIGHUP. Two of them are not a request to hurry.
        signal.signal(signal.SIGHUP, lambda number, frame: _note_once(signals, number))


def _note_once(signals: list[int], number: int) -> None:
    if not signals:
        signals.append(number)


@contextlib.contextmanager
def data_folder(wanted: str | None) -> Iterator[Path]:
    """Yield the requested folder, or a temporary one that is removed at the end."""
    if wanted is not None:
        require_writable(wanted, "data")
        yield Path(wanted).resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="kafkacompat-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def open_page(page: str) -> None:
    """Open the page in a graphical browser. A browser that would use the terminal is not started."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    if not isinstance(browser, webbrowser.GenericBrowser) or isinstance(
        browser, webbrowser.BackgroundBrowser
    ):
        browser.open(page)


def planned(arguments: argparse.Namespace, folder: Path) -> DemoPlan:
    """Return the plan of the demo for this command line and machine."""
    past_s = HISTORY_S
    if arguments.duration is not None:
        past_s = min(past_s, (HISTORY_SPEED - 1) * arguments.duration)
    return DemoPlan(
        folder,
        arguments.port,
        arguments.seed,
        arguments.rate,
        arguments.trigger,
        arguments.master,
        (datetime.now(UTC) - timedelta(seconds=past_s)).isoformat(timespec="seconds"),
    )


class Demo:
    """Starts, watches and ends the children."""

    def __init__(self, plan: DemoPlan, signals: list[int], terminal: Terminal) -> None:
        """`signals` are those received so far. One asks for a clean end, two for a quick one."""
        self._plan = plan
        self._say = terminal.say
        self._signals = signals
        self._children: dict[str, ChildProcess] = {}
        self.page = ""

    @property
    def wanted(self) -> bool:
        """Whether no end was requested yet."""
        return not self._signals

    def start(self) -> None:
        """Start all children in order. Return early if the end is requested."""
        self._say(f"demo: data in {self._plan.data}")
        self._start_child(BROKER)
        said = self._wait_ready(BROKER)
        if said is None:
            return
        self._plan = self._plan.served_by(said)
        self._say(f"demo: broker at {self._plan.bootstrap}")
        create_missing(ClusterAddress(self._plan.bootstrap), plans())
        # The data are from an earlier demo. Events older than its newest event would be late for the jobs.
        self._plan = self._plan.going_on(
            TopicSizes(ClusterAddress(self._plan.bootstrap)).newest_ms(STAMPED_BY_EVENTS)
        )
        self._start_child(CONSOLE)
        said = self._wait_ready(CONSOLE)
        if said is None:
            return
        self.page = said.split("console at ", 1)[1].strip()
        self._say(f"demo: page at {self.page}, the jobs start")
        self._start_child(JOBS)
        if self._wait_ready(JOBS) is None:
            return
        for name in (COLLECTOR, GENERATOR):
            self._start_child(name)
        self._say("demo: traffic, collector and jobs run; Ctrl-C ends all")

    def watch(self, duration_s: float | None) -> None:
        """Show the state until the end is requested or the duration is over."""
        sizes, rates = TopicSizes(ClusterAddress(self._plan.bootstrap)), Rates()
        size = shutil.get_terminal_size()
        terminal = sys.stdout.isatty() and size.lines > BOARD_LINES
        interval_s = BOARD_INTERVAL_S if terminal else LINE_INTERVAL_S
        started_s = time.monotonic()
        told_s = float("-inf")
        drawn = 0
        while self.wanted and (duration_s is None or time.monotonic() - started_s < duration_s):
            self._check()
            now_s = time.monotonic()
            if now_s - told_s >= interval_s:
                told_s = now_s
                answer = sizes.ask()
                if answer is not None:
                    rates.add(answer, now_s)
                if terminal:
                    lines = board(rates, self._words(), self.page, now_s - started_s, size.columns)
                    up = f"\x1b[{drawn}A" if drawn else ""
                    self._say(up + "".join(f"\x1b[2K{text}\n" for text in lines), end="")
                    drawn = len(lines)
                else:
                    self._say(line(rates, now_s - started_s))
            time.sleep(POLL_S)

    def end(self) -> None:
        """End the running children in order, with all processes that they started. Raise PipelineFailed afterwards if
        output fails."""
        asked = len(self._signals)
        failed = None
        for name in ENDING_ORDER:
            child = self._children.pop(name, None)
            if child is None:
                continue
            ended = child.stop(lambda: len(self._signals) > max(asked, 1))
            try:
                self._say(f"demo: {name} {'ended' if ended else 'was killed: it did not end in time'}")
            except PipelineFailed as failure:
                # The other children must be ended in any case.
                failed = failure
        if failed is not None:
            raise failed

    def _start_child(self, name: str) -> None:
        self._children[name] = ChildProcess(name, self._plan.command(name), self._plan.log(name))

    def _wait_ready(self, name: str) -> str | None:
        """Return the line in which the child says that it is ready. None if the end is requested before."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S[name]
        while self.wanted:
            for text in self._children[name].said():
                if READY_WORDS[name] in text:
                    return text
            self._check()
            if time.monotonic() > deadline_s:
                raise PipelineFailed(f"the {name} was not ready in {READY_TIMEOUT_S[name]:g} s")
            time.sleep(POLL_S)
        return None

    def _check(self) -> None:
        for child in self._children.values():
            if child.status() is not None:
                raise PipelineFailed(exit_reason(child))

    def _words(self) -> dict[str, str]:
        words = {}
        for name in ENDING_ORDER:
            said = self._children[name].said() if name in self._children else []
            words[name] = next((text.split(": ", 1)[-1] for text in reversed(said) if text.strip()), "")
        return words
