"""ApiVersionsRequest, versions 0 to 4.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ApiVersionsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ApiVersionsRequest(Message):
    __slots__ = ("client_software_name", "client_software_version")
    API_KEY: ClassVar[int | None] = 18
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_MIN: ClassVar[int] = 3
    DEFINITION: ClassVar[str] = '{"apiKey":18,"type":"request","listeners":["broker","controller"],"name":"ApiVersionsRequest","validVersions":"0-4","flexibleVersions":"3+","fields":[{"name":"ClientSoftwareName","type":"string","versions":"3+","ignorable":true},{"name":"ClientSoftwareVersion","type":"string","versions":"3+","ignorable":true}]}'

    def __init__(
        self,
        *,
        client_software_name: str = "",
        client_software_version: str = "",
    ) -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
