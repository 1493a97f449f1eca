"""ProducerSnapshot, versions 1 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/storage/ProducerSnapshot.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ProducerEntry(Struct):
    __slots__ = ("producer_id", "epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch", "current_txn_first_offset")

    def __init__(
        self,
        *,
        producer_id: int = 0,
        epoch: int = 0,
        last_sequence: int = 0,
        last_offset: int = 0,
        offset_delta: int = 0,
        timestamp: int = 0,
        coordinator_epoch: int = 0,
        current_txn_first_offset: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset


class ProducerSnapshot(Message):
    __slots__ = ("crc", "producer_entries")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 32767
    DEFINITION: ClassVar[str] = '{"type":"data","name":"ProducerSnapshot","validVersions":"1","flexibleVersions":"none","fields":[{"name":"Crc","type":"uint32","versions":"1"},{"name":"ProducerEntries","type":"[]ProducerEntry","versions":"1","fields":[{"name":"ProducerId","type":"int64","versions":"1"},{"name":"Epoch","type":"int16","versions":"1"},{"name":"LastSequence","type":"int32","versions":"1"},{"name":"LastOffset","type":"int64","versions":"1"},{"name":"OffsetDelta","type":"int32","versions":"1"},{"name":"Timestamp","type":"int64","versions":"1"},{"name":"CoordinatorEpoch","type":"int32","versions":"1"},{"name":"CurrentTxnFirstOffset","type":"int64","versions":"1"}]}]}'

    def __init__(
        self,
        *,
        crc: int = 0,
        producer_entries: list[ProducerEntry] = EMPTY,
    ) -> None:
        self.crc = crc
        self.producer_entries = [] if producer_entries is EMPTY else producer_entries
