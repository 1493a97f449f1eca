"""Members of share groups on stock clients: one process a member, so that a kill is real.

The programs of clients/ take their settings as a JSON object in the only argument: bootstrap, group, client (its id),
topic, mode (implicit or explicit), and perhaps records (how many a poll asks for) and acquire (batch_optimized or
record_limit). A command is a line of JSON on standard input: poll (ms), acknowledge (type and records, which are pairs
of partition and offset), commit (how: sync or async) and close. The answer to each is a line: the records that it got
(partition, offset, delivery count, value), the outcome of acknowledgements by partition, and an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interop_tests.consumer_groups.members import java_program
from interop_tests.harness.json_process import JsonProcess
from interop_tests.harness.programs import franz_go_copier
from interop_tests.harness.waiting import wait_until

CLIENTS = Path(__file__).resolve().parent / "clients"
JAVA, CONFLUENT, FRANZ_GO = "java", "confluent-kafka", "franz-go"
COMMANDS: dict[str, Callable[[], list[str]]] = {
    JAVA: lambda: java_program("share_worker", CLIENTS / "java" / "ShareWorker.java"),
    CONFLUENT: lambda: [sys.executable, str(CLIENTS / "confluent_worker.py")],
    FRANZ_GO: lambda: franz_go_copier(CLIENTS / "franz_go" / "franz_go_worker.go", CLIENTS / "franz_go"),
}
IMPLICIT, EXPLICIT = "implicit", "explicit"


class Delivered(NamedTuple):
    partition: int
    offset: int
    count: int
    value: str | None


@dataclass(frozen=True)
class Answer:
    records: list[Delivered]
    outcome: dict[str, str | None]
    error: str | None


class Worker(JsonProcess):
    """One process. Its settings are those of the programs, see above."""

    def __init__(self, kind: str, log: Path, **settings: str | None) -> None:
        super().__init__(COMMANDS[kind](), log, settings)

    def ask(self, do: str, **more: Any) -> Answer:
        """The answer to a command. An error fails the test."""
        answer = super().ask(do, **more)
        assert answer["error"] is None, answer["error"]
        return Answer([Delivered(*each) for each in answer["records"]], answer["outcome"], answer["error"])

    def refused(self, do: str, **more: Any) -> str:
        """The error of a command that fails."""
        error = super().ask(do, **more)["error"]
        assert error is not None
        return str(error)

    def poll(self, milliseconds: int = 1000) -> list[Delivered]:
        return self.ask("poll", ms=milliseconds).records

    def some(self) -> list[Delivered]:
        """Poll until records come."""
        return wait_until(lambda: self.poll(500), "records come", interval_s=0)

    def acknowledge(self, kind: str, records: Iterable[Delivered]) -> None:
        self.ask("acknowledge", type=kind, records=[[each.partition, each.offset] for each in records])

    def commit(self, how: str = "sync") -> Answer:
        """The outcome of all acknowledgements that were not sent."""
        return self.ask("commit", how=how)

    def close(self) -> Answer:
        """Leave as the client leaves. The process ends."""
        answer = self.ask("close")
        self.wait()
        return answer


Join = Callable[..., Worker]
"""Starts a worker: its kind, its client id, and other settings than the usual ones."""
