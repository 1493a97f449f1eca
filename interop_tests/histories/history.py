"""The record of what clients did and saw: the invocation and completion of each operation, written as it happens and
read back.

A history is a file of JSON lines. An event is `{"time", "process", "type", "f", "value"}`: nanoseconds since the start
of the run, the process, one of invoke, ok, fail and info, the name of the operation, and its value. A process has one
operation at a time. `fail` means that the operation did not happen, and `info` that its outcome is unknown. After an
unknown write a client continues as a new process.

A partition is named `topic-number`. The values by name:

| f | invocation | completion | | --- | --- | --- | | send | `[[partition, value], ...]` |
`[[partition, value, offset or null], ...]`, null if the write is not known to have happened | | assign | |
`{partition: position}`: where the next polls start | | poll | `isolation` | entries `[partition, offset, value]`, and
`[partition, position or null]` where the position changed | | txn | |
`{"polled": entries, "polled_at", "sent": as of send, "committing": time or null, "group"}` | | commit |
`[group, partition, offset]` | the same | | fetch | `[group, partition]` | `[group, partition, offset]`, -1 for none;
and the node if it is known | | final | `isolation` | `{partition: [[offset, value], ...]}`: all records, after all
faults | | committed | | `{partition: [offset, ...]}`: all offsets of the group in the log of commits, in order, after
all faults | | replicas | | `{partition: {node: digest of its log}}` | | renumbered | | the client took a new producer
epoch: its earlier records may be there twice | | fault | `[kind, nodes]` | the same: the fault has ended |
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
"""Names of processes with this prefix belong to reads after all faults."""


@dataclass(frozen=True)
class Operation:
    """An invocation with its completion. Times are nanoseconds since the start of the run. Without a completion: info,
    and `end` is None."""

    process: str
    f: str
    start: int
    end: int | None
    outcome: str
    asked: Any
    """The value of the invocation."""
    value: Any
    """The value of the completion, or of the invocation if there is no completion."""


def operations(lines: Iterable[str]) -> list[Operation]:
    """Operations in the order of their invocations. ValueError for a completion without an invocation."""
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
    """The result to record for an operation. The code that executes the operation fills it in."""

    outcome: str = INFO
    value: Any = None

    def ok(self, value: Any) -> None:
        self.outcome, self.value = OK, value


class Recorder:
    """Writes events of many threads to one file, line by line, so the history of an interrupted run can be read."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w", buffering=1)  # noqa: SIM115
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()
        self._open: dict[str, tuple[str, Completion]] = {}
        """The operation that each process has begun."""
        self.done: Counter[str] = Counter()
        """The number of ok operations by name. `consumed` are transactions that polled records."""

    def now(self) -> int:
        """Nanoseconds since the start of the run."""
        return time.monotonic_ns() - self._began

    @contextmanager
    def operation(self, process: str, f: str, asked: Any = None) -> Iterator[Completion]:
        """Record the invocation, run the block, and record its completion: info with the invocation's value, unless
        the block sets a result."""
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
        """Record unfinished operations as info, with their results so far: their clients hang."""
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
        """Called under the lock, so that the lines are in the order of their times."""
        if not self._file.closed:
            event = {"time": self.now(), "process": process, "type": kind, "f": f, "value": value}
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")
