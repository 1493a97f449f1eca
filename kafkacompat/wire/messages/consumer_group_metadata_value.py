"""ConsumerGroupMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ConsumerGroupMetadataValue(Message):
    __slots__ = ("epoch", "metadata_hash")
    API_KEY: ClassVar[int | None] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":3,"type":"coordinator-value","name":"ConsumerGroupMetadataValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Epoch","versions":"0+","type":"int32"},{"name":"MetadataHash","versions":"0+","type":"int64","default":0,"taggedVersions":"0+","tag":0}]}'

    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
