"""UpdateRaftVoterResponse, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/UpdateRaftVoterResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message, Struct


class CurrentLeader(Struct):
    __slots__ = ("leader_id", "leader_epoch", "host", "port")

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.host = host
        self.port = port


class UpdateRaftVoterResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "current_leader")
    API_KEY: ClassVar[int | None] = 82
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":82,"type":"response","name":"UpdateRaftVoterResponse","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"CurrentLeader","type":"CurrentLeader","versions":"0+","taggedVersions":"0+","tag":0,"fields":[{"name":"LeaderId","type":"int32","versions":"0+","default":"-1","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+","default":"-1"},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"int32","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        current_leader: CurrentLeader | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.current_leader = current_leader
