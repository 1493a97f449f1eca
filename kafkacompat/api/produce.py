"""Produce (key 0): append records to partitions, and answer when acks is satisfied.

A plain Produce is appended in one pass, and its answer packed at once: nobody's rights need a look, records/plain_produce has read
it, and its partitions take all batches as they are. Any other request takes the other way from its beginning, before any effect.
There, topic ids become names, whole requests are refused, and partitions are appended in portions, with a turn of the loop
between two portions. The answer keeps the order of the request.

records/validate checks batches, partition/ knows the leaders, and transactional_produce checks transactions. ApiVersions advertises
versions from 0 on. A request of version 0-2 closes the connection. KIP-98, KIP-951 (current leader), KIP-516 (topic ids from
version 13).
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.access import Access, access_of
from kafkacompat.api.handler import Handler, NoResponse
from kafkacompat.api.route import EncodedAnswer
from kafkacompat.api.transactional_produce import ProducerAndSequence, Verdicts, judge, producer_of
from kafkacompat.controller.image import endpoints_of
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import TopicPartition
from kafkacompat.partition.service import ProduceResult
from kafkacompat.records import plain_produce
from kafkacompat.records.plain_produce import NOT_TRIED, PlainProduce
from kafkacompat.records.validate import PARTITION_UNITS, Allowance, TooMuchAtOnce, refusal_at_sight
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns, pause
from kafkacompat.wire.codec import decoder
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.produce_request import ProduceRequest
from kafkacompat.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.partition.service import PlainAppends, PlainResult
    from kafkacompat.ports import Buffer
    from kafkacompat.ports.dispatcher import Reply
    from kafkacompat.records.plain_produce import TopicFacts
    from kafkacompat.wire.messages.produce_request import PartitionProduceData, TopicProduceData

Answer: TypeAlias = ProduceResponse | Deferred[ProduceResponse] | NoResponse
PlainAnswer: TypeAlias = Answer | EncodedAnswer | Deferred[ProduceResponse | EncodedAnswer]

ASKED_LIKE_PARTITIONS = 10
"""The cost of one question to the authorizer, in partitions."""
PLAIN_PARTITIONS_MAX = 200
"""Partitions of a request that is looked over in one pass."""
NAMED_A_STEP = 2000
"""Partitions per step of each pass before the append. One takes 1 to 5 microseconds."""


def parse_plain(node: Node, frame: memoryview, position: int, version: int) -> PlainProduce | None:
    # An authorizer is asked about each topic, in the other way.
    if node.authorizer is not None:
        return None
    facts = plain_produce.read_frame(frame, version, node.partitions.plain_bounds)
    return None if facts is None else PlainProduce(frame, version, facts)


def handle(
    node: Node, context: RequestContext, request: ProduceRequest | PlainProduce
) -> PlainAnswer | Awaitable[Any]:
    if type(request) is PlainProduce:
        answer = append_plain(node, context, request)
        if answer is not None:
            return answer
        request = _decoded(request)
    assert isinstance(request, ProduceRequest)
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        first = first_batch(topics[0].partition_data[0].records)
        if first is FirstBatch.PLAIN:
            if _may_write(node, context, topics[0]):
                return _append(node, context, request, topics, False, None)
            return error_response(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED, context.api_version)
        if first is FirstBatch.CORRUPT:
            return at_once(_refused_whole(context, request, ErrorCode.CORRUPT_MESSAGE, Pace(NAMED_A_STEP)))
    elif access_of(node, context) is None and _is_plain(topics):
        return _append(node, context, request, topics, True, None)
    return _in_steps(node, context, request)


def _decoded(request: PlainProduce) -> ProduceRequest:
    message: ProduceRequest = decoder(ProduceRequest, request.version)(request.frame, request.position)[0]
    return message


def _is_plain(topics: list[TopicProduceData]) -> bool:
    """Whether all passes of `_in_steps` before the append would find nothing: a few partitions of different topics, each
    named once, with one batch that is neither transactional nor plainly corrupt."""
    count = 0
    for topic in topics:
        partitions = topic.partition_data
        count += len(partitions)
        if not 0 < len(partitions) <= count <= PLAIN_PARTITIONS_MAX:
            return False
        for one in partitions:
            records = one.records
            if records is None or len(records) < BEGINNING.size:
                return False
            length, magic, attributes = BEGINNING.unpack_from(records)
            if magic != 2 or attributes & TRANSACTIONAL_BIT or length < LEGACY_MINIMUM_LENGTH:
                return False
        if len({one.index for one in partitions}) < len(partitions):
            return False
    return len(topics) == 1 or len({(topic.name, topic.topic_id) for topic in topics}) == len(topics)


async def _in_steps(node: Node, context: RequestContext, request: ProduceRequest) -> Any:
    """Handle several partitions, or a transaction. The connection is not read until all are appended, so that its
    batches stay in order. The value may be a Deferred: while it is waited for, the connection is read on."""
    pace = Pace(NAMED_A_STEP)
    first = await in_turns(_first_that_tells(request.topic_data, pace))
    request.topic_data = topics = await in_turns(without_repeats(request.topic_data, pace))
    if first is FirstBatch.CORRUPT:
        return await in_turns(_refused_whole(context, request, ErrorCode.CORRUPT_MESSAGE, pace))
    access = access_of(node, context)
    if first is FirstBatch.TRANSACTIONAL and not _may_write_transaction(access, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return await in_turns(_refused_whole(context, request, code, pace))
    hidden: list[TopicProduceResponse] = []
    if access is not None:
        topics = await in_turns(_writable(node, access, request, context.api_version, pace, hidden))
    verdicts: Any = None
    if first is FirstBatch.TRANSACTIONAL:
        batches = await in_turns(_transactional_batches(node, topics, context.api_version, pace))
        verdicts = await _judged(node, context, request, batches, pace)
        if not isinstance(verdicts, Verdicts):
            return verdicts
    answer = _append(node, context, request, topics, True, verdicts, hidden)
    return await answer if isinstance(answer, CoroutineType) else answer


def _may_write(node: Node, context: RequestContext, topic: TopicProduceData) -> bool:
    """Return whether the sender may write to the topic, which may be unknown. An unknown id is not refused here."""
    access = access_of(node, context)
    if access is None:
        return True
    name = name_of(node, topic, context.api_version)
    return name is None or access.allows(AclOperation.WRITE, ResourceType.TOPIC, name)


def _may_write_transaction(access: Access | None, transactional_id: str | None) -> bool:
    return transactional_id is not None and (
        access is None or access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    )


def _writable(
    node: Node,
    access: Access,
    request: ProduceRequest,
    version: int,
    pace: Pace,
    hidden: list[TopicProduceResponse],
) -> Work[list[TopicProduceData]]:
    """Return the topics that the sender may write to. The results of the other topics are added to `hidden`, as are those of
    unknown ids: nobody asks again for the right to a topic that becomes known before its turn comes."""
    writable = []
    for topic in request.topic_data:
        name = name_of(node, topic, version)
        if name is not None and access.allows(
            AclOperation.WRITE, ResourceType.TOPIC, name, count=len(topic.partition_data)
        ):
            writable.append(topic)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            part = ProduceRequest(acks=ALL_REPLICAS, topic_data=[topic])
            refused: Any = yield from _refused(part, code, pace)
            hidden += refused.responses
        if pace.is_over(ASKED_LIKE_PARTITIONS):
            yield TURN_COST
    return writable


def _append(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceData],
    several: bool,
    verdicts: Verdicts | None,
    hidden: Sequence[TopicProduceResponse] = (),
) -> Answer | Coroutine[Any, None, Answer]:
    opens_first = False
    if not several and verdicts is None and topics and request.acks in ACKS:
        try:
            answer = _append_only(node, context, request, topics[0])
        except TooMuchAtOnce:
            opens_first = True
        else:
            if answer is not None:
                return answer
    return Appending(node, context, request, topics, several, verdicts, opens_first, hidden).run()


def _append_only(
    node: Node, context: RequestContext, request: ProduceRequest, topic: TopicProduceData
) -> Answer | None:
    """The fast path for most requests: one batch, appended at once. Returns None, before any effect, for any other
    request.

    Raises TooMuchAtOnce, also before any effect.
    """
    version = context.api_version
    acks = request.acks
    name = name_of(node, topic, version)
    if name is None or len(topic.partition_data) != 1:
        return None
    one = topic.partition_data[0]
    if one.records is None:
        return None
    partition = TopicPartition(name, one.index)
    result = node.partitions.append(
        partition,
        one.records,
        acks,
        version,
        context.client_id == ADMIN_CLIENT_ID,
        allowance=Allowance(),
    )
    answer, leader = answer_of(one.index, result, version)
    if acks == 0:
        return NoResponse.SILENT if result.error is NONE else NoResponse.CLOSE
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
        ]
    )
    if result.error is not NONE:
        if leader >= 0:
            response.node_endpoints = endpoints_of(node.image, {leader}, context.listener_name, NodeEndpoint)
        return response
    waits = waits_for(node, request, {partition: result.last_offset + 1})
    return when_let_go(node, context, waits, response, {partition: answer}) if waits else response


async def _judged(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    batches: Mapping[TopicPartition, Buffer],
    pace: Pace,
) -> Any:
    """Return the verdicts on the transaction, or the answer that refuses the whole request."""
    version = context.api_version
    assert request.transactional_id is not None
    producers: dict[TopicPartition, ProducerAndSequence] = {}
    for partition, records in batches.items():
        producer = producer_of(records)
        if producer is not None:
            producers[partition] = producer
        if pace.is_over():
            await pause()
    if len({each[:2] for each in producers.values()}) > 1:
        return await in_turns(_refused_whole(context, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, pace))
    return await judge(node, request.transactional_id, producers, version, request.timeout_ms, pace)


def _first_that_tells(topics: list[TopicProduceData], pace: Pace) -> Work[FirstBatch]:
    """Return whether the request is transactional or corrupt. The first batch that is one of the two decides."""
    for topic in topics:
        for one in topic.partition_data:
            first = first_batch(one.records)
            if first is not FirstBatch.PLAIN:
                return first
            if pace.is_over():
                yield TURN_COST
        if pace.is_over():
            yield TURN_COST
    return FirstBatch.PLAIN


def _transactional_batches(
    node: Node, topics: list[TopicProduceData], version: int, pace: Pace
) -> Work[dict[TopicPartition, Buffer]]:
    """Return the transactional batches of known partitions. Records that do not have the shape of a batch are left out."""
    found: dict[TopicPartition, Buffer] = {}
    zstd_allowed = version >= FIRST_VERSION_WITH_ZSTD
    for topic in topics:
        name = name_of(node, topic, version)
        known = node.image.topics.get(name) if name is not None else None
        for one in topic.partition_data:
            if (
                name is not None
                and known is not None
                and one.index in known.partitions
                and is_transactional(one.records)
                and refusal_at_sight(one.records, zstd_allowed) is None
            ):
                found[TopicPartition(name, one.index)] = one.records
            if pace.is_over():
                yield TURN_COST
    return found


def without_repeats(topics: Iterable[TopicProduceData], pace: Pace) -> Work[list[TopicProduceData]]:
    """Return each partition once. Its last mention counts, as in Kafka's map.

    Topics without partitions are dropped, because Kafka answers partitions only. A request may name hundreds of
    thousands of such topics.
    """
    by_topic: dict[Any, tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    for topic in topics:
        if topic.partition_data:
            _, partitions = by_topic.setdefault((topic.name, topic.topic_id), (topic, {}))
            for one in topic.partition_data:
                partitions[one.index] = one
                if pace.is_over():
                    yield TURN_COST
        elif pace.is_over():
            yield TURN_COST
    found = []
    for topic, partitions in by_topic.values():
        topic.partition_data = list(partitions.values())
        found.append(topic)
        if pace.is_over():
            yield TURN_COST
    return found


def error_response(
    request: ProduceRequest | PlainProduce, code: ErrorCode, version: int
) -> ProduceResponse | NoResponse:
    if isinstance(request, PlainProduce):
        request = _decoded(request)
    return at_once(_refused(request, code, Pace(NAMED_A_STEP)))


def _refused_whole(
    context: RequestContext, request: ProduceRequest, code: ErrorCode, pace: Pace
) -> Work[ProduceResponse | NoResponse]:
    context.size_bytes = 0  # nothing was looked at, so it uses no bandwidth
    return (yield from _refused(request, code, pace))


def _refused(request: ProduceRequest, code: ErrorCode, pace: Pace) -> Work[ProduceResponse | NoResponse]:
    if request.acks == 0:
        return NoResponse.CLOSE
    responses = []
    for topic in request.topic_data:
        answers = []
        for one in topic.partition_data:
            answers.append(PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1))
            if pace.is_over():
                yield TURN_COST
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    return ProduceResponse(responses=responses)


def answer_frame(
    node: Node, frame: memoryview, version: int, correlation_id: int
) -> tuple[Reply, int] | PlainProduce | None:
    if node.authorizer is not None:
        return None
    partitions = node.partitions
    facts = plain_produce.read_frame(frame, version, partitions.plain_bounds)
    if facts is None:
        return None
    appended: PlainAppends | Exception | None
    try:
        appended = partitions.append_plain(frame, version, facts)
    except Exception as error:
        appended = error
    else:
        if appended is not None:
            results, ends = appended
            if not ends and facts[1]:  # it has acks
                packed = plain_produce.packed_answer(version, facts[5], results, correlation_id)
                if packed is not None:
                    return [packed], len(results)
    return PlainProduce(frame, version, facts, appended)


def append_plain(node: Node, context: RequestContext, request: PlainProduce) -> PlainAnswer | None:
    """None, before any effect, if the request must take the other way."""
    appended = request.appended
    if appended is NOT_TRIED:
        appended = node.partitions.append_plain(request.frame, request.version, request.facts)
    elif isinstance(appended, Exception):
        raise appended
    if appended is None:
        return None
    results, ends = appended
    if request.acks == 0:
        all_taken = all(type(each) is tuple for each in results)
        return NoResponse.SILENT if all_taken else NoResponse.CLOSE
    # Not the request itself, because while the answer waits, the receive buffer is used again.
    topics, version = request.topics, request.version
    waits = waits_for(node, request, ends) if ends else None
    if not waits:
        return _answer(node, context, version, topics, results)

    def settle(outcomes: list[Mapping[TopicPartition, ErrorCode]]) -> ProduceResponse | EncodedAnswer:
        taken = [at for at, each in enumerate(results) if type(each) is tuple]
        place_of = dict(zip(ends, taken, strict=True))
        for errors in outcomes:
            for partition, error in errors.items():
                if error is not NONE:
                    at = place_of[partition]
                    leader_id, leader_epoch = _leader_to_tell(node, partition, error)
                    results[at] = replace(
                        _whole(results[at]), error=error, leader_id=leader_id, leader_epoch=leader_epoch
                    )
        return _answer(node, context, version, topics, results)

    return gather(waits).then(settle)


def _answer(
    node: Node,
    context: RequestContext,
    version: int,
    topics: list[TopicFacts],
    results: list[PlainResult],
) -> ProduceResponse | EncodedAnswer:
    """The response to a request for these topics, with a result for each of their partitions in turn."""
    if context.throttling is None:
        packed = plain_produce.packed_answer(version, topics, results, None)
        if packed is not None:
            return EncodedAnswer([packed], {NONE: len(results)})
    return _message(node, context, version, topics, results)


def _whole(result: PlainResult) -> ProduceResult:
    if isinstance(result, ProduceResult):
        return result
    return ProduceResult(NONE, result[0], log_start_offset=result[1])


def _message(
    node: Node,
    context: RequestContext,
    version: int,
    topics: list[TopicFacts],
    results: list[PlainResult],
) -> ProduceResponse:
    leaders = set()
    left = iter(results)
    responses = []
    for name, partitions, _ in topics:
        answers = []
        for facts, result in zip(partitions, left, strict=False):
            answer, leader = answer_of(facts[0], _whole(result), version)
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


OPENED_UNITS = 40 * PARTITION_UNITS
"""Of a partition whose log this request may have to open."""
Place: TypeAlias = "tuple[TopicProduceData, PartitionProduceData, list[PartitionProduceResponse]]"
"""A topic, one of its partitions, and the list that receives the result."""


class Appending:
    """The progress of a Produce through its partitions, in as many portions as the loop needs.

    The connection is not read before the last portion is done, so its batches stay in order. The wait for a portion's
    appends starts in that portion, because before the next one another leader's log may have other records at the same
    offsets.
    """

    __slots__ = (
        "_acks",
        "_appended",
        "_checked",
        "_context",
        "_ends",
        "_failed",
        "_internal_allowed",
        "_leaders",
        "_left",
        "_node",
        "_opens_first",
        "_request",
        "_responses",
        "_several",
        "_validation",
        "_verdicts",
        "_waits",
    )

    def __init__(
        self,
        node: Node,
        context: RequestContext,
        request: ProduceRequest,
        topics: list[TopicProduceData],
        several: bool,
        verdicts: Verdicts | None,
        opens_first: bool = False,
        hidden: Sequence[TopicProduceResponse] = (),
    ) -> None:
        """`opens_first`: the records of the first partition are known to need more time than one allowance.

        `hidden` are the results of topics that the sender may not write to.
        """
        self._opens_first = opens_first
        self._node = node
        self._context = context
        self._request = request
        self._several = several
        self._verdicts = verdicts
        self._acks = request.acks
        self._internal_allowed = context.client_id == ADMIN_CLIENT_ID
        self._failed = bool(hidden)
        self._leaders: set[int] = set()
        self._responses = list(hidden)
        self._ends: dict[TopicPartition, int] = {}
        """The end offsets of this portion's appends."""
        self._appended: dict[TopicPartition, PartitionProduceResponse] = {}
        self._waits: list[Deferred[Mapping[TopicPartition, ErrorCode]]] = []
        self._left = self._partitions(topics)
        self._checked: tuple[Place, Any] | None = None
        """The place at which the next portion starts, with its records or the result of their validation."""
        self._validation: Deferred[Any] | None = None
        """What the next portion waits for. None: only for its turn."""

    def run(self) -> Answer | Coroutine[Any, None, Answer]:
        """Append the first portion. What is left is carried out by the coroutine."""
        return self._response() if self._portion() else self._rest()

    async def _rest(self) -> Answer:
        while True:
            validation, self._validation = self._validation, None
            if validation is None:
                await pause()
            else:
                assert self._checked is not None
                self._checked = self._checked[0], await validation
            if self._portion():
                return self._response()

    def _partitions(self, topics: list[TopicProduceData]) -> Iterator[Place]:
        for topic in topics:
            answers: list[PartitionProduceResponse] = []
            self._responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            for one in topic.partition_data:
                yield topic, one, answers

    def _portion(self) -> bool:
        """Append until the loop needs a turn. Return whether all is appended."""
        if not self._several:
            is_over = self._walk()
            self._wait_for_ends()
            return is_over
        self._node.partitions.hold_wakeups()
        try:
            is_over = self._walk()
            self._wait_for_ends()
            return is_over
        finally:
            self._node.partitions.release_wakeups()

    def _walk(self) -> bool:
        allowance = Allowance()
        partition_units = OPENED_UNITS if self._node.partitions.opens_logs else PARTITION_UNITS
        version = self._context.api_version
        acks, internal_allowed = self._acks, self._internal_allowed
        is_plain = acks in ACKS and self._verdicts is None
        append, ends, appended = self._node.partitions.append, self._ends, self._appended
        # A name is resolved once per portion: it may belong to another topic than in the last portion.
        known: TopicProduceData | None = None
        name: str | None = None
        while True:
            if self._checked is not None:
                place, records = self._checked
                self._checked = None
            else:
                following = next(self._left, None)
                if following is None:
                    return True
                place, records = following, following[1].records
            topic, one, answers = place
            if topic is not known:
                known, name = topic, name_of(self._node, topic, version)
            if allowance.units <= 0:
                self._checked = place, records
                return False
            allowance.units -= partition_units
            if name is None:
                self._add_refusal(answers, one.index, ProduceResult(ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            partition = TopicPartition(name, one.index)
            if self._opens_first:
                self._opens_first = False
                self._checked = place, records
                self._validation = self._node.partitions.validate(partition, records, version)
                return False
            try:
                if is_plain and one.records is not None:
                    result = append(partition, records, acks, version, internal_allowed, allowance=allowance)
                else:
                    result = self._append_one(partition, one.records, records, allowance)
            except TooMuchAtOnce:
                self._checked = place, records
                self._validation = self._node.partitions.validate(partition, records, version)
                return False
            if result.error is not NONE:
                self._add_refusal(answers, one.index, result)
                continue
            answer = PartitionProduceResponse(
                index=one.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
            answers.append(answer)
            ends[partition] = result.last_offset + 1
            appended[partition] = answer

    def _append_one(
        self, partition: TopicPartition, records: Any, checked: Any, allowance: Allowance
    ) -> ProduceResult:
        """`checked` are the records, or the result of their validation."""
        node, acks, verdicts = self._node, self._acks, self._verdicts
        if acks not in ACKS or verdicts is not None or records is None:
            topic = node.image.topics.get(partition.topic)
            if topic is None or partition.partition not in topic.partitions:
                return ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if records is None:
                return ProduceResult(ErrorCode.INVALID_RECORD, error_message="The partition has no records.")
            at_sight = refusal_at_sight(records, self._context.api_version >= FIRST_VERSION_WITH_ZSTD)
            if at_sight is not None:
                return ProduceResult(at_sight.code, error_message=at_sight.message)
        terms = None
        if verdicts is not None:
            refused = verdicts.refused.get(partition)
            if refused is not None:
                return ProduceResult(refused)
        if acks not in ACKS:
            return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
        if verdicts is not None:
            terms = verdicts.terms.get(partition)
            if (
                terms is None
                and not verdicts.trusts
                and is_transactional(records)
                and producer_of(records) is not None
                and node.partitions.leads(partition)
            ):
                # The partition became known, or this broker became its leader, while the coordinator verified the
                # other partitions. The coordinator was not asked about this one.
                return ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return node.partitions.append(
            partition,
            checked,
            acks,
            self._context.api_version,
            self._internal_allowed,
            terms,
            allowance=allowance,
        )

    def _add_refusal(
        self, answers: list[PartitionProduceResponse], index: int, result: ProduceResult
    ) -> None:
        answer, leader = answer_of(index, result, self._context.api_version)
        answers.append(answer)
        self._failed = True
        if leader >= 0:
            self._leaders.add(leader)

    def _wait_for_ends(self) -> None:
        ends, self._ends = self._ends, {}
        if ends and self._acks != 0:
            self._waits += waits_for(self._node, self._request, ends)

    def _response(self) -> Answer:
        """Return the response when replication and syncs are done."""
        if self._acks == 0:
            return NoResponse.CLOSE if self._failed else NoResponse.SILENT
        response = ProduceResponse(responses=self._responses)
        if self._leaders:
            response.node_endpoints = endpoints_of(
                self._node.image, self._leaders, self._context.listener_name, NodeEndpoint
            )
        if not self._waits:
            return response
        return when_let_go(self._node, self._context, self._waits, response, self._appended)


FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_CURRENT_LEADER = 10
FIRST_VERSION_WITH_ZSTD = 7
ALL_REPLICAS = -1
ACKS = (0, 1, ALL_REPLICAS)
ADMIN_CLIENT_ID = "__admin_client"
"""As in Kafka, only this client id may write to internal topics."""


def name_of(node: Node, topic: TopicProduceData, version: int) -> str | None:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    image = node.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def answer_of(index: int, result: ProduceResult, version: int) -> tuple[PartitionProduceResponse, int]:
    """Return a partition's result and the leader id that it names, or -1."""
    answer = PartitionProduceResponse(
        index=index,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if result.error is NONE:
        return answer, -1
    answer.error_message = result.error_message
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]
    return answer, _name_leader(answer, result.leader_id, result.leader_epoch, version)


def waits_for(
    node: Node, request: ProduceRequest | PlainProduce, ends: Mapping[TopicPartition, int]
) -> list[Deferred[Mapping[TopicPartition, ErrorCode]]]:
    """Return the waits for replication (acks=all) and for syncs of the records that were just appended. None of them is longer
    than the request's timeout, whatever the disks do."""
    waits = []
    is_replicated = request.acks == ALL_REPLICAS
    if is_replicated:
        replicated = node.partitions.when_replicated(ends, request.timeout_ms)
        if replicated is not None:
            waits.append(replicated)
    flushed = node.partitions.when_flushed(ends, request.timeout_ms, is_replicated=is_replicated)
    if flushed is not None:
        waits.append(flushed)
    return waits


def when_let_go(
    node: Node,
    context: RequestContext,
    waits: Sequence[Deferred[Mapping[TopicPartition, ErrorCode]]],
    response: ProduceResponse,
    appended: Mapping[TopicPartition, PartitionProduceResponse],
) -> Deferred[ProduceResponse]:
    """Return the response when all waits are over. Fails if one of them fails."""

    def settle(outcomes: list[Mapping[TopicPartition, ErrorCode]]) -> ProduceResponse:
        leaders: set[int] = set()
        for errors in outcomes:
            for partition, error in errors.items():
                if error is not NONE:
                    answer = appended[partition]
                    answer.error_code = error
                    leader = _leader_to_tell(node, partition, error)
                    leaders.add(_name_leader(answer, *leader, context.api_version))
        leaders.discard(-1)
        if leaders:
            leaders.update([each.node_id for each in response.node_endpoints])
            response.node_endpoints = endpoints_of(node.image, leaders, context.listener_name, NodeEndpoint)
        return response

    return gather(waits).then(settle)


def _leader_to_tell(node: Node, partition: TopicPartition, error: ErrorCode) -> tuple[int, int]:
    """The leader in the metadata and its epoch, for the producer of records that this broker can no longer commit. -1 and -1
    for any other error."""
    topic = node.image.topics.get(partition.topic) if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    found = None if topic is None else topic.partitions.get(partition.partition)
    return (-1, -1) if found is None else (found.leader, found.leader_epoch)


def _name_leader(answer: PartitionProduceResponse, leader_id: int, leader_epoch: int, version: int) -> int:
    """Return the leader id that the partition's result names, or -1."""
    if leader_id < 0 or version < FIRST_VERSION_WITH_CURRENT_LEADER:
        return -1
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return leader_id


LENGTH_AT, MAGIC_AT, ATTRIBUTES_LOW_AT = 8, 16, 22
BEGINNING = Struct(">8xi4xb5xB")
"""Length, magic, and the low byte of the attributes."""
OVERHEAD = 12
"""Bytes of the offset and length fields, which the length does not count."""
LEGACY_MINIMUM_LENGTH = 14
TRANSACTIONAL_BIT = 0x10


class FirstBatch(Enum):
    PLAIN = auto()
    """Also if the records contain no whole batch."""
    TRANSACTIONAL = auto()
    CORRUPT = auto()


def first_batch(records: Any) -> FirstBatch:
    size = 0 if records is None else len(records)
    if size < OVERHEAD:
        return FirstBatch.PLAIN
    length = int.from_bytes(records[LENGTH_AT:OVERHEAD], "big", signed=True)
    if length < LEGACY_MINIMUM_LENGTH:
        return FirstBatch.CORRUPT
    if size <= MAGIC_AT:
        return FirstBatch.PLAIN
    magic = records[MAGIC_AT]
    if magic > 2:
        return FirstBatch.CORRUPT
    if magic == 2 and size >= length + OVERHEAD and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT:
        return FirstBatch.TRANSACTIONAL
    return FirstBatch.PLAIN


def is_transactional(records: Any) -> bool:
    return first_batch(records) is FirstBatch.TRANSACTIONAL


HANDLER = Handler(
    handle,
    error_response,
    blocks=False,
    waits_at_will=True,
    parse_plain=parse_plain,
    answer_frame=answer_frame,
)
