"""The answers of brokers to the same requests: counted, compared, and listed where they differ."""

from __future__ import annotations

import pprint
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from interop_tests.side_by_side.differing import differing

SHOWN = 8
"""Differences of one answer."""
ANSWERS_BEFORE = 14
"""So many answers are shown before the first difference."""


class Different(AssertionError):
    """The brokers differ, and what they are asked next would mean different things to them."""


class Comparison:
    """The sides in one order. The first one is Apache Kafka, and the others should be like it. An area adds its requests."""

    def __init__(self, sides: Sequence[Any], place: str = "", *, stops_at_first: bool = False) -> None:
        self.sides = sides
        self.place = place
        """Where the next requests belong, for the report."""
        self.stops_at_first = stops_at_first
        self.told: list[str] = []
        """The differences."""
        self.excused: list[tuple[str, str]] = []
        """Differences that may be: the reason, and where."""
        self.asked = 0
        """Requests whose answers are compared."""
        self.answers: list[str] = []
        """What Kafka answered to each request."""

    def compare(self, request: str, values: Sequence[Any], what: str = "answer") -> bool:
        """Whether all are like the first one."""
        before = len(self.told)
        for value in values[1:]:
            lines = list(islice(differing(values[0], value), SHOWN))
            if lines:
                self.told.append(f"{self.place}: {request}\n  {what}" + "\n  ".join(lines))
        return len(self.told) == before

    def answered(self, request: str, answers: Sequence[Any]) -> bool:
        """Count a request, and compare its answers. Different, if the comparison stops at the first difference."""
        self.asked += 1
        self.note(request, answers[0])
        before = len(self.told)
        is_alike = self.compare(request, answers)
        self.maybe_stop(before)
        return is_alike

    def note(self, request: str, answer: Any) -> None:
        self.answers.append(f"{self.place}: {request}\n    {shown(answer)}")

    def maybe_stop(self, before: int) -> None:
        """`before`: the number of differences before the last request."""
        if self.stops_at_first and len(self.told) > before:
            raise Different("\n".join([*self.answers[-ANSWERS_BEFORE:], *self.told[before:]]))

    def close(self) -> None:
        """The talk has ended."""

    def hold(self, talk: Callable[[Any], object]) -> None:
        """Carry out a talk. A failed expectation of it is a difference as well."""
        try:
            talk(self)
        except Different as difference:
            self.told = [str(difference)]
        except (AssertionError, TypeError, LookupError) as error:
            self.told.append(f"{self.place}: {error!r}")
        finally:
            self.close()


def shown(value: Any) -> str:
    return pprint.pformat(value, width=100_000, compact=True, sort_dicts=False)
