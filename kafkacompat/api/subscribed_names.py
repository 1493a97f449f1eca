"""The topics that the member of a consumer or share group names: how many there may be, and whether it may see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.stepping.jobs import Pace, all_steps

if TYPE_CHECKING:
    from kafkacompat.api.access import RightToTopics
    from kafkacompat.deferred import Deferred
    from kafkacompat.stepping.jobs import Steps

M = TypeVar("M")

ASKED_AT_ONCE = 500
"""Topics for which the authorizer is asked in one step. One takes some microseconds, more with very many lists."""
NAMES_MAX = 20_000
NAMES_LENGTH_MAX = 524_288
"""Characters of all names. Each name takes the loop for several microseconds in one step. Kafka too refuses a subscription
that does not fit into a record, with the same error."""


def are_too_many(names: Sequence[str] | None) -> bool:
    return names is not None and (len(names) > NAMES_MAX or sum(map(len, names)) > NAMES_LENGTH_MAX)


def when_visible(
    rights: RightToTopics, names: Sequence[str] | None, answer: Callable[[], Deferred[M]], refusal: M
) -> M | Deferred[M] | Steps[M | Deferred[M]]:
    """The answer if the sender may describe all topics, otherwise the refusal. In steps if there are many topics."""
    steps = _when_visible(rights, names or (), answer, refusal)
    return all_steps(steps) if names is None or len(names) <= ASKED_AT_ONCE else steps


def _when_visible(
    rights: RightToTopics, names: Sequence[str], answer: Callable[[], Deferred[M]], refusal: M
) -> Steps[M | Deferred[M]]:
    pace = Pace(ASKED_AT_ONCE)
    for name in dict.fromkeys(names):
        if not rights.holds(name):
            return refusal
        if pace.is_over():
            yield None
    return answer()
