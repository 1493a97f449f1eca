"""The group coordinator's part in transactions: offsets committed in a transaction, and the markers that end it.

The transaction is verified or begun for the offsets' partition, then the offsets are written. KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import InTransaction, OperationRefused, client_error, or_refused
from kafkacompat.coordinator.shard import Shard
from kafkacompat.deferred import Deferred
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.group.offset_metadata_manager import commit_transactional_offsets
from kafkacompat.group.service import transactional_commit_refusal
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.ports import LogRefused, VerificationGuard
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.coordinator.services import TransactionVerifier
    from kafkacompat.group.meters import GroupMeters
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Tasks
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
    from kafkacompat.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

ABORTABLE_SINCE = 4
"""From this version on, clients know TRANSACTION_ABORTABLE."""
ADDS_SINCE = 5
"""From this version on, the commit itself adds the offsets' partition to the transaction."""
LOAD_IN_PROGRESS_SINCE = 2
NO_SEQUENCE = -1


class TransactionalOffsets:
    def __init__(
        self,
        partitions: PartitionService,
        clock: Clock,
        find: Callable[[str], Shard],
        at: Callable[[int], Shard],
        meters: GroupMeters,
        tasks: Tasks,
        verifier: Callable[[], TransactionVerifier | None],
    ) -> None:
        """`find` and `at` return the shard of a group and of a partition, or raise OperationRefused. Without a verifier nothing is
        verified."""
        self._partitions = partitions
        self._clock = clock
        self._find = find
        self._at = at
        self._meters = meters
        self._tasks = tasks
        self._verifier = verifier

    def commit(self, request: TxnOffsetCommitRequest, version: int) -> Deferred[TxnOffsetCommitResponse]:
        def refused(refusal: OperationRefused) -> TxnOffsetCommitResponse:
            return transactional_commit_refusal(request, _for_version(refusal.code, version))

        try:
            shard = self._find(request.group_id)
            shard.require_active()
            verification_guard = self._begin(shard, request, version)
            verifier = None if verification_guard is None else self._verifier()
            if verification_guard is None or verifier is None:
                written = self._write(shard, request, version, None)
            else:
                verified = self._write_verified(verifier, shard, request, version, verification_guard)
                written = self._tasks.run("committing offsets in a transaction", verified)
        except OperationRefused as refusal:
            return Deferred.of(refused(refusal))
        return or_refused(written, refused)

    async def _write_verified(
        self,
        verifier: TransactionVerifier,
        shard: Shard,
        request: TxnOffsetCommitRequest,
        version: int,
        verification_guard: VerificationGuard,
    ) -> TxnOffsetCommitResponse:
        """Raises OperationRefused."""
        partition = TopicPartition(OFFSETS_TOPIC, shard.partition)
        codes = await verifier.ask(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
            version >= ADDS_SINCE,
        )
        if codes[partition] is not ErrorCode.NONE:
            raise OperationRefused(client_error(codes[partition]))
        return await self._write(shard, request, version, verification_guard)

    def end(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        version: int,
    ) -> Deferred[ErrorCode]:
        try:
            ended = self._at(partition).complete_transaction(
                producer_id, producer_epoch, committed, coordinator_epoch, version
            )
        except OperationRefused as refusal:
            return Deferred.of(refusal.code)
        return or_refused(ended, lambda refusal: refusal.code)

    def _begin(self, shard: Shard, request: TxnOffsetCommitRequest, version: int) -> VerificationGuard | None:
        log = self._partitions.log(TopicPartition(OFFSETS_TOPIC, shard.partition))
        if log is None:
            raise OperationRefused(ErrorCode.NOT_COORDINATOR)
        try:
            return log.start_verification(
                request.producer_id,
                request.producer_epoch,
                NO_SEQUENCE,
                version >= ADDS_SINCE,
                self._clock.now_ms(),
            )
        except LogRefused as refused:
            raise OperationRefused(refused.code) from refused

    def _write(
        self,
        shard: Shard,
        request: TxnOffsetCommitRequest,
        version: int,
        verification_guard: VerificationGuard | None,
    ) -> Deferred[TxnOffsetCommitResponse]:
        """Raises OperationRefused, or the Deferred fails with it."""
        machine = shard.machine
        assert isinstance(machine, GroupMetadataManager)
        return shard.transactional_write(
            lambda now_ms: self._meters.committed(
                commit_transactional_offsets(machine.offsets, request, version, now_ms)
            ),
            InTransaction(request.producer_id, request.producer_epoch, verification_guard),
        )


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    """The error code that a client of that version knows."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOAD_IN_PROGRESS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
