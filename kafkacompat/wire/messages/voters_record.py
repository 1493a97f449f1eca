"""VotersRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/VotersRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Endpoint(Struct):
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


class Voter(Struct):
    __slots__ = ("voter_id", "voter_directory_id", "endpoints", "kraft_version_feature")

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: bytes = bytes(16),
        endpoints: list[Endpoint] = EMPTY,
        kraft_version_feature: KRaftVersionFeature | None = None,
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.endpoints = [] if endpoints is EMPTY else endpoints
        self.kraft_version_feature = KRaftVersionFeature() if kraft_version_feature is None else kraft_version_feature


class VotersRecord(Message):
    __slots__ = ("version", "voters")
    API_KEY: ClassVar[int | None] = None
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"type":"data","name":"VotersRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"Version","type":"int16","versions":"0+"},{"name":"Voters","type":"[]Voter","versions":"0+","fields":[{"name":"VoterId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"VoterDirectoryId","type":"uuid","versions":"0+"},{"name":"Endpoints","type":"[]Endpoint","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true},{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]},{"name":"KRaftVersionFeature","type":"KRaftVersionFeature","versions":"0+","fields":[{"name":"MinSupportedVersion","type":"int16","versions":"0+"},{"name":"MaxSupportedVersion","type":"int16","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        version: int = 0,
        voters: list[Voter] = EMPTY,
    ) -> None:
        self.version = version
        self.voters = [] if voters is EMPTY else voters
