"""UpdateRaftVoterRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/UpdateRaftVoterRequest.json."""

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


class KRaftVersionFeature(Struct):
    __slots__ = ("min_supported_version", "max_supported_version")

    def __init__(
        self,
        *,
        min_supported_version: int = 0,
        max_supported_version: int = 0,
    ) -> None:
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class UpdateRaftVoterRequest(Message):
    __slots__ = ("cluster_id", "current_leader_epoch", "voter_id", "voter_directory_id", "listeners", "kraft_version_feature")
    API_KEY: ClassVar[int | None] = 82
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":82,"type":"request","listeners":["controller"],"name":"UpdateRaftVoterRequest","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ClusterId","type":"string","versions":"0+","nullableVersions":"0+"},{"name":"CurrentLeaderEpoch","type":"int32","versions":"0+"},{"name":"VoterId","type":"int32","versions":"0+"},{"name":"VoterDirectoryId","type":"uuid","versions":"0+"},{"name":"Listeners","type":"[]Listener","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]},{"name":"KRaftVersionFeature","type":"KRaftVersionFeature","versions":"0+","fields":[{"name":"MinSupportedVersion","type":"int16","versions":"0+"},{"name":"MaxSupportedVersion","type":"int16","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        current_leader_epoch: int = 0,
        voter_id: int = 0,
        voter_directory_id: bytes = bytes(16),
        listeners: list[Listener] = EMPTY,
        kraft_version_feature: KRaftVersionFeature | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.current_leader_epoch = current_leader_epoch
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.listeners = [] if listeners is EMPTY else listeners
        self.kraft_version_feature = KRaftVersionFeature() if kraft_version_feature is None else kraft_version_feature
