"""RemoveRaftVoterRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/RemoveRaftVoterRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class RemoveRaftVoterRequest(Message):
    __slots__ = ("cluster_id", "voter_id", "voter_directory_id")
    API_KEY: ClassVar[int | None] = 81
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":81,"type":"request","listeners":["controller","broker"],"name":"RemoveRaftVoterRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"VoterId","type":"int32","versions":"0+"},{"name":"VoterDirectoryId","type":"uuid","versions":"0+"}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        voter_id: int = 0,
        voter_directory_id: bytes = bytes(16),
    ) -> None:
        self.cluster_id = cluster_id
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
