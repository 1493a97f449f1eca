"""Runs `kafkacompat` as a user does, through its command line only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND_TIMEOUT_S = 180.0


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "kafkacompat", *words]


def run(
    *words: str, stdin: bytes = b"", cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The finished command with its output as text."""
    done = subprocess.run(
        command_line(*words),
        input=stdin,
        capture_output=True,
        timeout=COMMAND_TIMEOUT_S,
        cwd=cwd,
        env=os.environ | (environment or {}),
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def output_of(*words: str, stdin: bytes = b"") -> str:
    """The output of a command, which must succeed."""
    done = run(*words, stdin=stdin)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def refusal_of(*words: str, stdin: bytes = b"") -> str:
    """The one error line of a command, which must fail. It is not a traceback."""
    done = run(*words, stdin=stdin)
    assert done.returncode == 1, (words, done)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("kafkacompat: "), lines
    return lines[0].removeprefix("kafkacompat: ")
