"""QuorumStateData, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/raft/QuorumStateData.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Voter(Struct):
    __slots__ = ("voter_id",)

    def __init__(
        self,
        *,
        voter_id: int = 0,
    ) -> None:
        self.voter_id = voter_id


class QuorumStateData(Message):
    __slots__ = ("cluster_id", "leader_id", "leader_epoch", "voted_id", "voted_directory_id", "applied_offset", "current_voters")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"type":"data","name":"QuorumStateData","validVersions":"0-1","flexibleVersions":"0+","fields":[{"name":"ClusterId","type":"string","versions":"0"},{"name":"LeaderId","type":"int32","versions":"0+","default":"-1"},{"name":"LeaderEpoch","type":"int32","versions":"0+","default":"-1"},{"name":"VotedId","type":"int32","versions":"0+","default":"-1"},{"name":"VotedDirectoryId","type":"uuid","versions":"1+"},{"name":"AppliedOffset","type":"int64","versions":"0"},{"name":"CurrentVoters","type":"[]Voter","versions":"0","nullableVersions":"0","fields":[{"name":"VoterId","type":"int32","versions":"0"}]}]}'

    def __init__(
        self,
        *,
        cluster_id: str = "",
        leader_id: int = -1,
        leader_epoch: int = -1,
        voted_id: int = -1,
        voted_directory_id: bytes = bytes(16),
        applied_offset: int = 0,
        current_voters: list[Voter] | None = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.voted_id = voted_id
        self.voted_directory_id = voted_directory_id
        self.applied_offset = applied_offset
        self.current_voters = [] if current_voters is EMPTY else current_voters
