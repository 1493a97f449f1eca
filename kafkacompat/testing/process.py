"""Starts and stops a broker process for a test, from synchronous, trio or asyncio code.

This module knows the broker's command line and its ready line, but nothing of its code.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import field
from pathlib import Path

from kafkacompat.dataclass import dataclass
from kafkacompat.testing.ports import ReservedPorts
from kafkacompat.testing.waiting import in_thread

READY = re.compile(r" node \d+ serving (?:.*?PLAINTEXT|\S+?)://([^\s,]+)")
"""The line that a broker prints when it serves. Clients have its first listener without TLS, or the first one."""
START_TIMEOUT_S = 60.0
"""Machines that run tests may be very busy."""
STOP_TIMEOUT_S = 20.0
LISTENERS = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
LINES_MAX = 1_000
"""Of a broker's output. Older ones are dropped."""


@dataclass(slots=True)
class Broker:
    """A running broker. It ends with the process that has started it, however that ends."""

    bootstrap_servers: str
    """host:port for a client's bootstrap.servers."""
    data_dir: Path
    process: subprocess.Popen[str]
    said: deque[str] = field(default_factory=deque)
    """The last lines of its output: what it has logged."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9. What it has written stays."""
        self.process.kill()
        _ended(self.process)

    def restart(self) -> None:
        """Start it again, after a kill or a stop in order, on its files and at its port. Return when it serves."""
        stop(self)
        again = start(self.data_dir, self.settings)
        self.process, self.said = again.process, again.said


def start(data_dir: Path, settings: Mapping[str, str]) -> Broker:
    """Start a broker on a free port of 127.0.0.1. Raises RuntimeError with the broker's output if it does not start."""
    overrides = {
        "listeners": LISTENERS,
        "log.dirs": str(data_dir),
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
    command = [sys.executable, "-m", "kafkacompat.testing.child", str(data_dir)]
    for name, value in overrides.items():
        command += ["--override", f"{name}={value}"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
    watchdog.start()
    said: deque[str] = deque(maxlen=LINES_MAX)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.append(line)
            ready = READY.search(line)
            if ready is not None:
                threading.Thread(target=_drain, args=(process, said), daemon=True).start()
                return Broker(ready[1], data_dir, process, said, settings)
    finally:
        watchdog.cancel()
    _ended(process)
    process.stdout.close()
    late = f" within {START_TIMEOUT_S:g} s" if process.returncode == -signal.SIGKILL else ""
    raise RuntimeError(f"the broker did not start{late} (exit {process.returncode}): {''.join(said)}")


def stop(running: Broker) -> None:
    """Send SIGTERM, and SIGKILL if the broker does not end in time."""
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            running.process.kill()
    _ended(running.process)


@contextlib.contextmanager
def running_broker(settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Run a broker during a `with` block, with its data in a temporary directory.

    settings: Kafka's names and values, which override the defaults for tests (free port, no initial rebalance delay).
    """
    ports = ReservedPorts()
    own = {"listeners": ports.in_listeners(LISTENERS), **(settings or {})}
    try:
        with tempfile.TemporaryDirectory(prefix="kafkacompat-") as directory:
            running = start(Path(directory), own)
            try:
                yield running
            finally:
                stop(running)
    finally:
        ports.release()


@contextlib.asynccontextmanager
async def broker(settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
    """Like running_broker, for `async with` under trio or asyncio. A thread does the waiting."""
    manager = running_broker(settings)

    def end() -> None:
        manager.__exit__(None, None, None)

    running = await in_thread(manager.__enter__, end)
    try:
        yield running
    finally:
        await in_thread(end)


def _ended(process: subprocess.Popen[str]) -> None:
    """Wait for its end, and close the pipe that tells it of ours."""
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _drain(process: subprocess.Popen[str], said: deque[str]) -> None:
    """Keep reading the pipe, so that a broker with much output never blocks on it."""
    assert process.stdout is not None
    with process.stdout:
        said.extend(process.stdout)
