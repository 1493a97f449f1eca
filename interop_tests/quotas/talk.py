"""Asks brokers the same about quotas, and compares the answers.

Throttle times depend on the moment of a request. Two brokers are asked one after the other, and a window of a rate begins
at another moment on each of them, so throttle times may differ by one window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from interop_tests.harness.wire import Connection
from interop_tests.quotas.sides import EntityParts, Op, QuotaSide
from interop_tests.side_by_side.comparison import Comparison

WINDOW_MS = 1_000
"""quota.window.size.seconds."""
BUSY_MS = 300
"""The second broker is asked later."""
THROTTLE = "ThrottleTimeMs"
Answer = dict[str, Any]


class Talk(Comparison):
    """Changes quotas, and meets them as a client."""

    sides: Sequence[QuotaSide]

    def is_first_of_nobody(self, key: str) -> bool:
        """Whether clients without authentication have met no quota with this key yet."""
        met = self.sides[0].met_by_nobody
        is_first = key not in met
        met.add(key)
        return is_first

    def make_user(self, name: str) -> None:
        for side in self.sides:
            side.make_user(name)

    def settle(self) -> None:
        for side in self.sides:
            side.settle()

    def close(self) -> None:
        for side in self.sides:
            side.forget()

    def alter(
        self,
        entries: Sequence[tuple[EntityParts, Sequence[Op]]],
        *,
        version: int = 1,
        validates: bool = False,
    ) -> None:
        """If several errors may be told, only whether one is told is compared: Kafka tells the first one in its hash
        tables."""
        is_simple = all(len(entity) <= 1 and len(ops) <= 1 for entity, ops in entries)
        answers: list[Any] = []
        for side in self.sides:
            results = side.alter(entries, version=version, validates=validates)
            for each in results:
                each["ErrorMessage"] = each["ErrorMessage"] if is_simple else bool(each["ErrorMessage"])
            answers.append(in_order(results))
        self.answered(f"alter v{version} {entries} {validates=}", answers)

    def describe(
        self,
        components: Sequence[tuple[str, int, str | None]] = (),
        *,
        strict: bool = False,
        version: int = 1,
    ) -> None:
        answers = []
        for side in self.sides:
            answer = side.describe(components, strict=strict, version=version)
            answers.append(answer | {THROTTLE: 0, "Entries": in_order(answer["Entries"])})
        self.answered(f"describe v{version} {components} {strict=}", answers)

    def meet(
        self, user: str, client_id: str | None, name: str, request: Callable[[Connection], Answer]
    ) -> list[Answer]:
        """A request of a client, on a new connection. Its throttle times may differ by a window."""
        answers = []
        for side in self.sides:
            with closing(side.connect(user, client_id)) as connection:
                answers.append(request(connection))
        first_ms = answers[0][THROTTLE]
        alike = [
            answer | {THROTTLE: first_ms} if are_near(first_ms, answer[THROTTLE]) else answer
            for answer in answers
        ]
        self.answered(f"{name} of {user!r} {client_id!r}", alike)
        return answers


def are_near(one_ms: int, other_ms: int) -> bool:
    return abs(one_ms - other_ms) <= WINDOW_MS + BUSY_MS


def in_order(items: Any) -> Any:
    """Lists in an order that does not depend on hash tables, and NaN as text."""
    if isinstance(items, list):
        return sorted((in_order(each) for each in items), key=repr)
    if isinstance(items, dict):
        return {name: in_order(value) for name, value in items.items()}
    return "NaN" if items != items else items
