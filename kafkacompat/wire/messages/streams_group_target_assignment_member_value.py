"""StreamsGroupTargetAssignmentMemberValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/StreamsGroupTargetAssignmentMemberValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


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


class StreamsGroupTargetAssignmentMemberValue(Message):
    __slots__ = ("active_tasks", "standby_tasks", "warmup_tasks")
    API_KEY: ClassVar[int | None] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":21,"type":"coordinator-value","name":"StreamsGroupTargetAssignmentMemberValue","validVersions":"0","flexibleVersions":"0+","commonStructs":[{"name":"TaskIds","versions":"0+","fields":[{"name":"SubtopologyId","type":"string","versions":"0+"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}],"fields":[{"name":"ActiveTasks","versions":"0+","type":"[]TaskIds"},{"name":"StandbyTasks","versions":"0+","type":"[]TaskIds"},{"name":"WarmupTasks","versions":"0+","type":"[]TaskIds"}]}'

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
