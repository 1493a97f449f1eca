"""StreamsGroupDescribeResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/StreamsGroupDescribeResponse.json."""

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


class Subtopology(Struct):
    __slots__ = ("subtopology_id", "source_topics", "repartition_sink_topics", "state_changelog_topics", "repartition_source_topics")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        source_topics: list[str] = EMPTY,
        repartition_sink_topics: list[str] = EMPTY,
        state_changelog_topics: list[TopicInfo] = EMPTY,
        repartition_source_topics: list[TopicInfo] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics = [] if source_topics is EMPTY else source_topics
        self.repartition_sink_topics = [] if repartition_sink_topics is EMPTY else repartition_sink_topics
        self.state_changelog_topics = [] if state_changelog_topics is EMPTY else state_changelog_topics
        self.repartition_source_topics = [] if repartition_source_topics is EMPTY else repartition_source_topics


class Topology(Struct):
    __slots__ = ("epoch", "subtopologies")

    def __init__(
        self,
        *,
        epoch: int = 0,
        subtopologies: list[Subtopology] | None = None,
    ) -> None:
        self.epoch = epoch
        self.subtopologies = subtopologies


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


class Assignment(Struct):
    __slots__ = ("active_tasks", "standby_tasks", "warmup_tasks")

    def __init__(
        self,
        *,
        active_tasks: list[TaskIds] = EMPTY,
        standby_tasks: list[TaskIds] = EMPTY,
        warmup_tasks: list[TaskIds] = EMPTY,
    ) -> None:
        self.active_tasks = [] if active_tasks is EMPTY else active_tasks
        self.standby_tasks = [] if standby_tasks is EMPTY else standby_tasks
        self.warmup_tasks = [] if warmup_tasks is EMPTY else warmup_tasks


class Member(Struct):
    __slots__ = ("member_id", "member_epoch", "instance_id", "rack_id", "client_id", "client_host", "topology_epoch", "process_id", "user_endpoint", "client_tags", "task_offsets", "task_end_offsets", "assignment", "target_assignment", "is_classic")

    def __init__(
        self,
        *,
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        topology_epoch: int = 0,
        process_id: str = "",
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] = EMPTY,
        task_offsets: list[TaskOffset] = EMPTY,
        task_end_offsets: list[TaskOffset] = EMPTY,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        is_classic: bool = False,
    ) -> None:
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.topology_epoch = topology_epoch
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags = [] if client_tags is EMPTY else client_tags
        self.task_offsets = [] if task_offsets is EMPTY else task_offsets
        self.task_end_offsets = [] if task_end_offsets is EMPTY else task_end_offsets
        self.assignment = Assignment() if assignment is None else assignment
        self.target_assignment = Assignment() if target_assignment is None else target_assignment
        self.is_classic = is_classic


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


class DescribedGroup(Struct):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "group_epoch", "assignment_epoch", "topology", "members", "authorized_operations", "topology_description", "topology_description_status", "assignor_name")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        topology: Topology | None = None,
        members: list[Member] = EMPTY,
        authorized_operations: int = -2147483648,
        topology_description: TopologyDescription | None = None,
        topology_description_status: int = 0,
        assignor_name: str | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.topology = topology
        self.members = [] if members is EMPTY else members
        self.authorized_operations = authorized_operations
        self.topology_description = topology_description
        self.topology_description_status = topology_description_status
        self.assignor_name = assignor_name


class StreamsGroupDescribeResponse(Message):
    __slots__ = ("throttle_time_ms", "groups")
    API_KEY: ClassVar[int | None] = 89
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":89,"type":"response","name":"StreamsGroupDescribeResponse","validVersions":"0-1","flexibleVersions":"0+","commonStructs":[{"name":"Endpoint","versions":"0+","fields":[{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]},{"name":"TaskOffset","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partition","type":"int32","versions":"0+"},{"name":"Offset","type":"int64","versions":"0+"}]},{"name":"Assignment","versions":"0+","fields":[{"name":"ActiveTasks","type":"[]TaskIds","versions":"0+"},{"name":"StandbyTasks","type":"[]TaskIds","versions":"0+"},{"name":"WarmupTasks","type":"[]TaskIds","versions":"0+"}]},{"name":"TaskIds","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"KeyValue","versions":"0+","fields":[{"name":"Key","type":"string","versions":"0+"},{"name":"Value","type":"string","versions":"0+"}]},{"name":"TopicInfo","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"int32","versions":"0+"},{"name":"ReplicationFactor","type":"int16","versions":"0+"},{"name":"TopicConfigs","type":"[]KeyValue","versions":"0+"}]},{"name":"TopologyDescription","versions":"1+","fields":[{"name":"Subtopologies","type":"[]TopologyDescriptionSubtopology","versions":"1+"},{"name":"GlobalStores","type":"[]TopologyDescriptionGlobalStore","versions":"1+"}]},{"name":"TopologyDescriptionSubtopology","versions":"1+","fields":[{"name":"SubtopologyId","type":"string","versions":"1+"},{"name":"Nodes","type":"[]TopologyDescriptionNode","versions":"1+"}]},{"name":"TopologyDescriptionNode","versions":"1+","fields":[{"name":"Name","type":"string","versions":"1+"},{"name":"NodeType","type":"int8","versions":"1+"},{"name":"SourceTopics","type":"[]string","versions":"1+","entityType":"topicName"},{"name":"SinkTopic","type":"string","versions":"1+","entityType":"topicName","nullableVersions":"1+","default":"null"},{"name":"Stores","type":"[]string","versions":"1+"},{"name":"Successors","type":"[]string","versions":"1+"}]},{"name":"TopologyDescriptionGlobalStore","versions":"1+","fields":[{"name":"Source","type":"TopologyDescriptionNode","versions":"1+"},{"name":"Processor","type":"TopologyDescriptionNode","versions":"1+"}]}],"fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Groups","type":"[]DescribedGroup","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"GroupState","type":"string","versions":"0+"},{"name":"GroupEpoch","type":"int32","versions":"0+"},{"name":"AssignmentEpoch","type":"int32","versions":"0+"},{"name":"Topology","type":"Topology","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"Epoch","type":"int32","versions":"0+"},{"name":"Subtopologies","type":"[]Subtopology","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"SourceTopics","type":"[]string","versions":"0+","entityType":"topicName"},{"name":"RepartitionSinkTopics","type":"[]string","versions":"0+","entityType":"topicName"},{"name":"StateChangelogTopics","type":"[]TopicInfo","versions":"0+"},{"name":"RepartitionSourceTopics","type":"[]TopicInfo","versions":"0+"}]}]},{"name":"Members","type":"[]Member","versions":"0+","fields":[{"name":"MemberId","type":"string","versions":"0+"},{"name":"MemberEpoch","type":"int32","versions":"0+"},{"name":"InstanceId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"RackId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"ClientId","type":"string","versions":"0+"},{"name":"ClientHost","type":"string","versions":"0+"},{"name":"TopologyEpoch","type":"int32","versions":"0+"},{"name":"ProcessId","type":"string","versions":"0+"},{"name":"UserEndpoint","type":"Endpoint","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"ClientTags","type":"[]KeyValue","versions":"0+"},{"name":"TaskOffsets","type":"[]TaskOffset","versions":"0+"},{"name":"TaskEndOffsets","type":"[]TaskOffset","versions":"0+"},{"name":"Assignment","type":"Assignment","versions":"0+"},{"name":"TargetAssignment","type":"Assignment","versions":"0+"},{"name":"IsClassic","type":"bool","versions":"0+"}]},{"name":"AuthorizedOperations","type":"int32","versions":"0+","default":"-2147483648"},{"name":"TopologyDescription","type":"TopologyDescription","versions":"1+","nullableVersions":"1+","default":"null"},{"name":"TopologyDescriptionStatus","type":"int8","versions":"1+","default":"0"},{"name":"AssignorName","type":"string","versions":"1+","nullableVersions":"1+","default":"null","ignorable":true}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = [] if groups is EMPTY else groups
