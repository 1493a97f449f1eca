"""The answer to a plain Produce: one pass over the request, and an answer that is packed at once.

A request takes this way if nobody's rights need a look, records/plain_produce has read it, and its partitions take all batches
as they are. In any other case this module does nothing, before any effect, and produce.py handles the decoded request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct as Layout
from typing import TYPE_CHECKING

from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.handler import NoResponse
from kafkacompat.api.produce_answers import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    Answer,
    answer_of,
    waits_for,
)
from kafkacompat.api.route import EncodedAnswer
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import TopicPartition
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.produce_response import NodeEndpoint, ProduceResponse, TopicProduceResponse
from kafkacompat.wire.primitives import write_uvarint

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.partition.service import ProduceResult
    from kafkacompat.records.plain_produce import PlainProduce, TopicFacts

    PlainAnswer = Answer | EncodedAnswer | Deferred[ProduceResponse | EncodedAnswer]

FIRST_PACKED_VERSION = 5
FIRST_VERSION_WITH_MESSAGES = 8
FIRST_FLEXIBLE_VERSION = 9
COUNT = Layout(">i")
NAME_SIZE = Layout(">h")
THROTTLE_TIME = bytes(4)
NO_TAGS = b"\0"


FIELDS = Layout(">ihqqq")
"""Of a partition: index, error code, base offset, log append time and log start offset."""
NO_MESSAGES = COUNT.pack(0) + b"\xff\xff"
NO_COMPACT_MESSAGES = b"\1\0" + NO_TAGS


def append_plain(node: Node, context: RequestContext, request: PlainProduce) -> PlainAnswer | None:
    """None, before any effect, if the request must take the other way."""
    appended = node.partitions.append_plain(request)
    if appended is None:
        return None
    results, ends, are_replicated = appended
    if request.acks == 0:
        return NoResponse.SILENT if len(ends) == len(results) else NoResponse.CLOSE
    # Not the request itself, because while the answer waits, the receive buffer is used again.
    topics, version = request.topics, request.version
    if are_replicated:
        flushed = node.partitions.when_flushed(ends)
        waits = [] if flushed is None else [flushed]
    else:
        waits = waits_for(node, request, ends)
    if not waits:
        return _answer(node, context, version, topics, results)

    def settle(outcomes: list[Mapping[TopicPartition, ErrorCode]]) -> ProduceResponse | EncodedAnswer:
        of_partition = dict(zip(ends, [each for each in results if each.error is NONE], strict=True))
        for errors in outcomes:
            for partition, error in errors.items():
                if error is not NONE:
                    of_partition[partition].error = error
        return _answer(node, context, version, topics, results)

    return gather(waits).then(settle)


def _answer(
    node: Node,
    context: RequestContext,
    version: int,
    topics: Sequence[TopicFacts],
    results: Sequence[ProduceResult],
) -> ProduceResponse | EncodedAnswer:
    """The response to a request for these topics, with a result for each of their partitions in turn."""
    if version < FIRST_PACKED_VERSION or context.throttling is not None:
        return _message(node, context, version, topics, results)
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    rest = NO_COMPACT_MESSAGES if is_flexible else NO_MESSAGES
    if version < FIRST_VERSION_WITH_MESSAGES:
        rest = b""
    pack = FIELDS.pack
    out = bytearray()
    write_count = _write_compact_count if is_flexible else _write_count
    write_count(out, len(topics))
    left = iter(results)
    for name, partitions in topics:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            out += name
        else:
            encoded = name.encode()
            if is_flexible:
                write_uvarint(out, len(encoded) + 1)
            else:
                out += NAME_SIZE.pack(len(encoded))
            out += encoded
        write_count(out, len(partitions))
        # zip asks the partitions first, so that it takes no result when they end.
        for facts, result in zip(partitions, left, strict=False):
            if result.error is not NONE:
                return _message(node, context, version, topics, results)
            out += pack(facts[0], 0, result.base_offset, result.log_append_time_ms, result.log_start_offset)
            out += rest
        if is_flexible:
            out += NO_TAGS
    out += THROTTLE_TIME
    if is_flexible:
        out += NO_TAGS
    return EncodedAnswer([out], {NONE: len(results)})


def _write_count(out: bytearray, count: int) -> None:
    out += COUNT.pack(count)


def _write_compact_count(out: bytearray, count: int) -> None:
    write_uvarint(out, count + 1)


def _message(
    node: Node,
    context: RequestContext,
    version: int,
    topics: Sequence[TopicFacts],
    results: Sequence[ProduceResult],
) -> ProduceResponse:
    leaders = set()
    left = iter(results)
    responses = []
    for name, partitions in topics:
        answers = []
        for facts, result in zip(partitions, left, strict=False):
            answer, leader = answer_of(facts[0], result, version)
            answers.append(answer)
            if leader >= 0:
                leaders.add(leader)
        response = TopicProduceResponse(partition_responses=answers)
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            response.topic_id = name
        else:
            response.name = name
        responses.append(response)
    message = ProduceResponse(responses=responses)
    if leaders:
        message.node_endpoints = endpoints_of(node.image, leaders, context.listener_name, NodeEndpoint)
    return message
