"""StreamsGroupTopologyValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/StreamsGroupTopologyValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicConfig(Struct):
    __slots__ = ("key", "value")

    def __init__(
        self,
        *,
        key: str = "",
        value: str = "",
    ) -> None:
        self.key = key
        self.value = value


class TopicInfo(Struct):
    __slots__ = ("name", "partitions", "replication_factor", "topic_configs")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: int = 0,
        replication_factor: int = 0,
        topic_configs: list[TopicConfig] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.topic_configs = [] if topic_configs is EMPTY else topic_configs


class CopartitionGroup(Struct):
    __slots__ = ("source_topics", "source_topic_regex", "repartition_source_topics")

    def __init__(
        self,
        *,
        source_topics: list[int] = EMPTY,
        source_topic_regex: list[int] = EMPTY,
        repartition_source_topics: list[int] = EMPTY,
    ) -> None:
        self.source_topics = [] if source_topics is EMPTY else source_topics
        self.source_topic_regex = [] if source_topic_regex is EMPTY else source_topic_regex
        self.repartition_source_topics = [] if repartition_source_topics is EMPTY else repartition_source_topics


class Subtopology(Struct):
    __slots__ = ("subtopology_id", "source_topics", "source_topic_regex", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics", "copartition_groups")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        source_topics: list[str] = EMPTY,
        source_topic_regex: list[str] = EMPTY,
        state_changelog_topics: list[TopicInfo] = EMPTY,
        repartition_sink_topics: list[str] = EMPTY,
        repartition_source_topics: list[TopicInfo] = EMPTY,
        copartition_groups: list[CopartitionGroup] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics = [] if source_topics is EMPTY else source_topics
        self.source_topic_regex = [] if source_topic_regex is EMPTY else source_topic_regex
        self.state_changelog_topics = [] if state_changelog_topics is EMPTY else state_changelog_topics
        self.repartition_sink_topics = [] if repartition_sink_topics is EMPTY else repartition_sink_topics
        self.repartition_source_topics = [] if repartition_source_topics is EMPTY else repartition_source_topics
        self.copartition_groups = [] if copartition_groups is EMPTY else copartition_groups


class StreamsGroupTopologyValue(Message):
    __slots__ = ("epoch", "subtopologies")
    API_KEY: ClassVar[int | None] = 23
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":23,"type":"coordinator-value","name":"StreamsGroupTopologyValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TopicConfig","versions":"0+","fields":[{"name":"key","type":"string","versions":"0+"},{"name":"value","type":"string","versions":"0+"}]},{"name":"TopicInfo","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+"},{"name":"Partitions","type":"int32","versions":"0+"},{"name":"ReplicationFactor","type":"int16","versions":"0+"},{"name":"TopicConfigs","type":"[]TopicConfig","versions":"0+"}]}],"fields":[{"name":"Epoch","type":"int32","versions":"0+"},{"name":"Subtopologies","type":"[]Subtopology","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"SourceTopics","type":"[]string","versions":"0+"},{"name":"SourceTopicRegex","type":"[]string","versions":"0+"},{"name":"StateChangelogTopics","type":"[]TopicInfo","versions":"0+"},{"name":"RepartitionSinkTopics","type":"[]string","versions":"0+"},{"name":"RepartitionSourceTopics","type":"[]TopicInfo","versions":"0+"},{"name":"CopartitionGroups","type":"[]CopartitionGroup","versions":"0+","fields":[{"name":"SourceTopics","type":"[]int16","versions":"0+"},{"name":"SourceTopicRegex","type":"[]int16","versions":"0+"},{"name":"RepartitionSourceTopics","type":"[]int16","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        epoch: int = 0,
        subtopologies: list[Subtopology] = EMPTY,
    ) -> None:
        self.epoch = epoch
        self.subtopologies = [] if subtopologies is EMPTY else subtopologies
