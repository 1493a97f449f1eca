"""CreateTopicsResponse, versions 2 to 7.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/CreateTopicsResponse.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message, Struct


class CreatableTopicConfigs(Struct):
    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive")

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive


class CreatableTopicResult(Struct):
    __slots__ = ("name", "topic_id", "error_code", "error_message", "topic_config_error_code", "num_partitions", "replication_factor", "configs")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = bytes(16),
        error_code: int = 0,
        error_message: str | None = "",
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: list[CreatableTopicConfigs] | None = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message
        self.topic_config_error_code = topic_config_error_code
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.configs = [] if configs is EMPTY else configs


class CreateTopicsResponse(Message):
    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int | None] = 19
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 7
    FLEXIBLE_MIN: ClassVar[int] = 5
    DEFINITION: ClassVar[str] = '{"apiKey":19,"type":"response","name":"CreateTopicsResponse","validVersions":"2-7","flexibleVersions":"5+","fields":[{"name":"ThrottleTimeMs","type":"int32","versions":"2+","ignorable":true},{"name":"Topics","type":"[]CreatableTopicResult","versions":"0+","fields":[{"name":"Name","type":"string","versions":"0+","mapKey":true,"entityType":"topicName"},{"name":"TopicId","type":"uuid","versions":"7+","ignorable":true},{"name":"ErrorCode","type":"int16","versions":"0+"},{"name":"ErrorMessage","type":"string","versions":"1+","nullableVersions":"0+","ignorable":true},{"name":"TopicConfigErrorCode","type":"int16","versions":"5+","tag":0,"taggedVersions":"5+","ignorable":true},{"name":"NumPartitions","type":"int32","versions":"5+","default":"-1","ignorable":true},{"name":"ReplicationFactor","type":"int16","versions":"5+","default":"-1","ignorable":true},{"name":"Configs","type":"[]CreatableTopicConfigs","versions":"5+","nullableVersions":"5+","ignorable":true,"fields":[{"name":"Name","type":"string","versions":"5+"},{"name":"Value","type":"string","versions":"5+","nullableVersions":"5+"},{"name":"ReadOnly","type":"bool","versions":"5+"},{"name":"ConfigSource","type":"int8","versions":"5+","default":"-1","ignorable":true},{"name":"IsSensitive","type":"bool","versions":"5+"}]}]}]}'

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[CreatableTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
