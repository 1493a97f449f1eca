"""ListGroupsRequest, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListGroupsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class ListGroupsRequest(Message):
    __slots__ = ("states_filter", "types_filter")
    API_KEY: ClassVar[int | None] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":16,"type":"request","listeners":["broker"],"name":"ListGroupsRequest","validVersions":"0-5","flexibleVersions":"3+","fields":[{"name":"StatesFilter","type":"[]string","versions":"4+"},{"name":"TypesFilter","type":"[]string","versions":"5+"}]}'

    def __init__(
        self,
        *,
        states_filter: list[str] = EMPTY,
        types_filter: list[str] = EMPTY,
    ) -> None:
        self.states_filter = [] if states_filter is EMPTY else states_filter
        self.types_filter = [] if types_filter is EMPTY else types_filter
