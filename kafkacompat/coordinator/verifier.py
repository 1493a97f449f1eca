"""Checks whether a transaction may write to partitions that this node leads:
api.transaction_services.TransactionVerifier.

It asks the transaction's coordinator, on any node, to verify or to add partitions, and translates the answer for the
producer. Follows Kafka's AddPartitionsToTxnManager: one request is in flight per node and others are collected. If two
requests for the same id wait for a node, the newer one replaces the older one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.node_queues import NodeQueues, Requests
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, TRANSACTION_TOPIC, TopicPartition, partition_for_key
from kafkacompat.meters import Histogram
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from kafkacompat.api.transaction_services import TransactionService
    from kafkacompat.controller.image import MetadataImage

EPOCH_BUMP_VERSION = 2
Errors = Mapping[TopicPartition, ErrorCode]


class VerifierMeter:
    """How long each question took, and the partitions that may not be written to (AddPartitionsToTxnManager)."""

    def __init__(self, monotonic_s: Callable[[], float] = monotonic) -> None:
        self.monotonic_s = monotonic_s
        self.times_ms = Histogram()
        self.failures = 0

    def note(self, began_s: float, answer: Errors) -> None:
        self.times_ms.note(1000 * (self.monotonic_s() - began_s))
        self.failures += sum(code is not ErrorCode.NONE for code in answer.values())


class _Question:
    __slots__ = ("answer", "partitions", "transaction")

    def __init__(
        self, transaction: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
    ) -> None:
        self.transaction = transaction
        self.partitions = partitions
        self.answer: Deferred[Errors] = Deferred()

    def settle(self, code: ErrorCode) -> None:
        if not self.answer.done:
            self.answer.resolve(dict.fromkeys(self.partitions, code))


class PartitionVerifier:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        coordinator: TransactionService,
        channel: Callable[[int], Requests | None],
        timeout_ms: int,
        not_known: type[Exception],
        verifies: Callable[[], bool] = lambda: True,
    ) -> None:
        """`coordinator` is this node's own. `not_known` is the error of a channel whose peer does not support the
        request.

        `verifies` returns transaction.partition.verification.enable. Requests that add partitions are sent in any
        case.
        """
        self.meter = VerifierMeter()
        self._verifies = verifies
        self._node_id = node_id
        self._image = image
        self._coordinator = coordinator
        self._not_known = not_known
        self._waiting: dict[int, dict[str, _Question]] = {}
        """Node -> transactional id -> request that waits to be sent."""
        self._queues: NodeQueues[_Question] = NodeQueues(channel, timeout_ms, self._request, self._answered)

    def close(self) -> None:
        """Fail all waiting requests with NETWORK_EXCEPTION."""
        self._queues.close()

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Errors]:
        if not adds and not self._verifies():
            return Deferred.of(dict.fromkeys(partitions, ErrorCode.NONE))
        node_id = self._coordinator_of(transactional_id)
        if node_id == NO_LEADER:
            return Deferred.of(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        began_s = self.meter.monotonic_s()
        if node_id == self._node_id:
            answer = self._ask_here(transactional_id, producer_id, producer_epoch, partitions, adds)
        else:
            answer = self._ask_node(node_id, transactional_id, producer_id, producer_epoch, partitions, adds)
        answer.on_done(partial(self._answered_one, began_s))
        return answer

    def _answered_one(self, began_s: float, done: Deferred[Errors]) -> None:
        if not done.has_failed:
            self.meter.note(began_s, done.result())

    def _ask_node(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Errors]:
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        question = _Question(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ],
            ),
            partitions,
        )
        waiting = self._waiting.setdefault(node_id, {})
        older = waiting.get(transactional_id)
        if older is not None:
            known = older.transaction
            is_same = known.producer_id == producer_id  # another producer id has its own epochs
            if is_same and known.producer_epoch > producer_epoch:
                question.settle(ErrorCode.INVALID_PRODUCER_EPOCH)
                return question.answer
            is_fenced = is_same and known.producer_epoch < producer_epoch
            older.settle(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION)
        waiting[transactional_id] = question
        self._queues.put(node_id, question)
        return question.answer

    def _ask_here(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Errors]:
        wanted = frozenset(partitions)
        if adds:
            return self._coordinator.add_partitions(
                transactional_id, producer_id, producer_epoch, wanted, EPOCH_BUMP_VERSION
            ).then(lambda code: dict.fromkeys(partitions, _for_leader(code)))
        found = self._coordinator.verify_partitions(transactional_id, producer_id, producer_epoch, wanted)
        return Deferred.of({partition: _for_leader(code) for partition, code in found.items()})

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_for_key(transactional_id, len(topic.partitions))].leader

    def _forget(self, questions: list[_Question]) -> None:
        for waiting in self._waiting.values():
            for question in questions:
                transactional_id = question.transaction.transactional_id
                if waiting.get(transactional_id) is question:
                    del waiting[transactional_id]

    def _request(self, questions: list[_Question]) -> AddPartitionsToTxnRequest:
        self._forget(questions)
        return AddPartitionsToTxnRequest(
            transactions=[question.transaction for question in questions if not question.answer.done]
        )

    def _answered(self, questions: list[_Question], done: Deferred[Any]) -> None:
        self._forget(questions)  # those without a request
        try:
            response = done.result()
        except self._not_known:  # an older release, which does not verify either
            for question in questions:
                question.settle(ErrorCode.NONE)
            return
        except Exception:
            for question in questions:
                question.settle(ErrorCode.NETWORK_EXCEPTION)
            return
        if response.error_code:
            refused = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            code = ErrorCode.INVALID_TXN_STATE if refused else _code(response.error_code)
            for question in questions:
                question.settle(code)
            return
        found = {
            result.transactional_id: {
                TopicPartition(topic.name, each.partition_index): _for_leader(
                    _code(each.partition_error_code)
                )
                for topic in result.topic_results
                for each in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        for question in questions:
            if not question.answer.done:
                codes = found.get(question.transaction.transactional_id, {})
                question.answer.resolve(
                    {each: codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in question.partitions}
                )


def _code(number: int) -> ErrorCode:
    """The code from another node, which may know more errors than this one."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _for_leader(code: ErrorCode) -> ErrorCode:
    """The coordinator's error as a producer expects it from a partition's leader."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
