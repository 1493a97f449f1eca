"""The cost of a request with many elements, counted in elements and pauses, never in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacompat.api.dispatch import ELEMENTS_MAX
from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.wire._tests.test_codecs_agree import in_steps
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.codec import encode, message_classes, specification, steps_decoder
from kafkacompat.wire.codec_source import STEP_UNITS
from kafkacompat.wire.definition import FIXED_TYPES, FieldSpec
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
)
from kafkacompat.wire.messages.alter_partition_request import PartitionData as AlteredPartition
from kafkacompat.wire.messages.alter_partition_request import TopicData as AlteredTopic
from kafkacompat.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.primitives import ARRAY_MAX, TAGS_MAX, write_uvarint

MANY = 20_000
PARTITIONS = 50_000
NAME = "a topic whose name is of an ordinary length"


def arrays() -> Iterator[tuple[type[Message], FieldSpec]]:
    """Yield every top-level array of the newest version of every served request."""
    for key in (*BROKER_APIS.by_key, *(CONTROLLER_APIS.by_key.keys() - BROKER_APIS.by_key.keys())):
        cls = request_class(key)
        for field in specification(cls).root.plain(cls.MAX_VERSION):
            if field.is_array:
                yield cls, field


@pytest.mark.parametrize(
    ("cls", "field"), list(arrays()), ids=lambda value: getattr(value, "__name__", None) or value.name
)
def test_every_array_is_counted_and_decoded_in_steps(cls: type[Message], field: FieldSpec) -> None:
    if field.struct is not None:
        element: Any = message_classes(cls)[field.struct.name]()
    else:
        element = {"string": "", "bytes": b"", "uuid": bytes(16)}.get(field.kind, 0)
    message: Any = cls()
    setattr(message, field.name, [element] * MANY)
    data = encode(message, cls.MAX_VERSION)
    (found, _), pauses = in_steps(cls, cls.MAX_VERSION, data)
    assert len(getattr(found, field.name)) == MANY
    if field.kind not in FIXED_TYPES:
        assert pauses >= MANY // STEP_UNITS - 1
    with pytest.raises(WireError, match="more than 19999 elements"):
        in_steps(cls, cls.MAX_VERSION, data, MANY - 1)


def test_too_many_elements_are_refused_before_they_are_decoded() -> None:
    data = (ARRAY_MAX).to_bytes(4, "big") + b"\0\0" * ARRAY_MAX
    with pytest.raises(WireError, match="elements"):
        next(steps_decoder(MetadataRequest, 4)(data, 0, ELEMENTS_MAX))


def test_an_array_has_so_many_elements_as_in_kafka_whatever_is_set() -> None:
    every = 1 << 30
    for count in (ARRAY_MAX, ARRAY_MAX + 1):
        listed = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0] * count)
        numbers = encode(ListPartitionReassignmentsRequest(topics=[listed]), 0)
        names = count.to_bytes(4, "big") + b"\0\0" * count
        if count > ARRAY_MAX:
            for cls, version, data in (
                (ListPartitionReassignmentsRequest, 0, numbers),
                (MetadataRequest, 1, names),
            ):
                with pytest.raises(WireError, match="array of length 1000001"):
                    in_steps(cls, version, data, every)
        else:
            (found, _), _ = in_steps(ListPartitionReassignmentsRequest, 0, numbers, every)
            assert len(found.topics[0].partition_indexes) == count


def test_tags_are_bounded_in_a_section_and_paid_for() -> None:
    tags = bytearray()
    write_uvarint(tags, TAGS_MAX + 1)
    tags += b"\5\0" * (TAGS_MAX + 1)
    base = encode(MetadataRequest(topics=None), 9)[:-1]
    with pytest.raises(WireError, match="tagged fields"):
        in_steps(MetadataRequest, 9, base + tags)
    of_element = bytearray(b"\2a")
    write_uvarint(of_element, 1000)
    of_element += b"\5\0" * 1000
    request = bytearray()
    write_uvarint(request, 101)
    request += of_element * 100 + b"\0\0\0\0"
    assert in_steps(MetadataRequest, 9, bytes(request))[1] >= 100_000 // STEP_UNITS // 2


def elements(message: Any) -> int:
    """Count the elements of all arrays in a message."""
    if isinstance(message, list):
        return len(message) + sum(map(elements, message))
    names = getattr(type(message), "__slots__", ())
    return sum(elements(getattr(message, name)) for name in names)


@pytest.mark.costly
@pytest.mark.parametrize("topics", [10, 10_000])
def test_requests_of_fifty_thousand_partitions_fit_the_bounds(topics: int) -> None:
    """The bounds leave room to spare."""
    of_one = range(PARTITIONS // topics)
    names = [f"{NAME} {index}" for index in range(topics)]
    requests: list[tuple[Any, int]] = [
        (
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        assignments=[
                            CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3])
                            for index in of_one
                        ],
                    )
                    for name in names
                ]
            ),
            7,
        ),
        (
            AlterPartitionRequest(
                topics=[
                    AlteredTopic(
                        partitions=[
                            AlteredPartition(
                                partition_index=index,
                                new_isr_with_epochs=[BrokerState(broker_id=each) for each in (1, 2, 3)],
                            )
                            for index in of_one
                        ]
                    )
                    for _ in names
                ]
            ),
            3,
        ),
        (
            FetchRequest(
                topics=[
                    FetchTopic(topic=name, partitions=[FetchPartition(partition=index) for index in of_one])
                    for name in names
                ]
            ),
            12,
        ),
        (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[ListOffsetsPartition(partition_index=index) for index in of_one],
                    )
                    for name in names
                ]
            ),
            7,
        ),
        (
            OffsetCommitRequest(
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=index, committed_metadata="m" * 40)
                            for index in of_one
                        ],
                    )
                    for name in names
                ]
            ),
            9,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name=name,
                        configs=[
                            AlterableConfig(name="message.timestamp.after.max.ms", value="3600000")
                            for _ in range(10)
                        ],
                    )
                    for name in names
                ]
            ),
            1,
        ),
    ]
    for request, version in requests:
        size = len(encode(request, version))
        assert size * 2 < NetworkSettings().socket_request_without_records_max_bytes, type(request).__name__
        assert elements(request) * 1.1 < ELEMENTS_MAX, type(request).__name__
