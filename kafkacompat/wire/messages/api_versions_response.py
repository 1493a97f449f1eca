"""ApiVersionsResponse, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ApiVersionsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ApiVersion(Struct):
    __slots__ = ("api_key", "min_version", "max_version")

    def __init__(
        self,
        *,
        api_key: int = 0,
        min_version: int = 0,
        max_version: int = 0,
    ) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version


class SupportedFeatureKey(Struct):
    __slots__ = ("name", "min_version", "max_version")

    def __init__(
        self,
        *,
        name: str = "",
        min_version: int = 0,
        max_version: int = 0,
    ) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version


class FinalizedFeatureKey(Struct):
    __slots__ = ("name", "max_version_level", "min_version_level")

    def __init__(
        self,
        *,
        name: str = "",
        max_version_level: int = 0,
        min_version_level: int = 0,
    ) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level


class ApiVersionsResponse(Message):
    __slots__ = ("error_code", "api_keys", "throttle_time_ms", "supported_features", "finalized_features_epoch", "finalized_features", "zk_migration_ready")
    API_KEY: ClassVar[int | None] = 18
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":18,"type":"response","name":"ApiVersionsResponse","validVersions":"0-5","flexibleVersions":"3+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ApiKeys","type":"[]ApiVersion","versions":"0+","fields":[{"name":"ApiKey","type":"int16","versions":"0+","mapKey":true},{"name":"MinVersion","type":"int16","versions":"0+"},{"name":"MaxVersion","type":"int16","versions":"0+"}]},{"name":"ThrottleTimeMs","type":"int32","versions":"1+","ignorable":true},{"name":"SupportedFeatures","type":"[]SupportedFeatureKey","ignorable":true,"versions":"3+","tag":0,"taggedVersions":"3+","fields":[{"name":"Name","type":"string","versions":"3+","mapKey":true},{"name":"MinVersion","type":"int16","versions":"3+"},{"name":"MaxVersion","type":"int16","versions":"3+"}]},{"name":"FinalizedFeaturesEpoch","type":"int64","versions":"3+","tag":1,"taggedVersions":"3+","default":"-1","ignorable":true},{"name":"FinalizedFeatures","type":"[]FinalizedFeatureKey","ignorable":true,"versions":"3+","tag":2,"taggedVersions":"3+","fields":[{"name":"Name","type":"string","versions":"3+","mapKey":true},{"name":"MaxVersionLevel","type":"int16","versions":"3+"},{"name":"MinVersionLevel","type":"int16","versions":"3+"}]},{"name":"ZkMigrationReady","type":"bool","versions":"3+","taggedVersions":"3+","tag":3,"ignorable":true,"default":"false"}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: list[ApiVersion] = EMPTY,
        throttle_time_ms: int = 0,
        supported_features: list[SupportedFeatureKey] = EMPTY,
        finalized_features_epoch: int = -1,
        finalized_features: list[FinalizedFeatureKey] = EMPTY,
        zk_migration_ready: bool = False,
    ) -> None:
        self.error_code = error_code
        self.api_keys = [] if api_keys is EMPTY else api_keys
        self.throttle_time_ms = throttle_time_ms
        self.supported_features = [] if supported_features is EMPTY else supported_features
        self.finalized_features_epoch = finalized_features_epoch
        self.finalized_features = [] if finalized_features is EMPTY else finalized_features
        self.zk_migration_ready = zk_migration_ready
