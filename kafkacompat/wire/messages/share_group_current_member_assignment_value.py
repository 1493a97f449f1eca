"""ShareGroupCurrentMemberAssignmentValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ShareGroupCurrentMemberAssignmentValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartitions(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareGroupCurrentMemberAssignmentValue(Message):
    __slots__ = ("member_epoch", "previous_member_epoch", "state", "assigned_partitions")
    API_KEY: ClassVar[int | None] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":14,"type":"coordinator-value","name":"ShareGroupCurrentMemberAssignmentValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TopicPartitions","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}],"fields":[{"name":"MemberEpoch","versions":"0+","type":"int32"},{"name":"PreviousMemberEpoch","versions":"0+","type":"int32"},{"name":"State","versions":"0+","type":"int8"},{"name":"AssignedPartitions","versions":"0+","type":"[]TopicPartitions"}]}'

    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
