"""DelegationTokenRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/DelegationTokenRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class DelegationTokenRecord(Message):
    __slots__ = ("owner", "requester", "renewers", "issue_timestamp", "max_timestamp", "expiration_timestamp", "token_id")
    API_KEY: ClassVar[int | None] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":10,"type":"metadata","name":"DelegationTokenRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Owner","type":"string","versions":"0+"},{"name":"Requester","type":"string","versions":"0+"},{"name":"Renewers","type":"[]string","versions":"0+"},{"name":"IssueTimestamp","type":"int64","versions":"0+"},{"name":"MaxTimestamp","type":"int64","versions":"0+"},{"name":"ExpirationTimestamp","type":"int64","versions":"0+"},{"name":"TokenId","type":"string","versions":"0+"}]}'

    def __init__(
        self,
        *,
        owner: str = "",
        requester: str = "",
        renewers: list[str] = EMPTY,
        issue_timestamp: int = 0,
        max_timestamp: int = 0,
        expiration_timestamp: int = 0,
        token_id: str = "",
    ) -> None:
        self.owner = owner
        self.requester = requester
        self.renewers = [] if renewers is EMPTY else renewers
        self.issue_timestamp = issue_timestamp
        self.max_timestamp = max_timestamp
        self.expiration_timestamp = expiration_timestamp
        self.token_id = token_id
