"""StreamsGroupMemberMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/StreamsGroupMemberMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Endpoint(Struct):
    __slots__ = ("host", "port")

    def __init__(
        self,
        *,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.host = host
        self.port = port


class KeyValue(Struct):
    __slots__ = ("key", "value")

    def __init__(
        self,
        *,
        key: str = "",
        value: str = "",
    ) -> None:
        self.key = key
        self.value = value


class StreamsGroupMemberMetadataValue(Message):
    __slots__ = ("instance_id", "rack_id", "client_id", "client_host", "rebalance_timeout_ms", "topology_epoch", "process_id", "user_endpoint", "client_tags")
    API_KEY: ClassVar[int | None] = 19
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":19,"type":"coordinator-value","name":"StreamsGroupMemberMetadataValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"Endpoint","versions":"0+","fields":[{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]},{"name":"KeyValue","versions":"0+","fields":[{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"string","versions":"0+"}]}],"fields":[{"name":"InstanceId","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"RackId","versions":"0+","nullableVersions":"0+","type":"string"},{"name":"ClientId","versions":"0+","type":"string"},{"name":"ClientHost","versions":"0+","type":"string"},{"name":"RebalanceTimeoutMs","type":"int32","versions":"0+","default":-1},{"name":"TopologyEpoch","type":"int32","versions":"0+"},{"name":"ProcessId","type":"string","versions":"0+"},{"name":"UserEndpoint","type":"Endpoint","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"ClientTags","type":"[]KeyValue","versions":"0+"}]}'

    def __init__(
        self,
        *,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout_ms: int = -1,
        topology_epoch: int = 0,
        process_id: str = "",
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] = EMPTY,
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topology_epoch = topology_epoch
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags = [] if client_tags is EMPTY else client_tags
