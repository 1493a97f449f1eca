"""Asks brokers the same, and compares each answer and the records that were written for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from interop_tests.consumer_groups.talk import Body, Side
from interop_tests.harness.waiting import wait_until
from interop_tests.side_by_side.comparison import Comparison, shown

LATE_RECORDS_S = 1.0
CLIENT = "client"
Loosen = Callable[[Any], Any]


class Pair(Comparison):
    """Requests that may wait for others, and the records that are written for each."""

    sides: Sequence[Side]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._waiting: dict[str, str] = {}

    def ask(
        self,
        api: str,
        version: int,
        body: Body,
        client_id: str = CLIENT,
        made: str | None = None,
        loosen: Loosen | None = None,
        later: str | None = None,
    ) -> Any:
        """Kafka's answer. `loosen` takes out of an answer what may differ. A record with a key of the kind `later` is
        written at some time after the answer."""
        self.asked += 1
        request = f"{api} v{version} {shown(body)}"
        answers = self._answers(api, version, body, client_id, made)
        self._judge(request, answers, loosen, later=later)
        return answers[0]

    def _answers(self, api: str, version: int, body: Body, client_id: str, made: str | None) -> list[Any]:
        return [side.ask(api, version, body, client_id, made) for side in self.sides]

    def send(
        self, name: str, api: str, version: int, body: Body, client_id: str = CLIENT, made: str | None = None
    ) -> None:
        """Send a request that may wait for others. `settle` returns its answer."""
        assert name not in self._waiting, f"{name} waits already"
        self.asked += 1
        self._waiting[name] = f"{api} v{version} {shown(body)} from {name}"
        for side in self.sides:
            side.send(name, api, version, body, client_id, made)

    def waits(self, name: str) -> bool:
        return name in self._waiting

    def settle(self, loosen: Loosen | None = None) -> dict[str, Any]:
        """The answers that have come to waiting requests, by name."""
        found: dict[str, Any] = {}
        if not self._waiting:
            return found
        for side in self.sides:
            side.pass_through()
        for name, request in list(self._waiting.items()):
            if any(side.is_answered(name) for side in self.sides):
                del self._waiting[name]
                answers = [side.receive(name) for side in self.sides]
                self._judge(request, answers, loosen, with_records=False)
                found[name] = answers[0]
        self.compare_records("requests that had waited")
        return found

    def give_up(self, name: str) -> None:
        del self._waiting[name]
        for side in self.sides:
            side.give_up(name)

    def change(self, what: str, change: Callable[[Any], None]) -> None:
        """Do something to each broker that has no answer to compare."""
        for side in self.sides:
            change(side)
        self.compare_records(what)

    def compare_records(self, request: str) -> None:
        self._compare_records(request, self._written(None))

    def _compare_records(self, request: str, read: Sequence[Any]) -> None:
        before = len(self.told)
        self._records_alike(request, read)
        self.maybe_stop(before)

    def _records_alike(self, request: str, read: Sequence[Any], what: str = "records") -> None:
        if read[0]:
            self.answers.append(f"    wrote {shown(read[0])}")
        self.compare(request, read, what)

    def _judge(
        self,
        request: str,
        answers: list[Any],
        loosen: Loosen | None,
        with_records: bool = True,
        later: str | None = None,
    ) -> None:
        self.note(request, answers[0])
        before = len(self.told)
        self.compare(request, [loosen(each) for each in answers] if loosen else answers)
        if with_records:
            self._records_alike(request, self._written(later))
        self.maybe_stop(before)

    def _written(self, later: str | None) -> list[list[Any]]:
        """The new batches of each side. Some are written soon after the answer."""
        found = [written(side, later) for side in self.sides]
        most = max(map(len, found))
        if later is None and min(map(len, found)) < most:
            for side, batches in zip(self.sides, found, strict=True):
                batches += late_batches(side, most - len(batches))
        return found


def written(side: Side, later: str | None) -> list[Any]:
    """The new batches of a side, up to one with this kind of key."""
    found: list[Any] = []

    def is_written() -> bool:
        found.extend(side.records.new())
        return later is None or any(record[0] == later for batch in found for record in batch)

    wait_until(is_written, f"{side.kind} writes {later}", 20, 0.01)
    # If the later record comes at once, it may be in the batch of the first ones.
    return found if later is None else [each for batch in found for each in batch]


def late_batches(side: Side, count: int) -> list[Any]:
    """So many batches, or those that come within LATE_RECORDS_S."""
    found: list[Any] = []

    def are_written() -> bool:
        if len(found) < count:
            found.extend(side.records.new())
        return len(found) >= count

    with contextlib.suppress(AssertionError):
        wait_until(are_written, "late batches", LATE_RECORDS_S, 0.01)
    return found
