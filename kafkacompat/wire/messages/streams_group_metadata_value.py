"""StreamsGroupMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/StreamsGroupMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class LastAssignmentConfig(Struct):
    __slots__ = ("key", "value")

    def __init__(
        self,
        *,
        key: str = "",
        value: str = "",
    ) -> None:
        self.key = key
        self.value = value


class StreamsGroupMetadataValue(Message):
    __slots__ = ("epoch", "metadata_hash", "validated_topology_epoch", "last_assignment_configs", "stored_description_topology_epoch", "failed_description_topology_epoch")
    API_KEY: ClassVar[int | None] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":17,"type":"coordinator-value","name":"StreamsGroupMetadataValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"LastAssignmentConfig","versions":"0+","fields":[{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"string","versions":"0+"}]}],"fields":[{"name":"Epoch","versions":"0+","type":"int32"},{"name":"MetadataHash","versions":"0+","type":"int64"},{"name":"ValidatedTopologyEpoch","versions":"0+","taggedVersions":"0+","tag":0,"default":-1,"type":"int32"},{"name":"LastAssignmentConfigs","taggedVersions":"0+","nullableVersions":"0+","tag":1,"default":null,"type":"[]LastAssignmentConfig"},{"name":"StoredDescriptionTopologyEpoch","versions":"0+","taggedVersions":"0+","tag":2,"default":-1,"type":"int32"},{"name":"FailedDescriptionTopologyEpoch","versions":"0+","taggedVersions":"0+","tag":3,"default":-1,"type":"int32"}]}'

    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
        validated_topology_epoch: int = -1,
        last_assignment_configs: list[LastAssignmentConfig] | None = EMPTY,
        stored_description_topology_epoch: int = -1,
        failed_description_topology_epoch: int = -1,
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self.validated_topology_epoch = validated_topology_epoch
        self.last_assignment_configs = [] if last_assignment_configs is EMPTY else last_assignment_configs
        self.stored_description_topology_epoch = stored_description_topology_epoch
        self.failed_description_topology_epoch = failed_description_topology_epoch
