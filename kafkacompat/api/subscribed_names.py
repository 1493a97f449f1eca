"""The topics that a member of a group names: how many there may be, and whether it may see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns

if TYPE_CHECKING:
    from kafkacompat.api.access import RightToTopics

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
    rights: RightToTopics, names: Sequence[str] | None, answer: Callable[[], Awaitable[M]], refusal: M
) -> M | Awaitable[M]:
    """The answer if the sender may describe all topics, otherwise the refusal. With pauses if there are many topics."""
    sees_all = _sees_all(rights, names or ())
    if names is None or len(names) <= ASKED_AT_ONCE:
        return answer() if at_once(sees_all) else refusal
    return _when_visible(sees_all, answer, refusal)


async def _when_visible(sees_all: Work[bool], answer: Callable[[], Awaitable[M]], refusal: M) -> M:
    return await answer() if await in_turns(sees_all) else refusal


def _sees_all(rights: RightToTopics, names: Sequence[str]) -> Work[bool]:
    pace = Pace(ASKED_AT_ONCE)
    for name in dict.fromkeys(names):
        if not rights.holds(name):
            return False
        if pace.is_over():
            yield TURN_COST
    return True
