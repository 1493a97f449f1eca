"""The demo's plan, table and children, without a broker or Spark."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from kafkacompat.pipeline.demo.board import Rates, board, clock, line
from kafkacompat.pipeline.demo.child_processes import ChildProcess, exit_reason
from kafkacompat.pipeline.demo.plan import ENDING_ORDER, STARTING_ORDER, DemoPlan
from kafkacompat.pipeline.demo_command import BOARD_LINES, planned
from kafkacompat.pipeline.generate_command import moment
from kafkacompat.pipeline.generator.pace import Pace
from kafkacompat.pipeline.topics import CONFIGS, LOGS_RAW, METRICS_ALERTS

WAIT_S = 60.0
SERVING = "kafkacompat 0.1.0 node 1 serving PLAINTEXT://127.0.0.1:5001 data in /somewhere"


def plan(folder: Path) -> DemoPlan:
    return DemoPlan(folder, 5003, 7, 5.0, 5.0, "local[2]", "2026-01-01T00:00:00+00:00")


def test_every_child_is_started_and_ended(tmp_path: Path) -> None:
    assert sorted(STARTING_ORDER) == sorted(ENDING_ORDER)
    assert ENDING_ORDER[-1] == STARTING_ORDER[0] == "broker"
    made = plan(tmp_path).served_by(SERVING)
    for name in STARTING_ORDER:
        command = made.command(name)
        assert command[:3] == [sys.executable, "-m", "kafkacompat"]
        assert name == "broker" or "127.0.0.1:5001" in command, name
    assert made.command("console")[-1] == "127.0.0.1:5003"


def test_the_broker_finds_its_ports_itself(tmp_path: Path) -> None:
    (listeners,) = [word for word in plan(tmp_path).command("broker") if word.startswith("listeners=")]
    ports = [listener.rpartition(":")[2] for listener in listeners.split(",")]
    assert ports == ["0", "0"]


def test_a_demo_over_an_earlier_ones_data_begins_where_that_ended(tmp_path: Path) -> None:
    made = plan(tmp_path)
    start_ms = 1_767_225_600_000
    for newest_ms, expected in (
        (None, "2026-01-01T00:00:00+00:00"),
        (start_ms - 5_000, "2026-01-01T00:00:00+00:00"),
        (start_ms + 3_600_500, "2026-01-01T01:00:00+00:00"),
    ):
        command = made.going_on(newest_ms).command("generator")
        assert command[command.index("--start-time") + 1] == expected


def test_the_demos_events_soon_end_at_the_present(tmp_path: Path) -> None:
    """A person's event of now would otherwise be far ahead, and make all events of the demo late."""
    now = datetime.now(UTC)
    arguments = argparse.Namespace(port=0, seed=1, rate=10.0, trigger=5.0, master="local[1]", duration=None)
    command = planned(arguments, tmp_path).served_by(SERVING).command("generator")
    option = dict(pairwise(command))
    start_ms = moment(option["--start-time"])
    pace = Pace(int(now.timestamp() * 1000), start_ms, float(option["--speed"]))
    behind_s = now.timestamp() - start_ms / 1000
    assert behind_s == pytest.approx(2 * 3600, abs=60)
    soon_ms = pace.wall_start_ms + 30_000
    assert pace.event_time_ms(soon_ms) == soon_ms
    events_per_s = float(option["--rate"]) / float(option["--speed"])
    assert events_per_s == pytest.approx(10.0)


def test_rates_are_what_came_since_the_last_look() -> None:
    rates = Rates()
    rates.add(dict.fromkeys(CONFIGS, 10), 100.0)
    assert rates.per_s[LOGS_RAW] == 0
    rates.add({**dict.fromkeys(CONFIGS, 10), LOGS_RAW: 1010, METRICS_ALERTS: 14}, 102.0)
    assert rates.per_s[LOGS_RAW] == 500
    assert "events 1,040 (500/s), results 104 (2/s)" in line(rates, 3700)
    lines = board(rates, {"jobs": "busy"}, "http://127.0.0.1:1/", 3700, 200)
    assert len(lines) < BOARD_LINES
    assert max(map(len, board(rates, {"jobs": "b" * 200}, "", 3700, 80))) == 79
    text = "\n".join(lines)
    assert all(topic in text for topic in CONFIGS)
    assert "1,010" in text
    assert "busy" in text
    assert clock(3700) == "1:01:40"


def started(tmp_path: Path, program: str) -> ChildProcess:
    child = ChildProcess("child", [sys.executable, "-c", program], tmp_path / "child.log")
    deadline = time.monotonic() + WAIT_S
    while "ready" not in child.said() and child.status() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return child


GRANDCHILD = (
    "import subprocess, sys, time\n"
    "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(inner.pid, flush=True)\nprint('ready', flush=True)\n"
)


def test_a_child_is_ended_with_what_it_started(tmp_path: Path) -> None:
    child = started(tmp_path, GRANDCHILD + "time.sleep(60)\n")
    inner = psutil.Process(int(child.said()[0]))
    assert child.stop(lambda: False)
    assert child.status() == -15
    _, alive = psutil.wait_procs([inner], WAIT_S)
    assert not alive or inner.status() == psutil.STATUS_ZOMBIE


def test_a_child_that_does_not_end_is_killed_when_somebody_hurries(tmp_path: Path) -> None:
    program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    child = started(tmp_path, program)
    assert not child.stop(lambda: True)
    assert child.status() == -9


def test_a_child_that_dies_is_named_with_its_reason(tmp_path: Path) -> None:
    child = started(
        tmp_path, "print('a'); print('kafkacompat: no room left'); print('more'); raise SystemExit(3)"
    )
    while child.status() is None:
        time.sleep(0.01)
    assert exit_reason(child) == "the child ended with status 3, and said: kafkacompat: no room left"


def test_an_earlier_run_in_the_same_log_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "child.log").write_text("ready\nof yesterday\n")
    child = started(tmp_path, "print('ready', flush=True)")
    child.stop(lambda: False)
    assert child.said() == ["ready"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_children_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom kafkacompat.pipeline.demo.child_processes import ChildProcess\n"
        f"child = ChildProcess('c', [sys.executable, '-c', 'import time; time.sleep(60)'], Path({str(tmp_path / 'inner.log')!r}))\n"
        "print(child.pid, flush=True)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    outer = started(tmp_path, program)
    inner = psutil.Process(int(outer.said()[0]))
    os.kill(outer.pid, 9)
    psutil.wait_procs([inner], WAIT_S)
    assert not inner.is_running() or inner.status() == psutil.STATUS_ZOMBIE
    outer.stop(lambda: True)
