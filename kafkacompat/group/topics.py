"""The topics as the group coordinator sees them: a view of the metadata image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kafkacompat.ids import Uuid


class Topic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def id(self) -> Uuid: ...

    @property
    def partitions(self) -> Mapping[int, Any]:
        """By index, from 0 without gaps."""
        ...


class Topics(Protocol):
    @property
    def version(self) -> int:
        """The metadata offset of the image."""
        ...

    @property
    def by_name(self) -> Mapping[str, Topic]: ...

    @property
    def by_id(self) -> Mapping[Uuid, Topic]: ...

    def racks(self, topic: Topic) -> Sequence[Sequence[str]]:
        """The racks of each partition's replicas, sorted, by partition index."""
        ...


class NoTopics:
    """Before the first image."""

    version = -1
    by_name: Mapping[str, Topic] = {}
    by_id: Mapping[Uuid, Topic] = {}

    def racks(self, topic: Topic) -> Sequence[Sequence[str]]:
        return ()
