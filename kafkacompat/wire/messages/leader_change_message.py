"""LeaderChangeMessage, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/LeaderChangeMessage.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Voter(Struct):
    __slots__ = ("voter_id", "voter_directory_id")

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: bytes = bytes(16),
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id


class LeaderChangeMessage(Message):
    __slots__ = ("version", "leader_id", "voters", "granting_voters")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"type":"data","name":"LeaderChangeMessage","validVersions":"0-1","flexibleVersions":"0+","commonStructs":[{"name":"Voter","versions":"0+","fields":[{"name":"VoterId","type":"int32","versions":"0+"},{"name":"VoterDirectoryId","type":"uuid","versions":"1+"}]}],"fields":[{"name":"Version","type":"int16","versions":"0+"},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"Voters","type":"[]Voter","versions":"0+"},{"name":"GrantingVoters","type":"[]Voter","versions":"0+"}]}'

    def __init__(
        self,
        *,
        version: int = 0,
        leader_id: int = 0,
        voters: list[Voter] = EMPTY,
        granting_voters: list[Voter] = EMPTY,
    ) -> None:
        self.version = version
        self.leader_id = leader_id
        self.voters = [] if voters is EMPTY else voters
        self.granting_voters = [] if granting_voters is EMPTY else granting_voters
