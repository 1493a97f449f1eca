"""AlterPartitionRequest, versions 2 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterPartitionRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class BrokerState(Struct):
    __slots__ = ("broker_id", "broker_epoch")

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class PartitionData(Struct):
    __slots__ = ("partition_index", "leader_epoch", "new_isr", "new_isr_with_epochs", "leader_recovery_state", "partition_epoch")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_epoch: int = 0,
        new_isr: list[int] = EMPTY,
        new_isr_with_epochs: list[BrokerState] = EMPTY,
        leader_recovery_state: int = 0,
        partition_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.leader_epoch = leader_epoch
        self.new_isr = [] if new_isr is EMPTY else new_isr
        self.new_isr_with_epochs = [] if new_isr_with_epochs is EMPTY else new_isr_with_epochs
        self.leader_recovery_state = leader_recovery_state
        self.partition_epoch = partition_epoch


class TopicData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class AlterPartitionRequest(Message):
    __slots__ = ("broker_id", "broker_epoch", "topics")
    API_KEY: ClassVar[int | None] = 56
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":56,"type":"request","listeners":["controller"],"name":"AlterPartitionRequest","validVersions":"2-3","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+","default":"-1"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"2+","ignorable":true},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"NewIsr","type":"[]int32","versions":"0-2","entityType":"brokerId"},{"name":"NewIsrWithEpochs","type":"[]BrokerState","versions":"3+","fields":[{"name":"BrokerId","type":"int32","versions":"3+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"3+","default":"-1"}]},{"name":"LeaderRecoveryState","type":"int8","versions":"1+","default":"0"},{"name":"PartitionEpoch","type":"int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.topics = [] if topics is EMPTY else topics
