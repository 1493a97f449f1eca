"""What the log says of records that were archived without their dead letters: a reason once, and then how many more.

A group whose topic is missing loses a dead letter with each record. A line for each would bury all others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.tasks import Started, Tasks

logger = logging.getLogger(__name__)

SAID_EVERY_MS = 60_000
REASONS_MAX = 10
"""Of one group, between two summaries. Further ones are only counted."""
SOURCES_SAID = 10


class _More(NamedTuple):
    """Records of one partition that no line has told yet."""

    records: int
    first_offset: int
    last_offset: int


class _Told:
    """What was said of a group, and what is still to be said."""

    __slots__ = ("last_reason", "more", "reasons", "summaries")

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.more: dict[TopicPartition, _More] = {}
        self.last_reason = ""
        self.summaries: Started | None = None


class Losses:
    """A reason is forgotten after SAID_EVERY_MS without a loss. Then the next loss is said at once again."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._groups: dict[str, _Told] = {}

    def lost(
        self, group_id: str, source: TopicPartition, first_offset: int, last_offset: int, reason: str
    ) -> None:
        told = self._groups.get(group_id)
        if told is None:
            told = self._groups[group_id] = _Told()
            told.summaries = self._tasks.start("telling of lost dead letters", self._tell(group_id, told))
        if reason not in told.reasons and len(told.reasons) < REASONS_MAX:
            told.reasons.add(reason)
            logger.error(
                "group %r: no dead letters of %s, offsets %d to %d: %s. The records are archived all the same",
                group_id, source, first_offset, last_offset, reason,
            )  # fmt: skip
            return
        told.last_reason = reason
        count, first, last = told.more.get(source, _More(0, first_offset, last_offset))
        told.more[source] = _More(
            count + last_offset - first_offset + 1, min(first, first_offset), max(last, last_offset)
        )

    def close(self) -> None:
        """Say what was not said yet."""
        for group_id, told in self._groups.items():
            if told.summaries is not None:
                told.summaries.cancel()
            self._summarize(group_id, told)
        self._groups.clear()

    async def _tell(self, group_id: str, told: _Told) -> None:
        while True:
            await self._tasks.sleep(SAID_EVERY_MS)
            if not told.more:
                del self._groups[group_id]
                return
            self._summarize(group_id, told)

    @staticmethod
    def _summarize(group_id: str, told: _Told) -> None:
        if not told.more:
            return
        said = [
            f"{source}: {each.records} between {each.first_offset} and {each.last_offset}"
            for source, each in list(told.more.items())[:SOURCES_SAID]
        ]
        if len(told.more) > SOURCES_SAID:
            said.append(f"and {len(told.more) - SOURCES_SAID} more partitions")
        count = sum(each.records for each in told.more.values())
        logger.error(
            "group %r: %d more records have no dead letters (%s). The last reason: %s",
            group_id, count, ", ".join(said), told.last_reason,
        )  # fmt: skip
        told.more.clear()
