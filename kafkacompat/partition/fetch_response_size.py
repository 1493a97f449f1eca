"""The size of a fetch response before it is sent, for the quotas of clients.

It is computed, because encoding a response twice would cost more than everything else that a quota costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.wire.codec import encode_parts
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.primitives import uvarint_size
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from kafkacompat.partition.fetch_session import FetchContext
    from kafkacompat.partition.service import FetchParameters
    from kafkacompat.stepping.jobs import Steps

PREFIX_BYTES = 4
COMPACT_IN_ONE = 126
"""The largest length, or number of elements, whose varint takes one byte."""
COMPACT_IN_TWO = 16_382
"""The largest that takes two."""


def response_size(
    context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
) -> int:
    """Return the bytes of the response with its size prefix, without its header and node endpoints, as Kafka counts them.

    Every fetch of a client with a quota asks. So the usual one, a few records of one partition, is a matter of one sum.
    """
    sizes = sizes_of(parameters.version)
    if len(answers) == 1:
        asked, answer = answers[0]
        records, name = len(answer.records), asked.topic or ""
        if (
            0 < records <= COMPACT_IN_TWO
            and len(name) <= COMPACT_IN_ONE
            and name.isascii()
            and has_only_what_all_have(answer)
        ):
            size = sizes.one + records + (len(name) if sizes.has_names else 0)
            return size + 1 if sizes.is_compact and records > COMPACT_IN_ONE else size
    size = PREFIX_BYTES + sizes.empty
    topics = partitions = 0
    last_name: str | None = None
    last_id: Uuid = ZERO_UUID
    for asked, answer in answers:
        if context.session is not None and not asked.would_tell(answer):
            continue
        if not topics or asked.topic != last_name or asked.topic_id != last_id:
            last_name, last_id = asked.topic, asked.topic_id
            size += sizes.topic
            if sizes.has_names:
                size += sizes.of_name(last_name or "")
            if partitions > COMPACT_IN_ONE:
                size += sizes.of_count(partitions)
            topics += 1
            partitions = 0
        partitions += 1
        records = len(answer.records)
        size += records
        size += sizes.partition if has_only_what_all_have(answer) else _size_but_records(answer, parameters)
        if sizes.is_compact and records > COMPACT_IN_ONE:
            size += uvarint_size(records + 1) - 1
    if partitions > COMPACT_IN_ONE or topics > COMPACT_IN_ONE:
        size += sizes.of_count(partitions) + sizes.of_count(topics)
    return size


def has_only_what_all_have(answer: PartitionData) -> bool:
    return (
        not answer.aborted_transactions
        and answer.diverging_epoch is None
        and answer.current_leader is None
        and answer.snapshot_id is None
    )


def response_size_in_steps(
    context: FetchContext,
    parameters: FetchParameters,
    answers: list[tuple[Any, PartitionData]],
    step: int,
) -> Steps[int]:
    """As `response_size`, some answers at a time. A topic that is divided between two steps counts twice."""
    size = empty = response_size(context, parameters, [])
    for start in range(0, len(answers), step):
        if start:
            yield None
        size += response_size(context, parameters, answers[start : start + step]) - empty
    return size


def _size_but_records(answer: PartitionData, parameters: FetchParameters) -> int:
    version = parameters.version
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[answer])])
    size = sum(map(len, encode_parts(response, version))) - len(answer.records)
    sizes = sizes_of(version)
    if sizes.is_compact:
        size -= uvarint_size(len(answer.records) + 1) - 1
    return size - sizes.empty - sizes.topic


class Sizes(NamedTuple):
    """The bytes of a version's parts: a response without topics, a topic with no name and no partitions, and a
    partition without records."""

    empty: int
    topic: int
    partition: int
    one: int
    """A response with a partition, and the size prefix."""
    is_compact: bool
    """Lengths are varints. The parts count one byte of each."""
    has_names: bool

    def of_name(self, name: str) -> int:
        """What a topic's name adds, in a version with names."""
        size = len(name) if name.isascii() else len(name.encode())
        return size + uvarint_size(size + 1) - 1 if self.is_compact else size

    def of_count(self, elements: int) -> int:
        """What an array's length adds."""
        return uvarint_size(elements + 1) - 1 if self.is_compact and elements > COMPACT_IN_ONE else 0


@remembered
def sizes_of(version: int) -> Sizes:
    def size(*topics: FetchableTopicResponse) -> int:
        return sum(map(len, encode_parts(FetchResponse(responses=list(topics)), version)))

    empty = size()
    topic = size(FetchableTopicResponse())
    partition = size(FetchableTopicResponse(partitions=[PartitionData(records=b"")]))
    is_compact = version >= FetchResponse.FLEXIBLE_MIN
    has_names = size(FetchableTopicResponse(topic="t")) > topic
    one = PREFIX_BYTES + partition
    return Sizes(empty, topic - empty, partition - topic, one, is_compact, has_names)
