"""RegisterBrokerRecord, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/RegisterBrokerRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class BrokerEndpoint(Struct):
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


class BrokerFeature(Struct):
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


class RegisterBrokerRecord(Message):
    __slots__ = ("broker_id", "is_migrating_zk_broker", "incarnation_id", "broker_epoch", "end_points", "features", "rack", "fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs")
    API_KEY: ClassVar[int | None] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":0,"type":"metadata","name":"RegisterBrokerRecord","validVersions":"0-4","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"IsMigratingZkBroker","type":"bool","versions":"2+","default":"false"},{"name":"IncarnationId","type":"uuid","versions":"0+"},{"name":"BrokerEpoch","type":"int64","versions":"0+"},{"name":"EndPoints","type":"[]BrokerEndpoint","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"},{"name":"SecurityProtocol","type":"int16","versions":"0+"}]},{"name":"Features","type":"[]BrokerFeature","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"MinSupportedVersion","type":"int16","versions":"0+"},{"name":"MaxSupportedVersion","type":"int16","versions":"0+"}]},{"name":"Rack","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"Fenced","type":"bool","versions":"0+","default":"true"},{"name":"InControlledShutdown","type":"bool","versions":"1+","default":"false"},{"name":"LogDirs","type":"[]uuid","versions":"3+","taggedVersions":"3+","tag":0},{"name":"CordonedLogDirs","type":"[]uuid","versions":"4+","taggedVersions":"4+","tag":1,"nullableVersions":"4+","default":"null"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        is_migrating_zk_broker: bool = False,
        incarnation_id: bytes = bytes(16),
        broker_epoch: int = 0,
        end_points: list[BrokerEndpoint] = EMPTY,
        features: list[BrokerFeature] = EMPTY,
        rack: str | None = "",
        fenced: bool = True,
        in_controlled_shutdown: bool = False,
        log_dirs: list[bytes] = EMPTY,
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.incarnation_id = incarnation_id
        self.broker_epoch = broker_epoch
        self.end_points = [] if end_points is EMPTY else end_points
        self.features = [] if features is EMPTY else features
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = [] if log_dirs is EMPTY else log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs
