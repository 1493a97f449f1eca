"""ConsumerGroupMemberMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupMemberMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class ClassicProtocol(Struct):
    __slots__ = ("name", "metadata")

    def __init__(
        self,
        *,
        name: str = "",
        metadata: bytes = b"",
    ) -> None:
        self.name = name
        self.metadata = metadata


class ClassicMemberMetadata(Struct):
    __slots__ = ("session_timeout_ms", "supported_protocols")

    def __init__(
        self,
        *,
        session_timeout_ms: int = 0,
        supported_protocols: list[ClassicProtocol] = EMPTY,
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.supported_protocols = [] if supported_protocols is EMPTY else supported_protocols


class ConsumerGroupMemberMetadataValue(Message):
    __slots__ = ("instance_id", "rack_id", "client_id", "client_host", "subscribed_topic_names", "subscribed_topic_regex", "rebalance_timeout_ms", "server_assignor", "classic_member_metadata")
    API_KEY: ClassVar[int | None] = 5
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":5,"type":"coordinator-value","name":"ConsumerGroupMemberMetadataValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"InstanceId","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"RackId","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"ClientId","versions":"0+","type":"string"},{"name":"ClientHost","versions":"0+","type":"string"},{"name":"SubscribedTopicNames","versions":"0+","type":"[]string"},{"name":"SubscribedTopicRegex","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"RebalanceTimeoutMs","type":"int32","versions":"0+","default":-1},{"name":"ServerAssignor","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"ClassicMemberMetadata","versions":"0+","nullableVersions":"0+","type":"ClassicMemberMetadata","default":null,"taggedVersions":"0+","tag":0,"fields":[{"name":"SessionTimeoutMs","type":"int32","versions":"0+"},{"name":"SupportedProtocols","type":"[]ClassicProtocol","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Metadata","type":"bytes","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        subscribed_topic_regex: str | None = "",
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = "",
        classic_member_metadata: ClassicMemberMetadata | None = None,
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.classic_member_metadata = classic_member_metadata
