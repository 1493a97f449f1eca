"""ListTransactionsRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListTransactionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class ListTransactionsRequest(Message):
    __slots__ = ("state_filters", "producer_id_filters", "duration_filter", "transactional_id_pattern")
    API_KEY: ClassVar[int | None] = 66
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":66,"type":"request","listeners":["broker"],"name":"ListTransactionsRequest","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"StateFilters","type":"[]string","versions":"0+"},{"name":"ProducerIdFilters","type":"[]int64","versions":"0+","entityType":"producerId"},{"name":"DurationFilter","type":"int64","versions":"1+","default":-1},{"name":"TransactionalIdPattern","type":"string","versions":"2+","nullableVersions":"2+","default":"null"}]}'

    def __init__(
        self,
        *,
        state_filters: list[str] = EMPTY,
        producer_id_filters: list[int] = EMPTY,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        self.state_filters = [] if state_filters is EMPTY else state_filters
        self.producer_id_filters = [] if producer_id_filters is EMPTY else producer_id_filters
        self.duration_filter = duration_filter
        self.transactional_id_pattern = transactional_id_pattern
