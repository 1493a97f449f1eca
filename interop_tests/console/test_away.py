"""The broker is killed, not started yet, empty, or has a topic that was created again; the start and the end of the
console."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from selenium import webdriver

from interop_tests.conftest import MakeBroker
from interop_tests.console.page import Page
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.samples import result, window
from interop_tests.console.writing import Writer
from interop_tests.harness.ports import free_port

MakeConsole = Callable[[str], ConsoleProcess]


def visitors(minute: int, count: int) -> object:
    key = str(window(minute)["window_start_ms"])
    return result("activity.visitors", key, 5, **window(minute), views=count * 3, searches=1, visitors=count)


def test_a_killed_broker_is_said_and_its_return_noticed(
    chromium: webdriver.Chrome, make_broker: MakeBroker, make_console: MakeConsole, tmp_path: Path
) -> None:
    """The broker is empty, filled, killed, started again and filled further, and its topic is created again. The page
    is never reloaded."""
    broker = make_broker()
    console = make_console(broker.bootstrap)
    page = Page(chromium, console.address).open()

    page.wait_for("#health", "healthy")
    page.wait_for("#logs-chart", "kafkacompat pipeline run logs --bootstrap " + broker.bootstrap)
    page.wait_for("#services", "kafkacompat pipeline run metrics")
    page.wait_for("#services", "kafkacompat pipeline generate --bootstrap " + broker.bootstrap)
    page.wait_for("#sessions-bars", "kafkacompat pipeline run activity")
    assert "–" in page.text("#tiles")
    page.script("window.untouched = true")

    writer = Writer(broker.bootstrap)
    writer.create("activity.visitors", partitions=1, cleanup_policy="compact")
    writer.send([visitors(0, 41), visitors(1, 42)])
    page.wait_for("#tiles", "Visitors\n41")
    assert "kafkacompat" not in page.wait_for("#sessions-bars", "No session has ended yet"), "the job runs"

    broker.kill()
    said = page.wait_for(
        "#banner",
        f"The broker at {broker.bootstrap} has not been reachable since",
        "What is shown was read until",
    )
    assert said.count("since") == 1
    page.wait_for("#health", f"broker at {broker.bootstrap} is not reachable")
    assert "Visitors\n41" in page.text("#tiles"), "what was known is still shown"
    assert console.get("/health").status == 503
    assert b"kafkacompat_console_broker_up 0.0\n" in console.get("/metrics").body
    answer = console.get("/api/records?topic=activity.visitors")
    assert answer.status == 503
    assert "is not reachable: " in answer.json["error"]

    broker.start()
    page.wait_for("#health", "healthy")
    assert page.boxes("#banner") == []
    assert console.get("/health").status == 200
    writer.send([visitors(2, 43)])
    page.wait_for("#tiles", "Visitors\n42")

    writer.delete("activity.visitors")
    page.wait_for("#tiles", "Visitors\n–")
    writer.create("activity.visitors", partitions=1, cleanup_policy="compact")
    writer.send([visitors(0, 7), visitors(1, 8)])
    page.wait_for("#tiles", "Visitors\n7")
    assert page.script("return window.untouched") is True

    assert console.stop() == 0
    page.wait_for("#banner", "The console itself does not answer since")
    page.wait_for("#health", "console does not answer")
    page.complaints()  # Chromium reports each refused request.
    assert (tmp_path / "console-0.log").read_text() == ""


def test_a_broker_that_was_never_there_is_said(chromium: webdriver.Chrome, make_console: MakeConsole) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    console = make_console(bootstrap)
    page = Page(chromium, console.address).open("#/cluster")
    page.wait_for("#banner", f"The broker at {bootstrap} has not been reachable since")
    page.wait_for("#topics", "kafkacompat start")
    assert console.get("/health").status == 503


def test_wrong_calls_are_one_line(console: ConsoleProcess) -> None:
    for listen, says in (
        (f"127.0.0.1:{console.port}", "cannot listen on"),
        ("here", "'here' is not HOST:PORT"),
    ):
        command = [sys.executable, "-m", "kafkacompat", "console", "--listen", listen]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode in (1, 2)
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_missing_extra_is_one_line_that_says_what_to_install() -> None:
    program = "import sys; sys.modules['hypercorn'] = None; from kafkacompat.__main__ import main; sys.exit(main(['console']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == "kafkacompat: the console needs hypercorn: pip install 'kafkacompat[console]'\n"
