"""The console as a separate process, and its HTTP answers."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ConsoleProcess:
    """`kafkacompat console` for one broker, on a free port."""

    def __init__(
        self, bootstrap: str, log: Path, host: str = "127.0.0.1", options: Sequence[str] = ()
    ) -> None:
        """host: the address on which it listens. options: further ones of the command."""
        self.bootstrap = bootstrap
        self.log = log
        self.host = host
        self.options = options
        self.token = ""
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """The page's address, as the command printed it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> ConsoleProcess:
        """Start the console and wait for its line of output, and on other addresses than loopback for the line with
        its token."""
        command = [sys.executable, "-m", "kafkacompat", "console", "--bootstrap", self.bootstrap]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", f"{self.host}:0", *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(f"console at http://{self.host}:"), (line, self.log.read_text())
        self.port = int(line.strip().rstrip("/").rpartition(":")[2])
        if self.host != "127.0.0.1":
            line = self.process.stdout.readline()
            assert line.startswith("its token is "), line
            self.token = line.split()[-1]
        return self

    def stop(self) -> int:
        """Send SIGTERM. Returns the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(STOP_TIMEOUT_S)
        self._done()
        return status

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
            self._done()

    def _done(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def get(self, path: str, method: str = "GET", host: str | None = None, **headers: str) -> Answer:
        """Send one request. host is the Host header if it must differ from the address."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=given | ({"Host": host} if host is not None else {}))
            response = connection.getresponse()
            sent = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, sent, response.read())
        finally:
            connection.close()

    def wait_for(self, path: str, wanted: Any, timeout_s: float = 20.0) -> Any:
        """Repeat the request until wanted(json) is true. Returns that json."""
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self.get(path).json
            if wanted(answer):
                return answer
            assert time.monotonic() < deadline, f"after {timeout_s} s {path} still says {answer}"
            time.sleep(0.1)
