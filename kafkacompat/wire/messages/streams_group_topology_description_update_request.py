"""StreamsGroupTopologyDescriptionUpdateRequest, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/StreamsGroupTopologyDescriptionUpdateRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopologyDescriptionNode(Struct):
    __slots__ = ("name", "node_type", "source_topics", "sink_topic", "stores", "successors")

    def __init__(
        self,
        *,
        name: str = "",
        node_type: int = 0,
        source_topics: list[str] = EMPTY,
        sink_topic: str | None = None,
        stores: list[str] = EMPTY,
        successors: list[str] = EMPTY,
    ) -> None:
        self.name = name
        self.node_type = node_type
        self.source_topics = [] if source_topics is EMPTY else source_topics
        self.sink_topic = sink_topic
        self.stores = [] if stores is EMPTY else stores
        self.successors = [] if successors is EMPTY else successors


class TopologyDescriptionSubtopology(Struct):
    __slots__ = ("subtopology_id", "nodes")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        nodes: list[TopologyDescriptionNode] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.nodes = [] if nodes is EMPTY else nodes


class TopologyDescriptionGlobalStore(Struct):
    __slots__ = ("source", "processor")

    def __init__(
        self,
        *,
        source: TopologyDescriptionNode | None = None,
        processor: TopologyDescriptionNode | None = None,
    ) -> None:
        self.source = TopologyDescriptionNode() if source is None else source
        self.processor = TopologyDescriptionNode() if processor is None else processor


class TopologyDescription(Struct):
    __slots__ = ("subtopologies", "global_stores")

    def __init__(
        self,
        *,
        subtopologies: list[TopologyDescriptionSubtopology] = EMPTY,
        global_stores: list[TopologyDescriptionGlobalStore] = EMPTY,
    ) -> None:
        self.subtopologies = [] if subtopologies is EMPTY else subtopologies
        self.global_stores = [] if global_stores is EMPTY else global_stores


class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    __slots__ = ("group_id", "member_id", "topology_epoch", "topology_description")
    API_KEY: ClassVar[int | None] = 93
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":93,"type":"request","listeners":["broker"],"name":"StreamsGroupTopologyDescriptionUpdateRequest","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TopologyDescription","versions":"0+","fields":[{"name":"Subtopologies","type":"[]TopologyDescriptionSubtopology","versions":"0+"},{"name":"GlobalStores","type":"[]TopologyDescriptionGlobalStore","versions":"0+"}]},{"name":"TopologyDescriptionSubtopology","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Nodes","type":"[]TopologyDescriptionNode","versions":"0+"}]},{"name":"TopologyDescriptionNode","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"NodeType","type":"int8","versions":"0+"},{"name":"SourceTopics","type":"[]string","versions":"0+","entityType":"topicName"},{"name":"SinkTopic","type":"string","versions":"0+","entityType":"topicName","nullableVersions":"0+","default":"null"},{"name":"Stores","type":"[]string","versions":"0+"},{"name":"Successors","type":"[]string","versions":"0+"}]},{"name":"TopologyDescriptionGlobalStore","versions":"0+","fields":[{"name":"Source","type":"TopologyDescriptionNode","versions":"0+"},{"name":"Processor","type":"TopologyDescriptionNode","versions":"0+"}]}],"fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"TopologyEpoch","type":"int32","versions":"0+"},{"name":"TopologyDescription","type":"TopologyDescription","versions":"0+"}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        topology_epoch: int = 0,
        topology_description: TopologyDescription | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.topology_epoch = topology_epoch
        self.topology_description = TopologyDescription() if topology_description is None else topology_description
