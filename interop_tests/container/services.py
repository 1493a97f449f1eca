"""Runs the services of a compose file as processes on loopback. No container engine is needed.

Each service runs the command of the image, in an empty folder that stands for its file system. The hosts and ports of
its environment are replaced; everything else is as in the file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
HOST_AND_PORT = re.compile(r"(?P<before>://|@)(?P<host>[^:,]*):(?P<port>\d+)")
SERVES = "Transitioning from RECOVERY to RUNNING"
"""What Testcontainers waits for in the output of an apache/kafka container."""


class Services:
    def __init__(self, file: Path, folder: Path) -> None:
        self._services: Mapping[str, Any] = yaml.safe_load(file.read_text("utf-8"))["services"]
        self._folder = folder
        self._ports: dict[tuple[str, int], int] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.names = list(self._services)

    def use_ports(self, service: str, ports: Mapping[int, int]) -> None:
        """Choose the ports of loopback that stand for these of the service, before it starts."""
        self._ports |= {(service, inside): outside for inside, outside in ports.items()}

    def root(self, service: str) -> Path:
        return self._folder / service

    def start(self, service: str, **more: str) -> None:
        """more: variables that the file does not have."""
        self.root(service).mkdir(parents=True, exist_ok=True)
        variables = {name: str(value) for name, value in self._services[service]["environment"].items()}
        variables["KAFKA_LOG_DIRS"] = f"{self.root(service)}{variables['KAFKA_LOG_DIRS']}"
        for name in ("LISTENERS", "ADVERTISED_LISTENERS", "CONTROLLER_QUORUM_VOTERS"):
            variables[f"KAFKA_{name}"] = self._on_loopback(service, variables[f"KAFKA_{name}"])
        with open(self.output_file(service), "wb") as output:
            self._running[service] = subprocess.Popen(
                [sys.executable, "-m", "kafkacompat.container", "--root", str(self.root(service))],
                env={"PATH": os.environ["PATH"], **variables, **more},
                cwd=self.root(service),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_served(self, service: str) -> None:
        def serves() -> bool:
            assert self._running[service].poll() is None, self.output(service)
            return SERVES in self.output(service)

        wait_until(serves, f"{service} serves")

    def output_file(self, service: str) -> Path:
        return self._folder / f"{service}.log"

    def output(self, service: str) -> str:
        return self.output_file(service).read_text("utf-8")

    def address(self, service: str) -> str:
        """The host and port for clients outside the services."""
        (published,) = self._services[service]["ports"]
        return f"127.0.0.1:{self._port(service, int(published.split(':')[1]))}"

    def is_healthy(self, service: str) -> bool:
        check = [sys.executable, "-m", "kafkacompat.container.health", "--root", str(self.root(service))]
        return subprocess.run(check, capture_output=True, timeout=30, check=False).returncode == 0

    def stop(self, service: str) -> int:
        """Stop it as a container engine does, and return its exit status."""
        self._running[service].send_signal(signal.SIGTERM)
        return self.ended(service)

    def ended(self, service: str) -> int:
        """Wait for its end, and return its exit status."""
        return self._running.pop(service).wait(30)

    def pause(self, service: str) -> None:
        self._running[service].send_signal(signal.SIGSTOP)

    def go_on(self, service: str) -> None:
        self._running[service].send_signal(signal.SIGCONT)

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def _port(self, service: str, port: int) -> int:
        if (service, port) not in self._ports:
            self._ports[service, port] = free_port()
        return self._ports[service, port]

    def _published(self, port: int) -> tuple[str, int]:
        """The service and its port behind a port of this machine."""
        for name, service in self._services.items():
            for outside, inside in (map(int, each.split(":")) for each in service["ports"]):
                if outside == port:
                    return name, inside
        raise AssertionError(f"no service publishes {port}")

    def _on_loopback(self, service: str, text: str) -> str:
        def replaced(found: re.Match[str]) -> str:
            host, port = found["host"], int(found["port"])
            if host == "localhost":
                host, port = self._published(port)
            return f"{found['before']}127.0.0.1:{self._port(host or service, port)}"

        return HOST_AND_PORT.sub(replaced, text)
