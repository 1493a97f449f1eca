"""FeatureLevelRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/FeatureLevelRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class FeatureLevelRecord(Message):
    __slots__ = ("name", "feature_level")
    API_KEY: ClassVar[int | None] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":12,"type":"metadata","name":"FeatureLevelRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"FeatureLevel","type":"int16","versions":"0+"}]}'

    def __init__(
        self,
        *,
        name: str = "",
        feature_level: int = 0,
    ) -> None:
        self.name = name
        self.feature_level = feature_level
