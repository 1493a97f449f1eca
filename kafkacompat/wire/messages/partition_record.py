"""PartitionRecord, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/PartitionRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class PartitionRecord(Message):
    __slots__ = ("partition_id", "topic_id", "replicas", "isr", "removing_replicas", "adding_replicas", "leader", "leader_recovery_state", "leader_epoch", "partition_epoch", "directories", "eligible_leader_replicas", "last_known_elr")
    API_KEY: ClassVar[int | None] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":3,"type":"metadata","name":"PartitionRecord","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"PartitionId","type":"int32","versions":"0+","default":"-1"},{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Replicas","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"Isr","type":"[]int32","versions":"0+"},{"name":"RemovingReplicas","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"AddingReplicas","type":"[]int32","versions":"0+","entityType":"brokerId"},{"name":"Leader","type":"int32","versions":"0+","default":"-1","entityType":"brokerId"},{"name":"LeaderRecoveryState","type":"int8","default":"0","versions":"0+","taggedVersions":"0+","tag":0},{"name":"LeaderEpoch","type":"int32","versions":"0+","default":"-1"},{"name":"PartitionEpoch","type":"int32","versions":"0+","default":"-1"},{"name":"Directories","type":"[]uuid","versions":"1+"},{"name":"EligibleLeaderReplicas","type":"[]int32","default":"null","entityType":"brokerId","versions":"2+","nullableVersions":"2+","taggedVersions":"2+","tag":1},{"name":"LastKnownElr","type":"[]int32","default":"null","entityType":"brokerId","versions":"2+","nullableVersions":"2+","taggedVersions":"2+","tag":2}]}'

    def __init__(
        self,
        *,
        partition_id: int = -1,
        topic_id: bytes = bytes(16),
        replicas: list[int] = EMPTY,
        isr: list[int] = EMPTY,
        removing_replicas: list[int] = EMPTY,
        adding_replicas: list[int] = EMPTY,
        leader: int = -1,
        leader_recovery_state: int = 0,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        directories: list[bytes] = EMPTY,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
    ) -> None:
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.replicas = [] if replicas is EMPTY else replicas
        self.isr = [] if isr is EMPTY else isr
        self.removing_replicas = [] if removing_replicas is EMPTY else removing_replicas
        self.adding_replicas = [] if adding_replicas is EMPTY else adding_replicas
        self.leader = leader
        self.leader_recovery_state = leader_recovery_state
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.directories = [] if directories is EMPTY else directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
