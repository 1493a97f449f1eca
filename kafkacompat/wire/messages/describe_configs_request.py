"""DescribeConfigsRequest, versions 1 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeConfigsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeConfigsResource(Struct):
    __slots__ = ("resource_type", "resource_name", "configuration_keys")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | None = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys = [] if configuration_keys is EMPTY else configuration_keys


class DescribeConfigsRequest(Message):
    __slots__ = ("resources", "include_synonyms", "include_documentation")
    API_KEY: ClassVar[int | None] = 32
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 4
    DEFINITION: ClassVar[str] = '{"apiKey":32,"type":"request","listeners":["broker","controller"],"name":"DescribeConfigsRequest","validVersions":"1-4","flexibleVersions":"4+","fields":[{"name":"Resources","type":"[]DescribeConfigsResource","versions":"0+","fields":[{"name":"ResourceType","type":"int8","versions":"0+"},{"name":"ResourceName","type":"string","versions":"0+"},{"name":"ConfigurationKeys","type":"[]string","versions":"0+","nullableVersions":"0+"}]},{"name":"IncludeSynonyms","type":"bool","versions":"1+","default":"false","ignorable":false},{"name":"IncludeDocumentation","type":"bool","versions":"3+","default":"false","ignorable":false}]}'

    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] = EMPTY,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation
