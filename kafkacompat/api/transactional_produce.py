"""Produce within a transaction: its partitions are verified, or added, before anything is appended. KIP-890.

This module finds the partitions that the transaction coordinator must verify, asks it, and sets the error of each
refused partition. A partition whose log already has the open transaction needs no verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.dataclass import dataclass
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
OPENED_COST = 200
"""The cost of a partition whose log the request opens."""


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
        if pace.is_over(OPENED_COST if node.partitions.opens_logs else JUDGED_COST):
            await pause()
        if not node.partitions.leads(partition):
            continue  # the append refuses it, even if this broker has become the leader by then
        try:
            verification_guard = node.partitions.start_verification(
                partition, producer_id, epoch, sequence, adds, now_ms
            )
        except LogRefused as refused:
            verdicts.refused[partition] = refused.code
            continue
        verdicts.terms[partition] = TransactionTerms(verification_guard)
        if verification_guard is not None:
            asked.append(partition)
    if not asked:
        return verdicts
    owner = producers[asked[0]][:2]
    patience_ms = min(CONCURRENT_RETRIED_MAX_MS, timeout_ms) if adds else 0
    for partition, code in (await _verified(node, transactional_id, owner, asked, adds, patience_ms)).items():
        if code is not ErrorCode.NONE:
            verdicts.refused[partition] = _for_client(code, adds, version)
    return verdicts


async def _verified(
    node: Node,
    transactional_id: str,
    owner: tuple[int, int],
    asked: list[TopicPartition],
    adds: bool,
    patience_ms: int,
) -> Mapping[TopicPartition, ErrorCode]:
    """Ask the coordinator, again for a while if the producer's previous transaction is still being completed."""
    deadline_ms = node.clock.monotonic_ms() + patience_ms
    while True:
        try:
            await node.when_coordinating()
        except NotMade:
            return dict.fromkeys(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        codes = await node.transactions.verifier.ask(transactional_id, *owner, asked, adds)
        if not adds or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
            return codes
        if node.clock.monotonic_ms() + CONCURRENT_RETRY_MS > deadline_ms:
            return codes
        # A client that leaves meanwhile takes nothing back of what it has sent.
        retry = node.transactions.tasks.sleep(CONCURRENT_RETRY_MS)
        retry.when_abandoned = None
        await retry


def _for_client(code: ErrorCode, adds: bool, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code in _RETRIABLE_HERE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
