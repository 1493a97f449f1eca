"""A machine whose brokers `kafkacompat start --brokers` runs as one, with a settings file in a temporary directory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from interop_tests.cli.command import command_line, output_of, run
from interop_tests.harness.waiting import wait_until

STOP_TIMEOUT_S = 60.0


class Machine:
    """One settings file, and the `kafkacompat start` that runs with it."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.port = port
        self.data = root / "data"
        self.file = root / "server.properties"
        self.said_path, self.errors_path = root / "said", root / "errors"
        self.process: subprocess.Popen[bytes] | None = None
        controller = port + 1000
        self.write(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
                "log.dirs": str(self.data),
            }
        )

    def write(self, settings: dict[str, str]) -> None:
        with open(self.file, "a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def where(self) -> tuple[str, str]:
        return ("--bootstrap", self.bootstrap)

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Start it, and return the line that it prints."""
        with open(self.said_path, "wb") as said, open(self.errors_path, "ab") as errors:
            self.process = process = subprocess.Popen(
                command_line("start", *words, str(self.file)),
                stdout=said,
                stderr=errors,
                env=os.environ | dict(environment or {}),
            )
        wait_until(lambda: self.said or process.poll() is not None, "it serves", 60)
        assert process.poll() is None, self.errors
        return self.said

    @property
    def said(self) -> str:
        return self.said_path.read_text()

    @property
    def errors(self) -> str:
        return self.errors_path.read_text()

    def leaders(self, topic: str) -> list[str]:
        """The leader of each partition."""
        described = output_of("topics", "describe", topic, *self.where)
        return [row.split()[1] for row in described.splitlines()[2:]]

    def pid(self, node_id: int) -> int:
        return int((self.data / f"node-{node_id}" / "node.pid").read_text())

    def runs(self, node_id: int) -> bool:
        return Path(f"/proc/{self.pid(node_id)}").exists()

    def kill_broker(self, node_id: int) -> None:
        """Kill it with -9, and wait until it serves again."""
        before = self.pid(node_id)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.pid(node_id) != before and self.serves(node_id), f"broker {node_id} is back")

    def serves(self, node_id: int) -> bool:
        rows = run("cluster", "status", "--data", str(self.data)).stdout.splitlines()
        return any(row.split()[0] == str(node_id) and "alive" in row for row in rows[1:])

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)

    def clean_up(self) -> None:
        """The brokers end with the process that started them."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        pids = [int(path.read_text()) for path in self.data.glob("node-*/node.pid")]
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all brokers have ended", 60
        )
