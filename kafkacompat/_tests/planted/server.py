"""Runs tests of the copy of the product that it is started in, each time in a fork that has imported everything but the product.

Reads a line of JSON for each run, [seconds that it may take, the list of pytest's arguments], and writes one: [exit status, what
pytest wrote]. The status is below 0 where a signal has ended it, as the alarm's does when its time is over.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from typing import TextIO

import pytest

PRELOADED = (
    "hypothesis.stateful",
    "trio",
    "trio.testing",
    "construct",
    "sortedcontainers",
    "zstandard",
    "lz4.frame",
)


def preload() -> None:
    """What takes most of a run's first second, and is the same with every bug."""
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run_forked(seconds: int, arguments: Sequence[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile("w+") as written:
        child = os.fork()
        if child == 0:
            os.dup2(written.fileno(), 1)
            os.dup2(written.fileno(), 2)
            status = 3
            signal.alarm(seconds)
            try:
                status = int(pytest.main(list(arguments)))
                sys.stdout.flush()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        written.seek(0)
        return status, written.read()


def serve(questions: TextIO, answers: TextIO) -> None:
    for line in questions:
        print(json.dumps(run_forked(*json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    preload()
    serve(sys.stdin, sys.stdout)
