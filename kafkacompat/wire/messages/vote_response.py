"""VoteResponse, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/VoteResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index", "error_code", "leader_id", "leader_epoch", "vote_granted")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        leader_id: int = 0,
        leader_epoch: int = 0,
        vote_granted: bool = False,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.vote_granted = vote_granted


class TopicData(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class NodeEndpoint(Struct):
    __slots__ = ("node_id", "host", "port")

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port


class VoteResponse(Message):
    __slots__ = ("error_code", "topics", "node_endpoints")
    API_KEY: ClassVar[int | None] = 52
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":52,"type":"response","name":"VoteResponse","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"Topics","type":"[]TopicData","versions":"0+","fields":[{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]PartitionData","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"LeaderId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"LeaderEpoch","type":"int32","versions":"0+"},{"name":"VoteGranted","type":"bool","versions":"0+"}]}]},{"name":"NodeEndpoints","type":"[]NodeEndpoint","versions":"1+","taggedVersions":"1+","tag":0,"fields":[{"name":"NodeId","type":"int32","versions":"1+","mapKey":true,"entityType":"brokerId"},{"name":"Host","type":"string","versions":"1+"},{"name":"Port","type":"uint16","versions":"1+"}]}]}'

    def __init__(
        self,
        *,
        error_code: int = 0,
        topics: list[TopicData] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.topics = [] if topics is EMPTY else topics
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
