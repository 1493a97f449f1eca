"""StreamsGroupCurrentMemberAssignmentValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/StreamsGroupCurrentMemberAssignmentValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class TaskIds(Struct):
    __slots__ = ("subtopology_id", "partitions", "assignment_epochs")

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        partitions: list[int] = EMPTY,
        assignment_epochs: list[int] | None = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.assignment_epochs = [] if assignment_epochs is EMPTY else assignment_epochs


class StreamsGroupCurrentMemberAssignmentValue(Message):
    __slots__ = ("member_epoch", "previous_member_epoch", "state", "active_tasks", "standby_tasks", "warmup_tasks", "active_tasks_pending_revocation", "standby_tasks_pending_revocation", "warmup_tasks_pending_revocation")
    API_KEY: ClassVar[int | None] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":22,"type":"coordinator-value","name":"StreamsGroupCurrentMemberAssignmentValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TaskIds","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"},{"name":"AssignmentEpochs","versions":"0+","nullableVersions":"0+","taggedVersions":"0+","tag":0,"type":"[]int32","default":null}]}],"fields":[{"name":"MemberEpoch","versions":"0+","type":"int32"},{"name":"PreviousMemberEpoch","versions":"0+","type":"int32"},{"name":"State","versions":"0+","type":"int8"},{"name":"ActiveTasks","versions":"0+","type":"[]TaskIds"},{"name":"StandbyTasks","versions":"0+","type":"[]TaskIds"},{"name":"WarmupTasks","versions":"0+","type":"[]TaskIds"},{"name":"ActiveTasksPendingRevocation","versions":"0+","type":"[]TaskIds"},{"name":"StandbyTasksPendingRevocation","versions":"0+","type":"[]TaskIds"},{"name":"WarmupTasksPendingRevocation","versions":"0+","type":"[]TaskIds"}]}'

    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        active_tasks: list[TaskIds] = EMPTY,
        standby_tasks: list[TaskIds] = EMPTY,
        warmup_tasks: list[TaskIds] = EMPTY,
        active_tasks_pending_revocation: list[TaskIds] = EMPTY,
        standby_tasks_pending_revocation: list[TaskIds] = EMPTY,
        warmup_tasks_pending_revocation: list[TaskIds] = EMPTY,
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.active_tasks = [] if active_tasks is EMPTY else active_tasks
        self.standby_tasks = [] if standby_tasks is EMPTY else standby_tasks
        self.warmup_tasks = [] if warmup_tasks is EMPTY else warmup_tasks
        self.active_tasks_pending_revocation = [] if active_tasks_pending_revocation is EMPTY else active_tasks_pending_revocation
        self.standby_tasks_pending_revocation = [] if standby_tasks_pending_revocation is EMPTY else standby_tasks_pending_revocation
        self.warmup_tasks_pending_revocation = [] if warmup_tasks_pending_revocation is EMPTY else warmup_tasks_pending_revocation
