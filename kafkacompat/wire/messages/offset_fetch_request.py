"""OffsetFetchRequest, versions 1 to 10.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/OffsetFetchRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class OffsetFetchRequestTopic(Struct):
    __slots__ = ("name", "partition_indexes")

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class OffsetFetchRequestTopics(Struct):
    __slots__ = ("name", "topic_id", "partition_indexes")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class OffsetFetchRequestGroup(Struct):
    __slots__ = ("group_id", "member_id", "member_epoch", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | None = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics = [] if topics is EMPTY else topics


class OffsetFetchRequest(Message):
    __slots__ = ("group_id", "topics", "groups", "require_stable")
    API_KEY: ClassVar[int | None] = 9
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_MIN: ClassVar[int] = 6
    DEFINITION: ClassVar[str] = "wire/OffsetFetchRequest.json"

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | None = EMPTY,
        groups: list[OffsetFetchRequestGroup] = EMPTY,
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.groups = [] if groups is EMPTY else groups
        self.require_stable = require_stable
