"""ApiVersionsRequest, versions 0 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ApiVersionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ApiVersionsRequest(Message):
    __slots__ = ("client_software_name", "client_software_version", "cluster_id", "node_id")
    API_KEY: ClassVar[int | None] = 18
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":18,"type":"request","listeners":["broker","controller"],"name":"ApiVersionsRequest","validVersions":"0-5","flexibleVersions":"3+","fields":[{"name":"ClientSoftwareName","type":"string","versions":"3+","ignorable":true},{"name":"ClientSoftwareVersion","type":"string","versions":"3+","ignorable":true},{"name":"ClusterId","type":"string","versions":"5+","nullableVersions":"5+","default":"null","ignorable":true},{"name":"NodeId","type":"int32","versions":"5+","default":-1,"ignorable":true}]}'

    def __init__(
        self,
        *,
        client_software_name: str = "",
        client_software_version: str = "",
        cluster_id: str | None = None,
        node_id: int = -1,
    ) -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
        self.cluster_id = cluster_id
        self.node_id = node_id
