"""DescribeLogDirsResponse, versions 1 to 5.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/DescribeLogDirsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class DescribeLogDirsPartition(Struct):
    __slots__ = ("partition_index", "partition_size", "offset_lag", "is_future_key")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_size: int = 0,
        offset_lag: int = 0,
        is_future_key: bool = False,
    ) -> None:
        self.partition_index = partition_index
        self.partition_size = partition_size
        self.offset_lag = offset_lag
        self.is_future_key = is_future_key


class DescribeLogDirsTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DescribeLogDirsPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeLogDirsResult(Struct):
    __slots__ = ("error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned")

    def __init__(
        self,
        *,
        error_code: int = 0,
        log_dir: str = "",
        topics: list[DescribeLogDirsTopic] = EMPTY,
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        self.error_code = error_code
        self.log_dir = log_dir
        self.topics = [] if topics is EMPTY else topics
        self.total_bytes = total_bytes
        self.usable_bytes = usable_bytes
        self.is_cordoned = is_cordoned


class DescribeLogDirsResponse(Message):
    __slots__ = ("throttle_time_ms", "error_code", "results")
    API_KEY: ClassVar[int | None] = 35
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_MIN: ClassVar[int] = 2
    DEFINITION: ClassVar[str] = '{"apiKey":35,"type":"response","name":"DescribeLogDirsResponse","validVersions":"1-5","flexibleVersions":"2+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"0+"},{"name":"ErrorCode","type":"int16","versions":"3+","ignorable":true},{"name":"Results","type":"[]DescribeLogDirsResult","versions":"0+","fields":[{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"LogDir","type":"string","versions":"0+"},{"name":"Topics","type":"[]DescribeLogDirsTopic","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","entityType":"topicName"},{"name":"Partitions","type":"[]DescribeLogDirsPartition","versions":"0+","fields":[{"name":"PartitionIndex","type":"int32","versions":"0+"},{"name":"PartitionSize","type":"int64","versions":"0+"},{"name":"OffsetLag","type":"int64","versions":"0+"},{"name":"IsFutureKey","type":"bool","versions":"0+"}]}]},{"name":"TotalBytes","type":"int64","versions":"4+","ignorable":true,"default":"-1"},{"name":"UsableBytes","type":"int64","versions":"4+","ignorable":true,"default":"-1"},{"name":"IsCordoned","type":"bool","versions":"5+","ignorable":true,"default":false}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results = [] if results is EMPTY else results
