"""StreamsGroupHeartbeatRequest, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/StreamsGroupHeartbeatRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


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


class TopicInfo(Struct):
    __slots__ = ("name", "partitions", "replication_factor", "topic_configs")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: int = 0,
        replication_factor: int = 0,
        topic_configs: list[KeyValue] = EMPTY,
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


class Topology(Struct):
    __slots__ = ("epoch", "subtopologies")

    def __init__(
        self,
        *,
        epoch: int = 0,
        subtopologies: list[Subtopology] = EMPTY,
    ) -> None:
        self.epoch = epoch
        self.subtopologies = [] if subtopologies is EMPTY else subtopologies


class TaskIds(Struct):
    __slots__ = ("subtopology_id", "partitions")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.partitions = [] if partitions is EMPTY else partitions


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


class TaskOffset(Struct):
    __slots__ = ("subtopology_id", "partition", "offset")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        partition: int = 0,
        offset: int = 0,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.partition = partition
        self.offset = offset


class StreamsGroupHeartbeatRequest(Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "endpoint_information_epoch", "instance_id", "rack_id", "rebalance_timeout_ms", "topology", "active_tasks", "standby_tasks", "warmup_tasks", "process_id", "user_endpoint", "client_tags", "task_offsets", "task_end_offsets", "shutdown_application")
    API_KEY: ClassVar[int | None] = 88
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":88,"type":"request","listeners":["broker"],"name":"StreamsGroupHeartbeatRequest","validVersions":"0-1","flexibleVersions":"0+","commonStructs":[{"name":"KeyValue","versions":"0+","fields":[{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"string","versions":"0+"}]},{"name":"TopicInfo","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"int32","versions":"0+"},{"name":"ReplicationFactor","type":"int16","versions":"0+"},{"name":"TopicConfigs","type":"[]KeyValue","versions":"0+"}]},{"name":"Endpoint","versions":"0+","fields":[{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]},{"name":"TaskOffset","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partition","type":"int32","versions":"0+"},{"name":"Offset","type":"int64","versions":"0+"}]},{"name":"TaskIds","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}],"fields":[{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"MemberEpoch","type":"int32","versions":"0+"},{"name":"EndpointInformationEpoch","type":"int32","versions":"0+"},{"name":"InstanceId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"RackId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"RebalanceTimeoutMs","type":"int32","versions":"0+","default":-1},{"name":"Topology","type":"Topology","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"Epoch","type":"int32","versions":"0+"},{"name":"Subtopologies","type":"[]Subtopology","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"SourceTopics","type":"[]string","versions":"0+","entityType":"topicName"},{"name":"SourceTopicRegex","type":"[]string","versions":"0+"},{"name":"StateChangelogTopics","type":"[]TopicInfo","versions":"0+"},{"name":"RepartitionSinkTopics","type":"[]string","versions":"0+","entityType":"topicName"},{"name":"RepartitionSourceTopics","type":"[]TopicInfo","versions":"0+"},{"name":"CopartitionGroups","type":"[]CopartitionGroup","versions":"0+","fields":[{"name":"SourceTopics","type":"[]int16","versions":"0+"},{"name":"SourceTopicRegex","type":"[]int16","versions":"0+"},{"name":"RepartitionSourceTopics","type":"[]int16","versions":"0+"}]}]}]},{"name":"ActiveTasks","type":"[]TaskIds","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"StandbyTasks","type":"[]TaskIds","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"WarmupTasks","type":"[]TaskIds","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"ProcessId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"UserEndpoint","type":"Endpoint","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"ClientTags","type":"[]KeyValue","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"TaskOffsets","type":"[]TaskOffset","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"TaskEndOffsets","type":"[]TaskOffset","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"ShutdownApplication","type":"bool","versions":"0+","default":false}]}'

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        endpoint_information_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topology: Topology | None = None,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
        process_id: str | None = None,
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] | None = None,
        task_offsets: list[TaskOffset] | None = None,
        task_end_offsets: list[TaskOffset] | None = None,
        shutdown_application: bool = False,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.endpoint_information_epoch = endpoint_information_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topology = topology
        self.active_tasks = active_tasks
        self.standby_tasks = standby_tasks
        self.warmup_tasks = warmup_tasks
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags = client_tags
        self.task_offsets = task_offsets
        self.task_end_offsets = task_end_offsets
        self.shutdown_application = shutdown_application
