"""ConsumerGroupTargetAssignmentMetadataValue, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/group/ConsumerGroupTargetAssignmentMetadataValue.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    __slots__ = ("assignment_epoch", "assignment_timestamp")
    API_KEY: ClassVar[int | None] = 6
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":6,"type":"coordinator-value","name":"ConsumerGroupTargetAssignmentMetadataValue","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"AssignmentEpoch","versions":"0+","type":"int32"},{"name":"AssignmentTimestamp","versions":"0+","taggedVersions":"0+","tag":0,"type":"int64","default":0,"ignorable":true}]}'

    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
    ) -> None:
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp
