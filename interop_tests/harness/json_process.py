"""A process that is asked by lines of JSON: a command on its standard input, an answer on its standard output."""

from __future__ import annotations

import json
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interop_tests.harness.waiting import TIMEOUT_S


class JsonProcess:
    """One process, with its settings as JSON in the only argument of its command, if it has settings."""

    def __init__(self, command: Sequence[str], log: Path, settings: dict[str, str | None] | None) -> None:
        self._log = log
        words = [] if settings is None else [json.dumps(settings)]
        with open(log, "ab") as sink:
            self._process = subprocess.Popen(
                [*command, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
            )

    def tell(self, do: str, **more: Any) -> None:
        """Send a command that has no answer. OSError if the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do} | more) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **more: Any) -> Any:
        """The answer to a command. AssertionError if the process has ended or is silent."""
        assert self._process.stdout is not None
        try:
            self.tell(do, **more)
            answered = select.select([self._process.stdout], [], [], TIMEOUT_S)[0]
            line = self._process.stdout.readline() if answered else ""
        except OSError:
            line = ""
        assert line, f"{do} {more} has no answer:\n{self._log.read_text(errors='replace')[-4000:]}"
        return json.loads(line)

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait(TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: it does nothing until `resume`, and its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9: nobody hears of it."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
