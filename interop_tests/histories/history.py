"""What clients did and saw: each operation's invocation and completion, written as it happens, and read back as operations.

A history is a file of JSON lines. An event is `{"time", "process", "type", "f", "value"}`: nanoseconds since the run began, who,
one of invoke, ok, fail and info, the operation's name, and what belongs to it. A process has one operation at a time. `fail` means
that it did not happen, `info` that nobody knows. After an unknown write a client goes on as a new process.

A partition is named `topic-number`. The values by name:

| f | invocation | completion |
| --- | --- | --- |
| send | `[[partition, value], ...]` | `[[partition, value, offset or null], ...]`, null where it is not known to be written |
| assign | | `{partition: position}`: from where the next polls go on |
| poll | `isolation` | entries `[partition, offset, value]`, and `[partition, position or null]` where the position changed |
| txn | | `{"polled": entries, "polled_at", "sent": as of send, "committing": time or null, "group"}` |
| commit | `[group, partition, offset]` | the same |
| fetch | `[group, partition]` | `[group, partition, offset]`, -1 for none; and the node where that is known |
| final | `isolation` | `{partition: [[offset, value], ...]}`: everything, when all was well again |
| committed | | `{partition: [offset, ...]}`: what of the group lies in the log of commits, in order, when all was well again |
| replicas | | `{partition: {node: digest of its log}}` |
| renumbered | | the client took a new producer epoch: what it sent before may be there twice |
| fault | `[kind, nodes]` | the same: it was mended |
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
CONSUMED = "consumed"
AT_THE_END = "end-"
"""The names of processes begin so that look when all is well again."""


@dataclass(frozen=True)
class Operation:
    """An invocation with its completion; times in nanoseconds since the run began. Without a completion: info, and `end` None."""

    process: str
    f: str
    start: int
    end: int | None
    outcome: str
    asked: Any
    """The value of the invocation."""
    value: Any
    """That of the completion; of an operation without one the invocation's."""


def operations(lines: Iterable[str]) -> list[Operation]:
    """In the order of their invocations. ValueError for a completion that nothing was invoked for."""
    open_by_process: dict[str, dict[str, Any]] = {}
    found: list[Operation] = []
    for line in lines:
        event = json.loads(line)
        process = event["process"]
        if event["type"] == INVOKE:
            if process in open_by_process:
                raise ValueError(f"{process} has two operations at a time: {line}")
            open_by_process[process] = event
            continue
        invoked = open_by_process.pop(process, None)
        if invoked is None or invoked["f"] != event["f"]:
            raise ValueError(f"{process} completes what it did not begin: {line}")
        found.append(
            Operation(
                process,
                event["f"],
                invoked["time"],
                event["time"],
                event["type"],
                invoked["value"],
                event["value"],
            )
        )
    for process, event in open_by_process.items():
        found.append(
            Operation(process, event["f"], event["time"], None, INFO, event["value"], event["value"])
        )
    return sorted(found, key=lambda each: each.start)


def load(path: Path) -> list[Operation]:
    with open(path) as file:
        return operations(file)


@dataclass
class Completion:
    """What an operation is to be recorded with; whoever carries it out fills it in."""

    outcome: str = INFO
    value: Any = None

    def ok(self, value: Any) -> None:
        self.outcome, self.value = OK, value


class Recorder:
    """Writes events of many threads to one file, line by line: what a cut-off run has done so far can be read."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w", buffering=1)  # noqa: SIM115
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()
        self._open: dict[str, tuple[str, Completion]] = {}
        """By process, what it has begun."""
        self.done: Counter[str] = Counter()
        """How many operations of each name were ok; `consumed` are transactions that polled records."""

    def now(self) -> int:
        """Nanoseconds since the run began."""
        return time.monotonic_ns() - self._began

    @contextmanager
    def operation(self, process: str, f: str, asked: Any = None) -> Iterator[Completion]:
        """Record the invocation, run the block, record its completion: info with what was asked, or what the block says."""
        completion = Completion(value=asked)
        with self._lock:
            self._write(process, INVOKE, f, asked)
            self._open[process] = f, completion
        try:
            yield completion
        finally:
            with self._lock:
                self._complete(process)

    def close(self) -> None:
        """What still lasts is recorded as far as it came, as info: a client hangs in it."""
        with self._lock:
            for process in list(self._open):
                self._open[process][1].outcome = INFO
                self._complete(process)
            self._file.close()

    def _complete(self, process: str) -> None:
        if process in self._open:
            f, completion = self._open.pop(process)
            if completion.outcome == OK:
                self.done[f] += 1
                self.done[CONSUMED] += f == "txn" and any(
                    len(entry) == 3 for entry in completion.value["polled"]
                )
            self._write(process, completion.outcome, f, completion.value)

    def _write(self, process: str, kind: str, f: str, value: Any) -> None:
        """Under the lock, so that the lines are in the order of their times."""
        if not self._file.closed:
            event = {"time": self.now(), "process": process, "type": kind, "f": f, "value": value}
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")
