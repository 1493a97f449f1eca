"""Produce within a transaction: its partitions are verified, or added, before anything is appended. KIP-890.

This module finds the partitions that the transaction coordinator must verify, asks it, and sets the error of each
refused partition. A partition whose log already has the open transaction needs no verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.late import NotMade
from kafkacompat.ports import LogRefused, TransactionTerms
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, parse_header
from kafkacompat.tasks import Pace, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.ports import Buffer

ABORTABLE_SINCE = 11
"""From this version of Produce on, the client knows TRANSACTION_ABORTABLE."""
ADDS_SINCE = 12
"""From this version of Produce on, a produce adds the partition to the transaction (transaction.version 2)."""
CONCURRENT_RETRY_MS = 20
CONCURRENT_RETRIED_MAX_MS = 100
_RETRIABLE_HERE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Answered as NOT_ENOUGH_REPLICAS, so that a producer retries without asking for metadata.

The coordinator returns the last code for a partition if it does not know another partition of the request yet. Kafka
passes that code on, and producers then abort the transaction.
"""


JUDGED_COST = 5
"""The cost of a partition whose log is asked. A partition that is only looked at costs one."""


class ProducerAndSequence(NamedTuple):
    """The producer id, producer epoch and first sequence number of one batch."""

    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class Verdicts:
    """The result of the verification of a request's transactional partitions, before the append."""

    terms: dict[TopicPartition, TransactionTerms] = field(default_factory=dict)
    refused: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    trusts: bool = False
    """True if nothing is verified (transaction.partition.verification.enable)."""


def producer_of(records: Buffer) -> ProducerAndSequence | None:
    """Return the producer of a transactional batch.

    None if the batch has no producer, since it then opens no transaction. Also None if the header is not readable:
    validation refuses that batch later.
    """
    if len(records) < HEADER_SIZE:
        return None
    try:
        header = parse_header(records)
    except BatchCorrupt:
        return None
    if header.producer_id < 0:
        return None
    return ProducerAndSequence(header.producer_id, header.producer_epoch, header.base_sequence)


async def judge(
    node: Node,
    transactional_id: str,
    producers: Mapping[TopicPartition, ProducerAndSequence],
    version: int,
    timeout_ms: int,
    pace: Pace,
) -> Verdicts:
    """Verify the partitions of one transaction. All `producers` have the same producer id and epoch."""
    adds = version >= ADDS_SINCE
    if not adds and not node.dynamic.get_boolean("transaction.partition.verification.enable"):
        return Verdicts(trusts=True)
    verdicts = Verdicts()
    asked: list[TopicPartition] = []
    now_ms = node.clock.now_ms()
    for partition, (producer_id, epoch, sequence) in producers.items():
        if pace.is_over(JUDGED_COST):
            await pause()
        log = node.partitions.log(partition)
        if log is None:
            continue  # the append refuses it, even if this broker has become the leader by then
        try:
            verification_guard = log.start_verification(producer_id, epoch, sequence, adds, now_ms)
        except LogRefused as refused:
            verdicts.refused[partition] = refused.code
            continue
        verdicts.terms[partition] = TransactionTerms(verification_guard)
        if verification_guard is not None:
            asked.append(partition)
    if not asked:
        return verdicts
    owner = producers[asked[0]][:2]
    question = _Question(node, transactional_id, owner, asked, adds, version, timeout_ms, verdicts)
    question.ask()
    return await question.answer


class _Question:
    """A question to the coordinator. It is repeated for a while if the producer's previous transaction is still being
    completed."""

    __slots__ = (
        "_adds",
        "_asked",
        "_deadline_ms",
        "_node",
        "_owner",
        "_transactional_id",
        "_verdicts",
        "_version",
        "answer",
    )

    def __init__(
        self,
        node: Node,
        transactional_id: str,
        owner: tuple[int, int],
        asked: list[TopicPartition],
        adds: bool,
        version: int,
        timeout_ms: int,
        verdicts: Verdicts,
    ) -> None:
        self._node = node
        self._transactional_id = transactional_id
        self._owner = owner
        self._asked = asked
        self._adds = adds
        self._version = version
        self._verdicts = verdicts
        patience_ms = min(CONCURRENT_RETRIED_MAX_MS, timeout_ms) if adds else 0
        self._deadline_ms = node.clock.monotonic_ms() + patience_ms
        self.answer: Deferred[Verdicts] = Deferred()

    def ask(self) -> None:
        self._node.when_coordinating().on_done(self._ask_verifier)

    def _ask_verifier(self, there: Deferred[Any]) -> None:
        try:
            there.result()
        except NotMade:
            not_available = dict.fromkeys(self._asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._answered(Deferred.of(not_available))
            return
        self._node.transactions.verifier.ask(
            self._transactional_id, *self._owner, self._asked, self._adds
        ).on_done(self._answered)

    def _answered(self, done: Deferred[Mapping[TopicPartition, ErrorCode]]) -> None:
        try:
            codes = done.result()
        except Exception as error:
            # The producer is answered nevertheless, and its connection goes on.
            self.answer.fail(error)
            return
        if self._adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
            now_ms = self._node.clock.monotonic_ms()
            if now_ms + CONCURRENT_RETRY_MS <= self._deadline_ms:
                self._node.transactions.timers.call_after(CONCURRENT_RETRY_MS, self.ask)
                return
        for partition, code in codes.items():
            if code is not ErrorCode.NONE:
                self._verdicts.refused[partition] = self._for_client(code)
        self.answer.resolve(self._verdicts)

    def _for_client(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        if code in _RETRIABLE_HERE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return code
