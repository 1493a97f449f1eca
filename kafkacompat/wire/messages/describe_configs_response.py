"""DescribeConfigsResponse, versions 1 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeConfigsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeConfigsSynonym(Struct):
    __slots__ = ("name", "value", "source")

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        source: int = 0,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source


class DescribeConfigsResourceResult(Struct):
    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive", "synonyms", "config_type", "documentation")

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
        synonyms: list[DescribeConfigsSynonym] = EMPTY,
        config_type: int = 0,
        documentation: str | None = "",
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive
        self.synonyms = [] if synonyms is EMPTY else synonyms
        self.config_type = config_type
        self.documentation = documentation


class DescribeConfigsResult(Struct):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name", "configs")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[DescribeConfigsResourceResult] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = [] if configs is EMPTY else configs


class DescribeConfigsResponse(Message):
    __slots__ = ("throttle_time_ms", "results")
    API_KEY: ClassVar[int | None] = 32
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":32,"type":"response","name":"DescribeConfigsResponse","validVersions":"1-4","flexibleVersions":"4+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Results","type":"[]DescribeConfigsResult","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"ResourceType","type":"int8","versions":"0+"},{"name":"ResourceName","type":"string","versions":"0+"},{"name":"Configs","type":"[]DescribeConfigsResourceResult","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Value","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"ReadOnly","type":"bool","versions":"0+"},{"name":"ConfigSource","type":"int8","versions":"1+","default":"-1","ignorable":true},{"name":"IsSensitive","type":"bool","versions":"0+"},{"name":"Synonyms","type":"[]DescribeConfigsSynonym","versions":"1+","ignorable":true,"fields":[{"name":"Name","type":"string","versions":"1+"},{"name":"Value","type":"string","versions":"1+","nullableVersions":"0+"},{"name":"Source","type":"int8","versions":"1+"}]},{"name":"ConfigType","type":"int8","versions":"3+","default":"0","ignorable":true},{"name":"Documentation","type":"string","versions":"3+","nullableVersions":"0+","ignorable":true}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DescribeConfigsResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results
