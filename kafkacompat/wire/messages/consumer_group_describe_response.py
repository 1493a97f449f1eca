"""ConsumerGroupDescribeResponse, versions 0 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ConsumerGroupDescribeResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartitions(Struct):
    __slots__ = ("topic_id", "topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class Assignment(Struct):
    __slots__ = ("topic_partitions",)

    def __init__(
        self,
        *,
        topic_partitions: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions


class Member(Struct):
    __slots__ = ("member_id", "instance_id", "rack_id", "member_epoch", "client_id", "client_host", "subscribed_topic_names", "subscribed_topic_regex", "assignment", "target_assignment", "member_type")

    def __init__(
        self,
        *,
        member_id: str = "",
        instance_id: str | None = None,
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        subscribed_topic_regex: str | None = None,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        member_type: int = -1,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.assignment = Assignment() if assignment is None else assignment
        self.target_assignment = Assignment() if target_assignment is None else target_assignment
        self.member_type = member_type


class DescribedGroup(Struct):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "group_epoch", "assignment_epoch", "assignor_name", "members", "authorized_operations")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        assignor_name: str = "",
        members: list[Member] = EMPTY,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.assignor_name = assignor_name
        self.members = [] if members is EMPTY else members
        self.authorized_operations = authorized_operations


class ConsumerGroupDescribeResponse(Message):
    __slots__ = ("throttle_time_ms", "groups")
    API_KEY: ClassVar[int | None] = 69
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":69,"type":"response","name":"ConsumerGroupDescribeResponse","validVersions":"0-1","flexibleVersions":"0+","commonStructs":[{"name":"TopicPartitions","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"TopicName","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"0+"}]},{"name":"Assignment","versions":"0+","fields":[{"name":"TopicPartitions","type":"[]TopicPartitions","versions":"0+"}]}],"fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"Groups","type":"[]DescribedGroup","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"GroupId","type":"string","versions":"0+","entityType":"groupId"},{"name":"GroupState","type":"string","versions":"0+"},{"name":"GroupEpoch","type":"int32","versions":"0+"},{"name":"AssignmentEpoch","type":"int32","versions":"0+"},{"name":"AssignorName","type":"string","versions":"0+"},{"name":"Members","type":"[]Member","versions":"0+","fields":[{"name":"MemberId","type":"string","versions":"0+"},{"name":"InstanceId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"RackId","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"MemberEpoch","type":"int32","versions":"0+"},{"name":"ClientId","type":"string","versions":"0+"},{"name":"ClientHost","type":"string","versions":"0+"},{"name":"SubscribedTopicNames","type":"[]string","versions":"0+","entityType":"topicName"},{"name":"SubscribedTopicRegex","type":"string","versions":"0+","nullableVersions":"0+","default":"null"},{"name":"Assignment","type":"Assignment","versions":"0+"},{"name":"TargetAssignment","type":"Assignment","versions":"0+"},{"name":"MemberType","type":"int8","versions":"1+","default":"-1","ignorable":true}]},{"name":"AuthorizedOperations","type":"int32","versions":"0+","default":"-2147483648"}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = [] if groups is EMPTY else groups
