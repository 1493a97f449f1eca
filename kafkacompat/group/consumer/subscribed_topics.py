"""The topics to which a consumer group will subscribe once the records of a request are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkacompat.group.consumer.consumer_group import ConsumerGroup


class SubscribedTopics:
    """A copy of the group's counts. Each change of a member or of an expression is counted here before it is written."""

    __slots__ = ("_counts", "_group")

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._counts = {name: [count.by_name, count.by_regex] for name, count in group.topic_names.items()}

    def rename(self, old: frozenset[str], new: frozenset[str]) -> None:
        """A member named the old topics, and names the new ones."""
        if old is not new:
            self._add(old - new, 0, -1)
            self._add(new - old, 0, 1)

    def match(self, regex: str, topics: frozenset[str] = frozenset()) -> None:
        """The expression matches these topics now, or has no subscriber any more."""
        resolved = self._group.resolved.get(regex)
        old = frozenset() if resolved is None else resolved.topics
        self._add(old - topics, 1, -1)
        self._add(topics - old, 1, 1)

    def _add(self, names: Iterable[str], index: int, step: int) -> None:
        for name in names:
            self._counts.setdefault(name, [0, 0])[index] += step

    def counts(self) -> dict[str, list[int]]:
        """Topic -> [members that name it, regular expressions that match it]."""
        return {name: count for name, count in self._counts.items() if count[0] > 0 or count[1] > 0}
