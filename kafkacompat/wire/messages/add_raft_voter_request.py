"""AddRaftVoterRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AddRaftVoterRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Listener(Struct):
    __slots__ = ("name", "host", "port")

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port


class AddRaftVoterRequest(Message):
    __slots__ = ("cluster_id", "timeout_ms", "voter_id", "voter_directory_id", "listeners", "ack_when_committed")
    API_KEY: ClassVar[int | None] = 80
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":80,"type":"request","listeners":["controller","broker"],"name":"AddRaftVoterRequest","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"TimeoutMs","type":"int32","versions":"0+"},{"name":"VoterId","type":"int32","versions":"0+"},{"name":"VoterDirectoryId","type":"uuid","versions":"0+"},{"name":"Listeners","type":"[]Listener","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]},{"name":"AckWhenCommitted","type":"bool","versions":"1+","default":"true"}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        timeout_ms: int = 0,
        voter_id: int = 0,
        voter_directory_id: bytes = bytes(16),
        listeners: list[Listener] = EMPTY,
        ack_when_committed: bool = True,
    ) -> None:
        self.cluster_id = cluster_id
        self.timeout_ms = timeout_ms
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.listeners = [] if listeners is EMPTY else listeners
        self.ack_when_committed = ack_when_committed
