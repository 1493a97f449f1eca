"""AlterReplicaLogDirsRequest, versions 1 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/AlterReplicaLogDirsRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class AlterReplicaLogDirTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterReplicaLogDir(Struct):
    __slots__ = ("path", "topics")

    def __init__(
        self,
        *,
        path: str = "",
        topics: list[AlterReplicaLogDirTopic] = EMPTY,
    ) -> None:
        self.path = path
        self.topics = [] if topics is EMPTY else topics


class AlterReplicaLogDirsRequest(Message):
    __slots__ = ("dirs",)
    API_KEY: ClassVar[int | None] = 34
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":34,"type":"request","listeners":["broker"],"name":"AlterReplicaLogDirsRequest","validVersions":"1-2","flexibleVersions":"2+","fields":[{"name":"Dirs","type":"[]AlterReplicaLogDir","versions":"0+","fields":[{"name":"Path","type":"string","versions":"0+","mapKey":true},{"name":"Topics","type":"[]AlterReplicaLogDirTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"Partitions","type":"[]int32","versions":"0+"}]}]}]}'

    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDir] = EMPTY,
    ) -> None:
        self.dirs = [] if dirs is EMPTY else dirs
