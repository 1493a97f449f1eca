"""UpdateFeaturesRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/UpdateFeaturesRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class FeatureUpdateKey(Struct):
    __slots__ = ("feature", "max_version_level", "allow_downgrade", "upgrade_type")

    def __init__(
        self,
        *,
        feature: str = "",
        max_version_level: int = 0,
        allow_downgrade: bool = False,
        upgrade_type: int = 1,
    ) -> None:
        self.feature = feature
        self.max_version_level = max_version_level
        self.allow_downgrade = allow_downgrade
        self.upgrade_type = upgrade_type


class UpdateFeaturesRequest(Message):
    __slots__ = ("timeout_ms", "feature_updates", "validate_only")
    API_KEY: ClassVar[int | None] = 57
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":57,"type":"request","listeners":["broker","controller"],"name":"UpdateFeaturesRequest","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"timeoutMs","type":"int32","versions":"0+","default":"60000"},{"name":"FeatureUpdates","type":"[]FeatureUpdateKey","versions":"0+","fields":[{"name":"Feature","type":"string","versions":"0+","mapKey":true},{"name":"MaxVersionLevel","type":"int16","versions":"0+"},{"name":"AllowDowngrade","type":"bool","versions":"0"},{"name":"UpgradeType","type":"int8","versions":"1+","default":1}]},{"name":"ValidateOnly","type":"bool","versions":"1+","default":false}]}'

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        feature_updates: list[FeatureUpdateKey] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.feature_updates = [] if feature_updates is EMPTY else feature_updates
        self.validate_only = validate_only
