"""ConsumerGroupCurrentMemberAssignmentValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupCurrentMemberAssignmentValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TopicPartitions(Struct):
    __slots__ = ("topic_id", "partitions", "assignment_epochs")

    def __init__(
        self,
        *,
        topic_id: bytes = bytes(16),
        partitions: list[int] = EMPTY,
        assignment_epochs: list[int] | None = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.assignment_epochs = [] if assignment_epochs is EMPTY else assignment_epochs


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    __slots__ = ("member_epoch", "previous_member_epoch", "state", "assigned_partitions", "partitions_pending_revocation")
    API_KEY: ClassVar[int | None] = 8
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":8,"type":"coordinator-value","name":"ConsumerGroupCurrentMemberAssignmentValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TopicPartitions","versions":"0+","fields":[{"name":"TopicId","type":"uuid","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"},{"name":"AssignmentEpochs","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":0,"type":"[]int32","default":null}]}],"fields":[{"name":"MemberEpoch","versions":"0+","type":"int32"},{"name":"PreviousMemberEpoch","versions":"0+","type":"int32"},{"name":"State","versions":"0+","type":"int8"},{"name":"AssignedPartitions","versions":"0+","type":"[]TopicPartitions"},{"name":"PartitionsPendingRevocation","versions":"0+","type":"[]TopicPartitions"}]}'

    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[TopicPartitions] = EMPTY,
        partitions_pending_revocation: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
        self.partitions_pending_revocation = [] if partitions_pending_revocation is EMPTY else partitions_pending_revocation
