"""EnvelopeRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/EnvelopeRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class EnvelopeRequest(Message):
    __slots__ = ("request_data", "request_principal", "client_host_address")
    API_KEY: ClassVar[int | None] = 58
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":58,"type":"request","listeners":["controller"],"name":"EnvelopeRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"RequestData","type":"bytes","versions":"0+","zeroCopy":true},{"name":"RequestPrincipal","type":"bytes","versions":"0+","nullableVersions":"0+"},{"name":"ClientHostAddress","type":"bytes","versions":"0+"}]}'

    def __init__(
        self,
        *,
        request_data: bytes = b"",
        request_principal: bytes | None = b"",
        client_host_address: bytes = b"",
    ) -> None:
        self.request_data = request_data
        self.request_principal = request_principal
        self.client_host_address = client_host_address
