"""ShareGroupMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ShareGroupMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ShareGroupMetadataValue(Message):
    __slots__ = ("epoch", "metadata_hash")
    API_KEY: ClassVar[int | None] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":11,"type":"coordinator-value","name":"ShareGroupMetadataValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Epoch","type":"int32","versions":"0+"},{"name":"MetadataHash","versions":"0+","type":"int64"}]}'

    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
