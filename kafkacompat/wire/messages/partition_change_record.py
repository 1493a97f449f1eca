"""PartitionChangeRecord, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/PartitionChangeRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class PartitionChangeRecord(Message):
    __slots__ = ("partition_id", "topic_id", "isr", "leader", "replicas", "removing_replicas", "adding_replicas", "leader_recovery_state", "directories", "eligible_leader_replicas", "last_known_elr")
    API_KEY: ClassVar[int | None] = 5
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":5,"type":"metadata","name":"PartitionChangeRecord","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"PartitionId","type":"int32","versions":"0+","default":"-1"},{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Isr","type":"[]int32","default":"null","entityType":"brokerId","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":0},{"name":"Leader","type":"int32","default":"-2","entityType":"brokerId","versions":"0+","taggedVersions":"0+","tag":1},{"name":"Replicas","type":"[]int32","default":"null","entityType":"brokerId","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":2},{"name":"RemovingReplicas","type":"[]int32","default":"null","entityType":"brokerId","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":3},{"name":"AddingReplicas","type":"[]int32","default":"null","entityType":"brokerId","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":4},{"name":"LeaderRecoveryState","type":"int8","default":"-1","versions":"0+","taggedVersions":"0+","tag":5},{"name":"Directories","type":"[]uuid","default":"null","versions":"1+","nullableVersions":"1+","taggedVersions":"1+","tag":8},{"name":"EligibleLeaderReplicas","type":"[]int32","default":"null","entityType":"brokerId","versions":"2+","nullableVersions":"2+","taggedVersions":"2+","tag":6},{"name":"LastKnownElr","type":"[]int32","default":"null","entityType":"brokerId","versions":"2+","nullableVersions":"2+","taggedVersions":"2+","tag":7}]}'

    def __init__(
        self,
        *,
        partition_id: int = -1,
        topic_id: bytes = bytes(16),
        isr: list[int] | None = None,
        leader: int = -2,
        replicas: list[int] | None = None,
        removing_replicas: list[int] | None = None,
        adding_replicas: list[int] | None = None,
        leader_recovery_state: int = -1,
        directories: list[bytes] | None = None,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
    ) -> None:
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.isr = isr
        self.leader = leader
        self.replicas = replicas
        self.removing_replicas = removing_replicas
        self.adding_replicas = adding_replicas
        self.leader_recovery_state = leader_recovery_state
        self.directories = directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
