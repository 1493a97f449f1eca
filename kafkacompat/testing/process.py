"""Starts and stops a broker process for a test, from synchronous, trio or asyncio code.

This module knows the broker's command line and its ready line, but nothing of its code.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkacompat.testing.waiting import in_thread

READY_MARK = "serving "
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0


@dataclass(slots=True)
class Broker:
    """A running broker."""

    bootstrap_servers: str
    """host:port for a client's bootstrap.servers."""
    data_dir: Path
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid


def start(data_dir: Path, settings: Mapping[str, str]) -> Broker:
    """Start a broker on a free port of 127.0.0.1. Raises RuntimeError with the broker's output if it does not start."""
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "log.dirs": str(data_dir),
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
    command = [sys.executable, "-m", "kafkacompat", "start"]
    for name, value in overrides.items():
        command += ["--override", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
    watchdog.start()
    said: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.append(line)
            if READY_MARK in line:
                address = line.split("PLAINTEXT://", 1)[1].split()[0].rstrip(",")
                threading.Thread(target=_drain, args=(process,), daemon=True).start()
                return Broker(address, data_dir, process)
    finally:
        watchdog.cancel()
    process.wait()
    raise RuntimeError(f"the broker did not start (exit {process.returncode}): {''.join(said)}")


def stop(running: Broker) -> None:
    """Send SIGTERM, and SIGKILL if the broker does not end in time."""
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


@contextlib.contextmanager
def running_broker(settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Run a broker during a `with` block, with its data in a temporary directory.

    settings: Kafka's names and values, which override the defaults for tests (free port, no initial rebalance delay).
    """
    with tempfile.TemporaryDirectory(prefix="kafkacompat-") as directory:
        running = start(Path(directory), settings or {})
        try:
            yield running
        finally:
            stop(running)


@contextlib.asynccontextmanager
async def broker(settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
    """Like running_broker, for `async with` under trio or asyncio. A thread does the waiting."""
    manager = running_broker(settings)
    running = await in_thread(manager.__enter__)
    try:
        yield running
    finally:
        await in_thread(lambda: manager.__exit__(None, None, None))


def _drain(process: subprocess.Popen[str]) -> None:
    """Keep reading the pipe, so that a broker with much output never blocks on it."""
    assert process.stdout is not None
    for _ in process.stdout:
        pass
