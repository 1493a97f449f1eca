"""RegisterControllerRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/RegisterControllerRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ControllerEndpoint(Struct):
    __slots__ = ("name", "host", "port", "security_protocol")

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
        security_protocol: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class ControllerFeature(Struct):
    __slots__ = ("name", "min_supported_version", "max_supported_version")

    def __init__(
        self,
        *,
        name: str = "",
        min_supported_version: int = 0,
        max_supported_version: int = 0,
    ) -> None:
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterControllerRecord(Message):
    __slots__ = ("controller_id", "incarnation_id", "zk_migration_ready", "end_points", "features")
    API_KEY: ClassVar[int | None] = 27
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":27,"type":"metadata","name":"RegisterControllerRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ControllerId","type":"int32","versions":"0+"},{"name":"IncarnationId","type":"uuid","versions":"0+"},{"name":"ZkMigrationReady","type":"bool","versions":"0+"},{"name":"EndPoints","type":"[]ControllerEndpoint","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"},{"name":"SecurityProtocol","type":"int16","versions":"0+"}]},{"name":"Features","type":"[]ControllerFeature","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"MinSupportedVersion","type":"int16","versions":"0+"},{"name":"MaxSupportedVersion","type":"int16","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        controller_id: int = 0,
        incarnation_id: bytes = bytes(16),
        zk_migration_ready: bool = False,
        end_points: list[ControllerEndpoint] = EMPTY,
        features: list[ControllerFeature] = EMPTY,
    ) -> None:
        self.controller_id = controller_id
        self.incarnation_id = incarnation_id
        self.zk_migration_ready = zk_migration_ready
        self.end_points = [] if end_points is EMPTY else end_points
        self.features = [] if features is EMPTY else features
