"""ShareSnapshotValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/share/ShareSnapshotValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class StateBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_state", "delivery_count")

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class ShareSnapshotValue(Message):
    __slots__ = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count", "create_timestamp", "write_timestamp", "state_batches")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"coordinator-value","name":"ShareSnapshotValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"SnapshotEpoch","type":"int32","versions":"0+"},{"name":"StateEpoch","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"StartOffset","type":"int64","versions":"0+"},{"name":"DeliveryCompleteCount","type":"int32","versions":"0+","taggedVersions":"0+","tag":0,"default":"-1"},{"name":"CreateTimestamp","type":"int64","versions":"0+"},{"name":"WriteTimestamp","type":"int64","versions":"0+"},{"name":"StateBatches","type":"[]StateBatch","versions":"0+","fields":[{"name":"FirstOffset","type":"int64","versions":"0+"},{"name":"LastOffset","type":"int64","versions":"0+"},{"name":"DeliveryState","type":"int8","versions":"0+"},{"name":"DeliveryCount","type":"int16","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        snapshot_epoch: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        create_timestamp: int = 0,
        write_timestamp: int = 0,
        state_batches: list[StateBatch] = EMPTY,
    ) -> None:
        self.snapshot_epoch = snapshot_epoch
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.create_timestamp = create_timestamp
        self.write_timestamp = write_timestamp
        self.state_batches = [] if state_batches is EMPTY else state_batches
