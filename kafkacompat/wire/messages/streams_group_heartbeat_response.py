"""StreamsGroupHeartbeatResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/StreamsGroupHeartbeatResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class Status(Struct):
    __slots__ = ("status_code", "status_detail")

    def __init__(
        self,
        *,
        status_code: int = 0,
        status_detail: str = "",
    ) -> None:
        self.status_code = status_code
        self.status_detail = status_detail


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


class TopicPartition(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class EndpointToPartitions(Struct):
    __slots__ = ("user_endpoint", "active_partitions", "standby_partitions")

    def __init__(
        self,
        *,
        user_endpoint: Endpoint | None = None,
        active_partitions: list[TopicPartition] = EMPTY,
        standby_partitions: list[TopicPartition] = EMPTY,
    ) -> None:
        self.user_endpoint = Endpoint() if user_endpoint is None else user_endpoint
        self.active_partitions = [] if active_partitions is EMPTY else active_partitions
        self.standby_partitions = [] if standby_partitions is EMPTY else standby_partitions


class StreamsGroupHeartbeatResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "member_id", "member_epoch", "heartbeat_interval_ms", "acceptable_recovery_lag_legacy", "task_offset_interval_ms", "acceptable_recovery_lag", "status", "active_tasks", "standby_tasks", "warmup_tasks", "topology_description_required", "endpoint_information_epoch", "partitions_by_user_endpoint")
    API_KEY: ClassVar[int | None] = 88
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":88,"type":"response","name":"StreamsGroupHeartbeatResponse","validVersions":"0-1","flexibleVersions":"0+","commonStructs":[{"name":"Status","versions":"0+","fields":[{"name":"StatusCode","type":"int8","versions":"0+"},{"name":"StatusDetail","type":"string","versions":"0+"}]},{"name":"TopicPartition","versions":"0+","fields":[{"name":"Topic","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"TaskIds","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"Endpoint","versions":"0+","fields":[{"name":"Host","type":"string","versions":"0+"},{"name":"Port","type":"uint16","versions":"0+"}]}],"fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"MemberId","type":"string","versions":"0+"},{"name":"MemberEpoch","type":"int32","versions":"0+"},{"name":"HeartbeatIntervalMs","type":"int32","versions":"0+"},{"name":"AcceptableRecoveryLagLegacy","type":"int32","versions":"0"},{"name":"TaskOffsetIntervalMs","type":"int32","versions":"0+"},{"name":"AcceptableRecoveryLag","type":"int64","versions":"1+","default":"-1","ignorable":true},{"name":"Status","type":"[]Status","versions":"0+","nullableVersions":"0+"},{"name":"ActiveTasks","type":"[]TaskIds","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"StandbyTasks","type":"[]TaskIds","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"WarmupTasks","type":"[]TaskIds","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"TopologyDescriptionRequired","type":"bool","versions":"1+","default":"false"},{"name":"EndpointInformationEpoch","type":"int32","versions":"0+"},{"name":"PartitionsByUserEndpoint","type":"[]EndpointToPartitions","versions":"0+","nullableVersions":"0+","default":"null","fields":[{"name":"UserEndpoint","type":"Endpoint","versions":"0+"},{"name":"ActivePartitions","type":"[]TopicPartition","versions":"0+"},{"name":"StandbyPartitions","type":"[]TopicPartition","versions":"0+"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str = "",
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        acceptable_recovery_lag_legacy: int = 0,
        task_offset_interval_ms: int = 0,
        acceptable_recovery_lag: int = -1,
        status: list[Status] | None = EMPTY,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
        topology_description_required: bool = False,
        endpoint_information_epoch: int = 0,
        partitions_by_user_endpoint: list[EndpointToPartitions] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.acceptable_recovery_lag_legacy = acceptable_recovery_lag_legacy
        self.task_offset_interval_ms = task_offset_interval_ms
        self.acceptable_recovery_lag = acceptable_recovery_lag
        self.status = [] if status is EMPTY else status
        self.active_tasks = active_tasks
        self.standby_tasks = standby_tasks
        self.warmup_tasks = warmup_tasks
        self.topology_description_required = topology_description_required
        self.endpoint_information_epoch = endpoint_information_epoch
        self.partitions_by_user_endpoint = partitions_by_user_endpoint
