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
        """For each partition the racks of its replicas in any order, each as often as it has replicas."""
        ...


class NoTopics:
    """Before the first image."""

    version = -1
    by_name: Mapping[str, Topic] = {}
    by_id: Mapping[Uuid, Topic] = {}

    def racks(self, topic: Topic) -> Sequence[Sequence[str]]:
        return ()
