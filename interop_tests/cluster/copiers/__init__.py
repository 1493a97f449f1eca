"""Copiers of several clients, as commands for chaos.py. Each program shows how to use its client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from interop_tests.harness.java_tools import java_command
from interop_tests.harness.programs import franz_go_copier

HERE = Path(__file__).resolve().parent


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"interop_tests.cluster.copiers.{module}"]


COPIERS: dict[str, Callable[[], list[str]]] = {
    "librdkafka": lambda: _python("librdkafka"),
    "java": lambda: [*java_command(), str(HERE / "Copier.java")],
    "franz-go": lambda: franz_go_copier(HERE / "with_franz_go.go"),
    "aiokafka": lambda: _python("with_aiokafka"),
}
"""The command of each client. Append bootstrap, source, target, group and transactional id."""
