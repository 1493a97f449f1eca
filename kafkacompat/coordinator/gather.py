"""Several answers awaited as one. Knows nothing of what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kafkacompat.deferred import Deferred

T = TypeVar("T")


def gather(answers: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """All values in the order given, once the last is there; the first failure in that order goes on."""
    together: Deferred[list[T]] = Deferred()
    left = sum(not answer.done for answer in answers)

    def finish() -> None:
        try:
            values = [answer.result() for answer in answers]
        except Exception as error:
            together.fail(error)
        else:
            together.resolve(values)

    def one_done(_: Deferred[T]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finish()

    if left == 0:
        finish()
    else:
        for answer in answers:
            if not answer.done:
                answer.on_done(one_done)
    return together
