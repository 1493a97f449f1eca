"""DeleteGroupsRequest, versions 0 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DeleteGroupsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class DeleteGroupsRequest(Message):
    __slots__ = ("groups_names",)
    API_KEY: ClassVar[int | None] = 42
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":42,"type":"request","listeners":["broker"],"name":"DeleteGroupsRequest","validVersions":"0-3","flexibleVersions":"2+","fields":[{"name":"GroupsNames","type":"[]string","versions":"0+","entityType":"groupId"}]}'

    def __init__(
        self,
        *,
        groups_names: list[str] = EMPTY,
    ) -> None:
        self.groups_names = [] if groups_names is EMPTY else groups_names
