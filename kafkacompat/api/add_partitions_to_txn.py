"""AddPartitionsToTxn (key 24): add partitions to a transaction. KIP-98, KIP-890.

Unknown topics are refused, and internal topics are refused to clients. The coordinator decides on the rest. Clients
send versions 0-3, with one transaction. Brokers send versions 4 and 5, with many transactions, some of them only to be
verified. If one partition of a transaction is refused, none of its partitions is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import CLUSTER_ACTION, Access, RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.transaction_errors import without_fenced
from kafkacompat.deferred import Deferred
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnTransaction
from kafkacompat.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.add_partitions_to_txn_request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )

BATCHED_SINCE = 4
FENCED_SINCE = 2
EPOCH_BUMP_VERSION = 2
"""The transaction.version that the batched form implies."""
PARTITIONS_A_STEP = 1000
TOPIC_COST, TRANSACTION_COST = 1, 10
"""The cost of a topic and of a transaction, in partitions. A request may name hundreds of thousands of them without partitions."""
CHARACTERS_LIKE_A_TRANSACTION = 640
"""Characters of a transactional id that cost as much as one transaction. The id is hashed."""
Codes = Mapping[TopicPartition, ErrorCode]
Answer = Deferred[Any]
"""A dict of error codes if the partitions were checked one by one, or one ErrorCode for all of them."""


class _NotAttempted(dict[TopicPartition, ErrorCode]):
    """The error codes of the refused partitions; every other partition is OPERATION_NOT_ATTEMPTED."""

    def __missing__(self, partition: TopicPartition) -> ErrorCode:
        return ErrorCode.OPERATION_NOT_ATTEMPTED


async def handle(node: Node, context: RequestContext, request: AddPartitionsToTxnRequest) -> Any:
    version = context.api_version
    pace = Pace(PARTITIONS_A_STEP)
    access = access_of(node, context)
    answer: Answer
    if version >= BATCHED_SINCE:
        if access is not None and CLUSTER_ACTION.refusal(access, request) != ErrorCode.NONE:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answers = []
        for each in request.transactions:
            answers.append(await in_turns(_asked(node, each, True, pace, None)))
            names = 1 + len(each.transactional_id) // CHARACTERS_LIKE_A_TRANSACTION
            if pace.is_over(names * TRANSACTION_COST):
                await pause()
        results = []
        for each, answer in zip(request.transactions, answers, strict=True):
            of_one = await _told(each.topics, answer, BATCHED_SINCE, pace)
            results.append(
                AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=of_one)
            )
            if pace.is_over(TRANSACTION_COST):
                await pause()
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    if access is not None and not access.allows(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
    ):
        answer = Deferred.of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        answer = await in_turns(_asked(node, transaction, False, pace, access))
    of_topics = await _told(transaction.topics, answer, version, pace)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=of_topics)


async def _told(
    topics: Sequence[AddPartitionsToTxnTopic], answer: Answer, version: int, pace: Pace
) -> list[AddPartitionsToTxnTopicResult]:
    found = await answer
    if isinstance(found, ErrorCode):
        return await in_turns(_all_alike(topics, found, version, pace))
    return await in_turns(_results(topics, found, version, pace))


def _asked(
    node: Node,
    transaction: AddPartitionsToTxnTransaction,
    batched: bool,
    pace: Pace,
    access: Access | None,
) -> Work[Answer]:
    named: set[TopicPartition] = set()
    refused = _NotAttempted()
    writable = RightToTopics(access, AclOperation.WRITE)
    for topic in transaction.topics:
        is_writable = topic.name in INTERNAL_TOPICS or writable.holds(topic.name)
        for start in range(0, len(topic.partitions), PARTITIONS_A_STEP):
            indexes = topic.partitions[start : start + PARTITIONS_A_STEP]
            of_topic = [TopicPartition(topic.name, index) for index in indexes]
            named.update(of_topic)
            for each in of_topic:
                code: ErrorCode | None = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if is_writable:
                    code = _refusal(node, each, batched)
                if code is not None:
                    refused[each] = code
            if pace.is_over(len(indexes)):
                yield TURN_COST
        if pace.is_over(TOPIC_COST):
            yield TURN_COST
    if refused:
        return Deferred.of(refused)
    partitions = frozenset(named)
    coordinator = node.transactions.coordinator
    who = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return Deferred.of(coordinator.verify_partitions(*who, partitions))
    client_version = EPOCH_BUMP_VERSION if batched else 0
    return coordinator.add_partitions(*who, partitions, client_version)


def _refusal(node: Node, partition: TopicPartition, batched: bool) -> ErrorCode | None:
    if partition.topic in INTERNAL_TOPICS and not batched:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = node.image.topics.get(partition.topic)
    if topic is None or partition.partition not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Codes, version: int, pace: Pace
) -> Work[list[AddPartitionsToTxnTopicResult]]:
    """Return each named partition once. Topics without partitions are left out."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        for start in range(0, len(topic.partitions), PARTITIONS_A_STEP):
            indexes = topic.partitions[start : start + PARTITIONS_A_STEP]
            named.setdefault(topic.name, {}).update(dict.fromkeys(indexes))
            if pace.is_over(len(indexes)):
                yield TURN_COST
        if pace.is_over(TOPIC_COST):
            yield TURN_COST
    results = []
    for name, of_topic in named.items():
        partitions: list[AddPartitionsToTxnPartitionResult] = []
        for index in of_topic:
            code = without_fenced(codes[TopicPartition(name, index)], version, FENCED_SINCE)
            partitions.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
            if pace.is_over(1):
                yield TURN_COST
        results.append(AddPartitionsToTxnTopicResult(name=name, results_by_partition=partitions))
        if pace.is_over(TOPIC_COST):
            yield TURN_COST
    return results


def _all_alike(
    topics: Sequence[AddPartitionsToTxnTopic], code: ErrorCode, version: int, pace: Pace
) -> Work[list[AddPartitionsToTxnTopicResult]]:
    """Return all topics as the request names them, including topics without partitions."""
    told = without_fenced(code, version, FENCED_SINCE)
    results = []
    for topic in topics:
        partitions = []
        for start in range(0, len(topic.partitions), PARTITIONS_A_STEP):
            indexes = topic.partitions[start : start + PARTITIONS_A_STEP]
            partitions += [
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=told)
                for index in indexes
            ]
            if pace.is_over(len(indexes)):
                yield TURN_COST
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
        if pace.is_over(TOPIC_COST):
            yield TURN_COST
    return results


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode, version: int
) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = request.v3_and_below_topics
    codes = {TopicPartition(topic.name, index): code for topic in topics for index in topic.partitions}
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=at_once(_results(topics, codes, version, Pace(PARTITIONS_A_STEP)))
    )


HANDLER = Handler(handle, error_response, asks_coordinators=True)
