"""A node stops in order and with status 0: at any step of its start and stop, and after any number of signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacompat.log.checkpoint import CLEAN_SHUTDOWN_FILE
from kafkacompat.server.process_wide import StopSignals

DEADLINE_S = 60
NODE = """
import importlib, os, sys, threading
from kafkacompat.__main__ import main

moment, number, times, stuck = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
sent = False

def send():
    global sent
    if not sent:
        sent = True
        for _ in range(times):
            os.kill(os.getpid(), number)

def sending_first(function):
    def wrapped(*arguments, **named):
        send()
        return function(*arguments, **named)
    return wrapped

if moment == "before all else":
    import kafkacompat.cli.start as start
    start.node_logging = sending_first(start.node_logging)
elif moment == "at the very end":
    import kafkacompat.server.process as broker
    run = broker.trio.run
    def running(*arguments):
        result = run(*arguments)
        for _ in range(times):
            os.kill(os.getpid(), number)
        return result
    broker.trio.run = running
else:
    owner, name = moment.rsplit(".", 1)
    try:
        owner = importlib.import_module(owner)
    except ModuleNotFoundError:
        owner, kind = owner.rsplit(".", 1)
        owner = getattr(importlib.import_module(owner), kind)
    setattr(owner, name, sending_first(getattr(owner, name)))
if moment in STOPPING:
    import kafkacompat.cli.start as start
    start.print_line = lambda line: os.kill(os.getpid(), 15)
if stuck == "recovery":
    import kafkacompat.log.opening as loading
    def wait(task):
        send()
        threading.Event().wait()
    loading.LoadTask.run = wait
sys.exit(main(sys.argv[5:]))
"""
BEFORE_LOADING = [
    "before all else",
    "kafkacompat.server.raft_server.open_directories",
    "kafkacompat.server.controller_server.ControllerServer.listen",
    "kafkacompat.server.raft_server.NodeSettings",
    "kafkacompat.server.shared_server.SharedServer.start",
    "kafkacompat.net.server.Server.run",
]
STARTING = [
    "kafkacompat.log.log_manager.LogManager.begin_load",
    "kafkacompat.log.log_manager.LogManager.finish_load",
    "kafkacompat.server.broker_server.broker_addresses",
    "kafkacompat.node.broker_lifecycle_manager.BrokerLifecycleManager.start",
    "kafkacompat.node.opening.Opening.begin",
    "kafkacompat.node.broker_lifecycle_manager.BrokerLifecycleManager.ready_to_unfence",
    "kafkacompat.node.log_maintenance.PeriodicWork.start",
    "kafkacompat.cli.start.print_line",
]
STOPPING = [
    "kafkacompat.node.broker_lifecycle_manager.BrokerLifecycleManager.shut_down",
    "kafkacompat.net.server.Server.drain",
    "kafkacompat.node.log_maintenance.BackgroundCleaning.stop",
    "kafkacompat.raft.quorum_driver.QuorumDriver.shut_down",
    "kafkacompat.raft.quorum_driver.QuorumDriver.flush_now",
    "kafkacompat.log.log_manager.LogManager.shut_down",
    "at the very end",
]


def node_told_at(
    moment: str, directory: Path, *, number: int, times: int, stuck: str = ""
) -> subprocess.CompletedProcess[str]:
    words = ["start", "--override", f"log.dirs={directory}"]
    words += ["--override", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"]
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"STOPPING = {STOPPING!r}\n{NODE}",
            moment,
            str(int(number)),
            str(times),
            stuck,
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    ("moment", "number", "times"),
    [
        *((moment, signal.SIGTERM, 2) for moment in BEFORE_LOADING + STARTING + STOPPING),
        *((moment, signal.SIGTERM, 1) for moment in STARTING[::4]),
        *((moment, signal.SIGINT, 3) for moment in (BEFORE_LOADING[0], STARTING[-1], STOPPING[-1])),
    ],
)
def test_a_node_ends_in_order_whenever_it_is_told_to(
    tmp_path: Path, moment: str, number: int, times: int
) -> None:
    ended = node_told_at(moment, tmp_path, number=number, times=times)
    assert (ended.returncode, ended.stderr) == (0, "")
    # Before the load there may be nothing to close.
    if moment not in BEFORE_LOADING:
        assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.parametrize("times", [1, 2])
def test_recovery_that_does_not_end_does_not_keep_a_node_from_stopping(tmp_path: Path, times: int) -> None:
    """The recovery runs in a thread, and the next start repeats it."""
    partition = tmp_path / "t-0"
    first = node_told_at("kafkacompat.cli.start.print_line", tmp_path, number=signal.SIGTERM, times=1)
    assert first.returncode == 0
    os.remove(tmp_path / CLEAN_SHUTDOWN_FILE)
    partition.mkdir()
    (partition / f"{0:020d}.log").touch()
    ended = node_told_at(
        "kafkacompat.cli.start.print_line", tmp_path, number=signal.SIGTERM, times=times, stuck="recovery"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


def test_signals_that_came_before_anybody_listened_are_told() -> None:
    signals = StopSignals()
    told: list[int] = []
    signals._note(signal.SIGTERM, None)
    signals._note(signal.SIGINT, None)
    assert signals.count == 2
    signals.tell(lambda: told.append(1))
    assert told == [1, 1]
    signals._note(signal.SIGTERM, None)
    assert told == [1, 1, 1]
    signals.tell(None)
    signals._note(signal.SIGTERM, None)
    assert told == [1, 1, 1]


def test_a_signal_while_another_is_passed_on_is_told_once() -> None:
    signals = StopSignals()
    told: list[int] = []

    def callback() -> None:
        told.append(signals.count)
        if signals.count < 3:
            signals._note(signal.SIGTERM, None)

    signals.tell(callback)
    signals._note(signal.SIGTERM, None)
    assert told == [1, 2, 3]


@pytest.mark.parametrize("ignored", [True, False])
def test_a_closed_terminal_is_a_stop_unless_the_process_is_to_outlive_it(ignored: bool) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        signals = StopSignals()
        signals.listen()
        for number in numbers:
            signal.raise_signal(number)
        assert signals.count == (2 if ignored else 3)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
