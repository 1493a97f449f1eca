"""ListTransactionsResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ListTransactionsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TransactionState(Struct):
    __slots__ = ("transactional_id", "producer_id", "transaction_state")

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        transaction_state: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.transaction_state = transaction_state


class ListTransactionsResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "unknown_state_filters", "transaction_states")
    API_KEY: ClassVar[int | None] = 66
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":66,"type":"response","name":"ListTransactionsResponse","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"UnknownStateFilters","type":"[]string","versions":"0+"},{"name":"TransactionStates","type":"[]TransactionState","versions":"0+","fields":[{"name":"TransactionalId","type":"string","versions":"0+","entityType":"transactionalId"},{"name":"ProducerId","type":"int64","versions":"0+","entityType":"producerId"},{"name":"TransactionState","type":"string","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] = EMPTY,
        transaction_states: list[TransactionState] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.unknown_state_filters = [] if unknown_state_filters is EMPTY else unknown_state_filters
        self.transaction_states = [] if transaction_states is EMPTY else transaction_states
