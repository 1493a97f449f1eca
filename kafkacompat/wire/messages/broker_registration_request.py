"""BrokerRegistrationRequest, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/BrokerRegistrationRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Listener(Struct):
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


class Feature(Struct):
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


class BrokerRegistrationRequest(Message):
    __slots__ = ("broker_id", "cluster_id", "incarnation_id", "listeners", "features", "rack", "is_migrating_zk_broker", "log_dirs", "previous_broker_epoch")
    API_KEY: ClassVar[int | None] = 62
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":62,"type":"request","listeners":["controller"],"name":"BrokerRegistrationRequest","validVersions":"0-4","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"ClusterId","type":"string","versions":"0+"},{"name":"IncarnationId","type":"uuid","versions":"0+"},{"name":"Listeners","type":"[]Listener","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"},{"name":"SecurityProtocol","type":"int16","versions":"0+"}]},{"name":"Features","type":"[]Feature","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"MinSupportedVersion","type":"int16","versions":"0+"},{"name":"MaxSupportedVersion","type":"int16","versions":"0+"}]},{"name":"Rack","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"IsMigratingZkBroker","type":"bool","versions":"1+","default":"false"},{"name":"LogDirs","type":"[]uuid","versions":"2+","ignorable":true},{"name":"PreviousBrokerEpoch","type":"int64","versions":"3+","default":"-1","ignorable":true}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        cluster_id: str = "",
        incarnation_id: bytes = bytes(16),
        listeners: list[Listener] = EMPTY,
        features: list[Feature] = EMPTY,
        rack: str | None = "",
        is_migrating_zk_broker: bool = False,
        log_dirs: list[bytes] = EMPTY,
        previous_broker_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.incarnation_id = incarnation_id
        self.listeners = [] if listeners is EMPTY else listeners
        self.features = [] if features is EMPTY else features
        self.rack = rack
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.log_dirs = [] if log_dirs is EMPTY else log_dirs
        self.previous_broker_epoch = previous_broker_epoch
