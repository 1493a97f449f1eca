"""AlterConfigsRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterConfigsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AlterableConfig(Struct):
    __slots__ = ("name", "value")

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.name = name
        self.value = value


class AlterConfigsResource(Struct):
    __slots__ = ("resource_type", "resource_name", "configs")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = [] if configs is EMPTY else configs


class AlterConfigsRequest(Message):
    __slots__ = ("resources", "validate_only")
    API_KEY: ClassVar[int | None] = 33
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":33,"type":"request","listeners":["broker","controller"],"name":"AlterConfigsRequest","validVersions":"0-2","flexibleVersions":"2+","fields":[{"name":"Resources","type":"[]AlterConfigsResource","versions":"0+","fields":[{"name":"ResourceType","type":"int8","versions":"0+","mapKey":true},{"name":"ResourceName","type":"string","versions":"0+","mapKey":true},{"name":"Configs","type":"[]AlterableConfig","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Value","type":"string","versions":"0+","nullableVersions":"0+"}]}]},{"name":"ValidateOnly","type":"bool","versions":"0+"}]}'

    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.validate_only = validate_only
