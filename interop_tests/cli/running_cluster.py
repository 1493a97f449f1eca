"""`kafkacompat cluster` as a user runs it, in a temporary directory and on free ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

from interop_tests.cli.command import command_line, run
from interop_tests.harness.ports import PORTS, free_port
from interop_tests.harness.waiting import wait_until

NODES_MAX = 6
CONTROLLER_PORT_DISTANCE = 1000
STOP_TIMEOUT_S = 40.0


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def base_port() -> int:
    """The first port of a row of free ports, for nodes and their controllers."""

    def probe() -> int:
        port = free_port()
        wanted = [
            port + each + distance for each in range(NODES_MAX) for distance in (0, CONTROLLER_PORT_DISTANCE)
        ]
        return port if max(wanted) < PORTS.stop and all(map(is_free, wanted)) else 0

    return wait_until(probe, "there are free ports in a row")


class RunningCluster:
    """`kafkacompat cluster` in one directory. Its lines are kept."""

    def __init__(self, root: Path, port: int) -> None:
        self.data = root / "cluster"
        self.port = port
        self.said_path = root / "said"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> RunningCluster:
        with open(self.said_path, "ab") as said:
            self.process = subprocess.Popen(
                command_line("cluster", "--data", str(self.data), *words), stdout=said, stderr=said
            )
        wait_until(lambda: "is active;" in self.said or self.process.poll() is not None, "it is up", 70)
        assert self.process.poll() is None, self.said
        return self

    @property
    def said(self) -> str:
        return self.said_path.read_text()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + each}" for each in range(3))

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.said, f"it says {line!r}")

    def rows(self) -> dict[str, dict[str, str]]:
        """The status by node id."""
        lines = run("cluster", "status", "--data", str(self.data)).stdout.splitlines()
        titles = lines[0].split()
        return {line.split()[0]: dict(zip(titles, line.split(), strict=True)) for line in lines[1:-1]}

    def pid(self, node_id: int) -> int:
        return int((self.data / f"node-{node_id}" / "node.pid").read_text())

    def end(self, number: int = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill all remaining processes."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for path in self.data.glob("node-*/node.pid"):
            pid = int(path.read_text())
            with contextlib.suppress(OSError):
                if str(path.parent).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
