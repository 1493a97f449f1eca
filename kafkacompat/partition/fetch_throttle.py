"""The size of a fetch response before it is sent, and the empty response to a throttled fetch.

Nothing is remembered of a response that may not be sent: the session stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.partition.sessions import INVALID_SESSION_ID
from kafkacompat.wire.codec import encode_parts
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.partition.sessions import FetchContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.fetch_response import PartitionData

PREFIX_BYTES = 4


def response_size(
    context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
) -> int:
    """Return the bytes of the response with its size prefix, without its header and node endpoints, as Kafka counts them."""
    return PREFIX_BYTES + _encoded_size(context, parameters, answers)


def response_size_in_steps(
    context: FetchContext,
    parameters: FetchParameters,
    answers: list[tuple[Any, PartitionData]],
    step: int,
) -> Steps[int]:
    """As `response_size`, some answers at a time. A topic that is divided between two steps counts twice."""
    empty = _encoded_size(context, parameters, [])
    size = PREFIX_BYTES + empty
    for start in range(0, len(answers), step):
        if start:
            yield None
        size += _encoded_size(context, parameters, answers[start : start + step]) - empty
    return size


def _encoded_size(
    context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
) -> int:
    topics: list[FetchableTopicResponse] = []
    last_name: str | None = None
    last_id: Uuid = ZERO_UUID
    for asked, answer in answers:
        if context.session is not None and not asked.would_tell(answer):
            continue
        if not topics or asked.topic != last_name or asked.topic_id != last_id:
            last_name, last_id = asked.topic, asked.topic_id
            topics.append(FetchableTopicResponse(topic=last_name or "", topic_id=last_id))
        topics[-1].partitions.append(answer)
    return sum(map(len, encode_parts(FetchResponse(responses=topics), parameters.version)))


def throttled_answer(
    context: FetchContext, parameters: FetchParameters, size_bytes: int
) -> FetchResponse | None:
    """Return the empty response if a response of this size is throttled. A session is kept, and none is made."""
    throttle_ms = 0 if parameters.throttle is None else parameters.throttle(size_bytes)
    if not throttle_ms:
        return None
    session_id = INVALID_SESSION_ID if context.session is None else context.session.id
    return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)
