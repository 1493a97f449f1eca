"""DescribeClusterRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeClusterRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class DescribeClusterRequest(Message):
    __slots__ = ("include_cluster_authorized_operations", "endpoint_type", "include_fenced_brokers")
    API_KEY: ClassVar[int | None] = 60
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":60,"type":"request","listeners":["broker","controller"],"name":"DescribeClusterRequest","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"IncludeClusterAuthorizedOperations","type":"bool","versions":"0+"},{"name":"EndpointType","type":"int8","versions":"1+","default":"1"},{"name":"IncludeFencedBrokers","type":"bool","versions":"2+"}]}'

    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type
        self.include_fenced_brokers = include_fenced_brokers
