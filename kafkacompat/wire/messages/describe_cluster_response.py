"""DescribeClusterResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeClusterResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeClusterBroker(Struct):
    __slots__ = ("broker_id", "host", "port", "rack", "is_fenced")

    def __init__(
        self,
        *,
        broker_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
        is_fenced: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced


class DescribeClusterResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "endpoint_type", "cluster_id", "controller_id", "brokers", "cluster_authorized_operations")
    API_KEY: ClassVar[int | None] = 60
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":60,"type":"response","name":"DescribeClusterResponse","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"EndpointType","type":"int8","versions":"1+","default":"1"},{"name":"ClusterId","type":"string","versions":"0+"},{"name":"ControllerId","type":"int32","versions":"0+","default":"-1","entityType":"brokerId"},{"name":"Brokers","type":"[]DescribeClusterBroker","versions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"int32","versions":"0+"},{"name":"Rack","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"IsFenced","type":"bool","versions":"2+"}]},{"name":"ClusterAuthorizedOperations","type":"int32","versions":"0+","default":"-2147483648"}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: list[DescribeClusterBroker] = EMPTY,
        cluster_authorized_operations: int = -2147483648,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.endpoint_type = endpoint_type
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers = [] if brokers is EMPTY else brokers
        self.cluster_authorized_operations = cluster_authorized_operations
