"""One node of a cluster: a process of kafkacompat or of Apache Kafka with its server.properties, data folder and log.

It can be formatted, started, stopped, killed, paused and resumed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.kafka_jars import CHECKOUT, KAFKA_VERSION
from interop_tests.harness.kafka_jvm import QUICK_JVM, kafka_java
from interop_tests.harness.stalls import STALLS

LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
FORMAT_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0


@dataclass
class ClusterNode:
    """A node that can be started again with the same port and data. `prefix` runs it elsewhere, for example in a
    network namespace."""

    kind: str
    node_id: int
    root: Path
    settings: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 0
    controller_port: int = 0
    prefix: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False
    jvm_options: Sequence[str] = ("-Xmx256m", *QUICK_JVM)
    version: str = KAFKA_VERSION
    """The release, if the node is Apache Kafka's."""

    def __post_init__(self) -> None:
        assert self.kind in (KAFKACOMPAT, APACHE), self.kind
        self.root.mkdir(parents=True, exist_ok=True)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings["process.roles"]

    @property
    def is_controller(self) -> bool:
        return "controller" in self.settings["process.roles"]

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def controller_bootstrap(self) -> str:
        return f"{self.host}:{self.controller_port}"

    @property
    def log_dirs(self) -> list[Path]:
        return [Path(text) for text in self.settings["log.dirs"].split(",")]

    @property
    def settings_path(self) -> Path:
        return self.root / "server.properties"

    @property
    def log_path(self) -> Path:
        return self.root / "node.log"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def serves(self) -> bool:
        """Whether the node should answer clients: it is a running broker."""
        return self.is_running and self.is_broker and not self.is_paused

    @property
    def pid(self) -> int:
        assert self.process is not None, f"node {self.node_id} does not run"
        return self.process.pid

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def format(self, *options: str, cluster_id: str) -> subprocess.CompletedProcess[str]:
        """Run the kind's own format command with these options. The caller checks the status."""
        self._write_settings()
        if self.kind == APACHE:
            command = [
                *kafka_java("-Xmx128m", LOGGING, version=self.version),
                "kafka.tools.StorageTool",
                "format",
            ]
        else:
            command = [sys.executable, "-m", "kafkacompat", "format"]
        command += ["-t", cluster_id, "-c", str(self.settings_path), *options]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, env=self._environment()
        )

    def start(self) -> None:
        """Start the process. The caller checks whether it serves."""
        assert not self.is_running, f"node {self.node_id} runs already"
        self._write_settings()
        if self.kind == APACHE:
            java = kafka_java(LOGGING, jvm=self.jvm_options, version=self.version)
            command = [*java, "kafka.Kafka", str(self.settings_path)]
        else:
            command = [sys.executable, "-m", "kafkacompat", "start", str(self.settings_path)]
        STALLS.watch(self.log_path)
        with open(self.log_path, "ab") as log:
            log.write(f"--- start at {time.strftime('%H:%M:%S', time.gmtime())}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                [*self.prefix, *command], stdout=log, stderr=log, cwd=self.root, env=self._environment()
            )
        self.is_paused = False

    def terminate(self) -> None:
        """Send SIGTERM without waiting."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def wait_until_ended(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit status. If the node does not end, it is killed and AssertionError is raised."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"node {self.node_id} did not end in {timeout_s} s:\n{self.log_text()[-4000:]}"
            ) from None

    def stop(self) -> int:
        """Send SIGTERM and wait. Returns the exit status: 0, or 143 for a JVM."""
        self.terminate()
        return self.wait_until_ended()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
        self.is_paused = False

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    def lose_disk(self) -> None:
        """Empty every log directory, as if its disk was replaced. The node must not run."""
        assert not self.is_running
        for path in self.log_dirs:
            shutil.rmtree(path)

    def _environment(self) -> dict[str, str]:
        paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **self.environment}

    def _write_settings(self) -> None:
        self.settings_path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
