"""Asks brokers the same, and compares each answer and the records that were written for it."""

from __future__ import annotations

import contextlib
import pprint
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from interop_tests.consumer_groups.names import differing
from interop_tests.consumer_groups.talk import Body, Side
from interop_tests.harness.waiting import wait_until

SHOWN = 8
LATE_RECORDS_S = 1.0
CLIENT = "client"
Loosen = Callable[[Any], Any]


class Different(AssertionError):
    """The brokers differ, and what they are asked next would mean different things to them."""


class Pair:
    """The sides in one order. The first one is Apache Kafka, and the others should be like it."""

    def __init__(
        self, sides: Sequence[Side], stops_at_first: bool, not_compared: frozenset[str] = frozenset()
    ) -> None:
        """`not_compared` are APIs whose answers are not looked at."""
        self.sides = sides
        self._not_compared = not_compared
        self._stops_at_first = stops_at_first
        self.place = ""
        """Where the next requests belong, for the report."""
        self.told: list[str] = []
        self.asked = 0
        self.answers: list[str] = []
        """What Kafka answered to each request."""
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
        self._compare(request, answers, loosen, later=later)
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
                self._compare(request, answers, loosen, with_records=False)
                found[name] = answers[0]
        self.compare_records("requests that had waited")
        return found

    def give_up(self, name: str) -> None:
        del self._waiting[name]
        for side in self.sides:
            side.give_up(name)

    def change(self, what: str, change: Callable[[Side], None]) -> None:
        """Do something to each broker that has no answer to compare."""
        for side in self.sides:
            change(side)
        self.compare_records(what)

    def compare_records(self, request: str) -> None:
        self._told(request, "records", self._written(None))

    def _compare(
        self,
        request: str,
        answers: list[Any],
        loosen: Loosen | None,
        with_records: bool = True,
        later: str | None = None,
    ) -> None:
        self.answers.append(f"{self.place}: {request}\n    {shown(answers[0])}")
        before = len(self.told)
        if request.partition(" ")[0] not in self._not_compared:
            self._told(request, "answer", [loosen(each) for each in answers] if loosen else answers, False)
        if with_records:
            read = self._written(later)
            self._told(request, "records", read, False)
        self._maybe_stop(before)

    def _written(self, later: str | None) -> list[list[Any]]:
        """The new batches of each side. Some are written soon after the answer."""
        found = [written(side, later) for side in self.sides]
        most = max(map(len, found))
        if later is None and min(map(len, found)) < most:
            for side, batches in zip(self.sides, found, strict=True):
                batches += late_batches(side, most - len(batches))
        return found

    def _told(self, request: str, what: str, values: list[Any], may_stop: bool = True) -> None:
        before = len(self.told)
        if what == "records" and values[0]:
            self.answers.append(f"    wrote {shown(values[0])}")
        for value in values[1:]:
            lines = list(islice(differing(values[0], value), SHOWN))
            if lines:
                self.told.append(f"{self.place}: {request}\n  {what}" + "\n  ".join(lines))
        if may_stop:
            self._maybe_stop(before)

    def _maybe_stop(self, before: int) -> None:
        if self._stops_at_first and len(self.told) > before:
            raise Different("\n".join([*self.answers[-14:], *self.told[before:]]))


def shown(value: Any) -> str:
    return pprint.pformat(value, width=100_000, compact=True, sort_dicts=False)


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
