"""AddPartitionsToTxn (key 24, versions 0-5): partitions become part of a transaction. KIP-98, KIP-890.

Duty: refuse topics that do not exist and, to clients, internal ones; then the coordinator. Versions 0-3 are clients', of one
transaction; 4 and 5 are brokers', of many, some only to be verified. Nothing of a transaction is added when a part is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.api.transaction_errors import without_fenced
from kafkacompat.deferred import Deferred
from kafkacompat.ids import INTERNAL_TOPICS, TopicPartition
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnTransaction
from kafkacompat.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.wire.messages.add_partitions_to_txn_request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )

KEY = 24
BATCHED_SINCE = 4
FENCED_SINCE = 2
EPOCH_BUMP_VERSION = 2
"""The transaction.version that the batched form stands for."""
Codes = Mapping[TopicPartition, ErrorCode]


def handle(
    node: Node, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Deferred[Any]:
    version = context.api_version
    if version >= BATCHED_SINCE:
        answers = [_one(node, each, True) for each in request.transactions]
        return _gathered(request.transactions, answers)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return _one(node, transaction, False).then(
        lambda codes: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(transaction.topics, codes, version)
        )
    )


def _one(node: Node, transaction: AddPartitionsToTxnTransaction, batched: bool) -> Deferred[Codes]:
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
    )
    refused = {each: code for each in partitions if (code := _refusal(node, each, batched)) is not None}
    if refused:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
        return Deferred.of(codes)
    coordinator = node.transactions.coordinator
    who = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return Deferred.of(coordinator.verify_partitions(*who, partitions))
    client_version = EPOCH_BUMP_VERSION if batched else 0
    return coordinator.add_partitions(*who, partitions, client_version).then(
        lambda code: dict.fromkeys(partitions, code)
    )


def _refusal(node: Node, partition: TopicPartition, batched: bool) -> ErrorCode | None:
    if partition.topic in INTERNAL_TOPICS and not batched:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = node.image.topics.get(partition.topic)
    if topic is None or partition.partition not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Codes, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=without_fenced(
                        codes[TopicPartition(topic.name, index)], version, FENCED_SINCE
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _gathered(
    transactions: Sequence[AddPartitionsToTxnTransaction], answers: Sequence[Deferred[Codes]]
) -> Deferred[AddPartitionsToTxnResponse]:
    """One response when the last transaction is decided."""
    response: Deferred[AddPartitionsToTxnResponse] = Deferred()
    left = len(answers)

    def finish() -> None:
        response.resolve(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=each.transactional_id,
                        topic_results=_results(each.topics, answer.result(), BATCHED_SINCE),
                    )
                    for each, answer in zip(transactions, answers, strict=True)
                ]
            )
        )

    def one_done(_: Deferred[Codes]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            finish()

    if not answers:
        finish()
    for answer in answers:
        answer.on_done(one_done)
    return response


def error_response(
    request: AddPartitionsToTxnRequest, code: ErrorCode, version: int
) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = request.v3_and_below_topics
    codes = {TopicPartition(topic.name, index): code for topic in topics for index in topic.partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes, version))


HANDLER = Handler(KEY, 0, 5, handle, error_response)
