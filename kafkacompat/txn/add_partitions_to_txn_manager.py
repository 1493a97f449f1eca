"""Checks whether a transaction may write to partitions that this node leads:
txn.service.TransactionVerifier.

It asks the transaction's coordinator, on any node, to verify or to add partitions, and translates the answer for the
producer. Follows Kafka's AddPartitionsToTxnManager: one request is in flight per node and others are collected. If two
requests for the same id wait for a node, the newer one replaces the older one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.inter_broker_sender import InterBrokerSender, NodeLost, Requests
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TRANSACTION_TOPIC, TopicPartition, partition_for_key
from kafkacompat.meters import Histogram
from kafkacompat.net.failures import ChannelError
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.txn.service import TransactionService

EPOCH_BUMP_VERSION = 2
Errors = Mapping[TopicPartition, ErrorCode]
Found = ErrorCode | Mapping[str, Errors]
"""Of a request: the error of all its questions, or the errors by transactional id."""


class VerifierMeter:
    """How long each question took, and the partitions that may not be written to (AddPartitionsToTxnManager)."""

    def __init__(self, monotonic_s: Callable[[], float] = monotonic) -> None:
        self.monotonic_s = monotonic_s
        self.times_ms = Histogram()
        self.failures = 0

    def note(self, began_s: float, answer: Errors) -> None:
        self.times_ms.note(1000 * (self.monotonic_s() - began_s))
        self.failures += sum(code is not ErrorCode.NONE for code in answer.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    transaction: AddPartitionsToTxnTransaction


class _Replaced(Exception):
    """A newer request for the same transactional id waits for the node."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code


class AddPartitionsToTxnManager:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        coordinator: TransactionService,
        channel: Callable[[int], Requests | None],
        tasks: Tasks,
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
        self._tasks = tasks
        self._sender: InterBrokerSender[_Question, Found] = InterBrokerSender(
            tasks, channel, timeout_ms, self._request, _found
        )

    def close(self) -> None:
        """Fail all waiting requests with NETWORK_EXCEPTION."""
        self._sender.close()

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
        if node_id == self._node_id:
            answer = self._ask_here(transactional_id, producer_id, producer_epoch, partitions, adds)
        else:
            answer = self._ask_node(node_id, transactional_id, producer_id, producer_epoch, partitions, adds)
        return self._tasks.run(f"verifying a partition of {transactional_id!r}", self._timed(answer))

    async def _timed(self, asked: Awaitable[Errors]) -> Errors:
        began_s = self.meter.monotonic_s()
        answer = await asked
        self.meter.note(began_s, answer)
        return answer

    async def _ask_node(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Errors:
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
            )
        )
        waiting = self._waiting.setdefault(node_id, {})
        older = waiting.get(transactional_id)
        if older is not None:
            known = older.transaction
            is_same = known.producer_id == producer_id  # another producer id has its own epochs
            if is_same and known.producer_epoch > producer_epoch:
                return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH)
            is_fenced = is_same and known.producer_epoch < producer_epoch
            code = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            self._sender.withdraw(node_id, older, _Replaced(code))
        waiting[transactional_id] = question
        try:
            found = await self._sender.ask(node_id, question)
        except _Replaced as newer:
            found = newer.code
        except self._not_known:  # an older release, which does not verify either
            found = ErrorCode.NONE
        except Exception as error:
            if not isinstance(error, (ChannelError, NodeLost, OSError)):
                report(f"verifying partitions of {transactional_id!r}", error)
            found = ErrorCode.NETWORK_EXCEPTION
        finally:
            self._no_longer_waits(question)  # if it was never sent
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        codes = found.get(transactional_id, {})
        return {each: codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in partitions}

    async def _ask_here(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Errors:
        wanted = frozenset(partitions)
        if adds:
            code = await self._coordinator.add_partitions(
                transactional_id, producer_id, producer_epoch, wanted, EPOCH_BUMP_VERSION
            )
            return dict.fromkeys(partitions, _for_leader(code))
        found = self._coordinator.verify_partitions(transactional_id, producer_id, producer_epoch, wanted)
        return {partition: _for_leader(code) for partition, code in found.items()}

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_for_key(transactional_id, len(topic.partitions))].leader

    def _request(self, questions: list[_Question]) -> AddPartitionsToTxnRequest:
        for each in questions:
            self._no_longer_waits(each)
        return AddPartitionsToTxnRequest(transactions=[each.transaction for each in questions])

    def _no_longer_waits(self, question: _Question) -> None:
        transactional_id = question.transaction.transactional_id
        for waiting in self._waiting.values():
            if waiting.get(transactional_id) is question:
                del waiting[transactional_id]


def _found(response: Any) -> Found:
    if response.error_code:
        refused = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_TXN_STATE if refused else code_of(response.error_code)
    return {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): _for_leader(code_of(each.partition_error_code))
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _for_leader(code: ErrorCode) -> ErrorCode:
    """The coordinator's error as a producer expects it from a partition's leader."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
