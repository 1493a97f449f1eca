"""The transaction coordinator of this node: TransactionService.

It finds the shard of a transactional id, checks the request, runs the operation there, and completes transactions
whose markers are written. It walks all ids periodically, in steps, to abort transactions that were open too long, and
to remove ids that were unused too long. An id that fails is reported, and the others continue. Follows Kafka's
TransactionCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat import expressions
from kafkacompat.config.keys import Settings
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused, or_refused
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.coordinator.shard import OPERATION_COST, Shard, ShardSettings, ShardState, ShardTimers
from kafkacompat.coordinator.shards import TOMBSTONE_COST, Rounds, Shards, stretches
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.expressions import ExpressionRefused
from kafkacompat.faults import report
from kafkacompat.ids import TRANSACTION_TOPIC, TopicPartition
from kafkacompat.memory import NO_CONNECTION
from kafkacompat.tasks import TURN_COST, Pace, Work, pause
from kafkacompat.txn.operations import (
    EndRequest,
    Initialised,
    ListFilter,
    ProducerIdAndEpoch,
    abort_timed_out,
    add_partitions,
    checked_timeout_ms,
    describe_transaction,
    end_transaction,
    expired_id_records,
    has_timed_out,
    init_producer_id,
    list_transactions,
    verify_partitions,
)
from kafkacompat.txn.transaction_marker_channel_manager import Sending, TransactionMarkerChannelManager
from kafkacompat.txn.transaction_metadata import STATES_BY_NAME
from kafkacompat.txn.transaction_state_manager import (
    IDS_BYTES,
    Environment,
    TransactionSettings,
    TransactionStateManager,
    ids_memory,
    machine_of,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from kafkacompat.wire.messages.end_txn_response import EndTxnResponse
from kafkacompat.wire.messages.init_producer_id_response import InitProducerIdResponse
from kafkacompat.wire.messages.list_transactions_response import ListTransactionsResponse

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.inter_broker_sender import Requests
    from kafkacompat.ports import Clock, Workers
    from kafkacompat.tasks import Tasks
    from kafkacompat.txn.service import MarkerWriter, ProducerIds
    from kafkacompat.wire.messages.describe_transactions_request import DescribeTransactionsRequest
    from kafkacompat.wire.messages.end_txn_request import EndTxnRequest
    from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
    from kafkacompat.wire.messages.list_transactions_request import ListTransactionsRequest


logger = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
NAMED_A_STEP = 5_000
"""States of a filter handled in one step."""
DESCRIBED_A_STEP = 2_000
"""Partitions of transactions described in one step, at half a microsecond each."""
ID_COST = 10
CHARACTERS_LIKE_A_PARTITION = 10
"""Characters of an id that cost as much as a partition, because ids are hashed."""


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorSettings:
    """`transactions` is for the ids, the rest for the runtime. Times in ms, sizes in bytes."""

    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    append_timeout_ms: int = 60_000
    """Kafka uses each transaction's own timeout. This is a client's default one."""
    request_timeout_ms: int = 30_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000
    load_step_bytes: int = LOAD_STEP_BYTES
    ids_max_bytes: int = IDS_BYTES

    @classmethod
    def from_config(cls, config: Settings) -> TransactionCoordinatorSettings:
        """The settings in force at the start."""
        return cls(
            transactions=TransactionSettings(
                max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
                expiration_ms=config.get_int("transactional.id.expiration.ms"),
                has_two_phase_commit=config.get_boolean("transaction.two.phase.commit.enable"),
            ),
            request_timeout_ms=config.get_int("request.timeout.ms"),
            abort_interval_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_interval_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            load_step_bytes=min(config.get_int("transaction.state.log.load.buffer.size"), LOAD_STEP_BYTES),
            ids_max_bytes=config.get_int("transactional.ids.max.bytes"),
        )


class TransactionCoordinator:
    def __init__(
        self,
        services: CoordinatorServices,
        matching: Workers,
        producer_ids: ProducerIds,
        image: Callable[[], MetadataImage],
        markers: MarkerWriter,
        channel: Callable[[int], Requests | None],
        settings: TransactionCoordinatorSettings,
    ) -> None:
        """Serves nothing before `start`. `channel` returns the channel to another broker. `matching`: workers for the
        patterns of requests."""
        self._matching = matching
        self._producer_ids = producer_ids
        self._image = image
        self._clock = services.clock
        self._settings = settings
        self._shards = Shards(
            services,
            ShardSettings(
                TRANSACTION_TOPIC,
                settings.append_timeout_ms,
                load_step_bytes=settings.load_step_bytes,
                is_patient=True,
                reloads_for_new_epoch=True,
            ),
            self._make_machine,
        )
        self.load_times = self._shards.load_times
        self.markers = TransactionMarkerChannelManager(
            services.node_id,
            image,
            markers,
            channel,
            services.tasks,
            settings.request_timeout_ms,
            self._write_end,
        )
        self._memory = ids_memory(settings.ids_max_bytes)
        self._active = False
        self._sweeps = TransactionSweeps(services.clock, services.tasks, self._shards)

    # --- life

    def start(self) -> None:
        self._active = True
        self._sweeps.start(self._settings.abort_interval_ms, self._settings.expiry_interval_ms)

    def stop(self) -> None:
        """Stop serving."""
        self._active = False
        self._sweeps.stop()
        self._shards.close()
        self.markers.close()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Call it after the partition service has applied the same image, because that must know the logs it leads."""
        before = {shard.partition: shard for shard in self._shards}
        for partition in self._lost(old, new, before):
            self.markers.cancel(partition)
        self._shards.on_image(old, new)

    def _lost(self, old: MetadataImage, new: MetadataImage, before: Mapping[int, Shard]) -> list[int]:
        """Partitions that the new image gives to another coordinator, or to this one in a new epoch."""
        topic, former = new.topics.get(TRANSACTION_TOPIC), old.topics.get(TRANSACTION_TOPIC)
        is_same = topic is not None and former is not None and topic.id == former.id
        found = topic.partitions if topic is not None and is_same else {}
        return [
            index
            for index, shard in before.items()
            if index not in found or found[index].leader_epoch != shard.epoch
        ]

    def _make_machine(self, partition: int, epoch: int, timers: ShardTimers) -> TransactionStateManager:
        # A shard that is loaded anew sends again what the one before it was sending.
        self.markers.cancel(partition)
        send = partial(self.markers.send, shard_partition=partition, coordinator_epoch=epoch)
        return TransactionStateManager(
            Environment(
                self._settings.transactions,
                self._producer_ids.next_producer_id,
                lambda: self._image().features.get(TRANSACTION_VERSION, 0),
                send,
                self._memory,
            )
        )

    # --- operations

    def init_producer_id(
        self, request: InitProducerIdRequest, connection_id: int = NO_CONNECTION
    ) -> Deferred[InitProducerIdResponse]:
        """The request has both expected producer id and epoch, or neither. The caller has checked that. `connection_id`: where it
        comes from."""
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        transactional_id = request.transactional_id or ""
        timeout_ms = request.transaction_timeout_ms
        try:
            if transactional_id:
                # As in Apache Kafka, also where another node coordinates the id.
                timeout_ms = checked_timeout_ms(
                    timeout_ms, self._settings.transactions, request.enable_2pc, request.keep_prepared_txn
                )
            shard = self._shard(transactional_id)

            def operation(now_ms: int) -> CoordinatorResult[Any, InitProducerIdResponse]:
                result = init_producer_id(
                    machine_of(shard), transactional_id, timeout_ms, expected, now_ms, connection_id
                )
                return result.answering(_initialised(result.response))

            written = shard.write(operation)
        except OperationRefused as refusal:
            return Deferred.of(_refused_initialisation(refusal))
        return or_refused(written, _refused_initialisation)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> Deferred[ErrorCode]:
        now_ms = self._clock.now_ms()
        try:
            shard = self._shard(transactional_id)
            result = add_partitions(
                machine_of(shard),
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                client_version,
                now_ms,
            )
            if not result.records:
                return Deferred.of(ErrorCode.NONE)
            written = shard.write(lambda _: result.answering(ErrorCode.NONE))
        except OperationRefused as refusal:
            return Deferred.of(refusal.code)
        return or_refused(written, lambda refusal: refusal.code)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        try:
            shard = self._shard(transactional_id)
            return verify_partitions(
                machine_of(shard), transactional_id, producer_id, producer_epoch, partitions
            )
        except OperationRefused as refusal:
            return dict.fromkeys(partitions, refusal.code)

    def end_transaction(self, request: EndTxnRequest, client_version: int) -> Deferred[EndTxnResponse]:
        now_ms = self._clock.now_ms()
        try:
            shard = self._shard(request.transactional_id)
            result = end_transaction(
                machine_of(shard),
                request.transactional_id,
                EndRequest(request.producer_id, request.producer_epoch, request.committed, client_version),
                now_ms,
            )
            answer = result.response
            response = EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.epoch)
            if not result.records:
                return Deferred.of(response)
            written = shard.write(lambda _: result.answering(response))
        except OperationRefused as refusal:
            return Deferred.of(_refused_end(refusal))
        return or_refused(written, _refused_end)

    # --- looking

    def describe_transactions(
        self, request: DescribeTransactionsRequest
    ) -> Work[DescribeTransactionsResponse]:
        """An id that is named twice is described once, because Kafka's clients keep the answers in a map."""
        described: dict[str, TransactionState] = {}
        pace = Pace(DESCRIBED_A_STEP)
        for transactional_id in request.transactional_ids:
            told = described.get(transactional_id)
            if told is None:
                told = described[transactional_id] = self._describe(transactional_id)
            partitions = sum([len(topic.partitions) for topic in told.topics])
            if pace.is_over(ID_COST + len(transactional_id) // CHARACTERS_LIKE_A_PARTITION + partitions):
                yield TURN_COST
        return DescribeTransactionsResponse(transaction_states=list(described.values()))

    def _describe(self, transactional_id: str) -> TransactionState:
        try:
            return describe_transaction(machine_of(self._shard(transactional_id)), transactional_id)
        except OperationRefused as refusal:
            return TransactionState(transactional_id=transactional_id, error_code=refusal.code)

    async def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        if not self._active:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        pattern = request.transactional_id_pattern
        try:
            matches = partial(_matches, expressions.compiled(pattern)) if pattern else None
        except ExpressionRefused:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        names: dict[str, None] = {}
        for start in range(0, len(request.state_filters), NAMED_A_STEP):
            if start:
                await pause()
            names.update(dict.fromkeys(request.state_filters[start : start + NAMED_A_STEP]))
        wanted = ListFilter(
            states=frozenset(state for name, state in STATES_BY_NAME.items() if name in names)
            if names
            else None,
            producer_ids=frozenset(request.producer_id_filters),
            open_longer_than_ms=request.duration_filter,
            matches_id=matches,
        )
        now_ms = self._clock.now_ms()
        response = ListTransactionsResponse(
            unknown_state_filters=[name for name in names if name not in STATES_BY_NAME]
        )
        for shard in list(self._shards.started()):
            if shard.state is ShardState.LOADING:
                return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if shard.state is ShardState.ACTIVE:
                listed = await list_transactions(machine_of(shard), wanted, now_ms, self._matching)
                if shard.state is ShardState.ACTIVE:  # otherwise another node leads them by now
                    response.transaction_states += listed
        return response

    # --- the end of transactions

    def _write_end(self, sending: Sending) -> Deferred[None]:
        shard = self._shards.get(sending.shard_partition)
        if shard is None or shard.epoch != sending.coordinator_epoch or shard.state is not ShardState.ACTIVE:
            return Deferred.of(None)
        transactional_id = sending.markers.transactional_id
        return shard.write(lambda _: machine_of(shard).complete(transactional_id))

    # --- finding the shard

    def _shard(self, transactional_id: str) -> Shard:
        """The active shard of an id. Raises OperationRefused."""
        if not self._active:
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            raise OperationRefused(ErrorCode.INVALID_REQUEST)
        shard = self._shards.shard_for(transactional_id)
        shard.require_active()
        return shard


def _initialised(answer: Initialised) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=answer.error, producer_id=answer.producer_id, producer_epoch=answer.epoch
    )


def _refused_initialisation(refusal: OperationRefused) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=refusal.code, producer_id=-1, producer_epoch=-1)


def _refused_end(refusal: OperationRefused) -> EndTxnResponse:
    return EndTxnResponse(error_code=refusal.code)


def _matches(expression: Any, transactional_id: str) -> bool:
    return expression.fullmatch(transactional_id) is not None


_LATER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors for a timed-out transaction that another request is ending."""


class TransactionSweeps:
    """Call `start`, then `stop`. A sweep that is not complete at the next interval continues."""

    def __init__(self, clock: Clock, tasks: Tasks, shards: Iterable[Shard]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._rounds = Rounds(tasks, lambda: shards)

    def start(self, abort_interval_ms: int, expiry_interval_ms: int) -> None:
        self._rounds.plan("the sweep to abort transactions", abort_interval_ms, self._abort_timed_out)
        self._rounds.plan("the sweep to expire transactions", expiry_interval_ms, self._expire)

    def stop(self) -> None:
        self._rounds.stop()

    def _abort_timed_out(self, shard: Shard) -> Work[None]:
        machine = machine_of(shard)
        for transaction in list(machine.transactions.values()):
            now_ms = self._clock.now_ms()
            if has_timed_out(machine, transaction, now_ms):
                transactional_id = transaction.transactional_id
                what = f"aborting the transaction of {transactional_id!r}"
                self._tasks.start(what, self._abort(shard, transactional_id))
                yield OPERATION_COST
            else:
                yield 1

    async def _abort(self, shard: Shard, transactional_id: str) -> None:
        try:
            await shard.write(partial(abort_timed_out, machine_of(shard), transactional_id))
        except OperationRefused as refusal:
            if refusal.code not in _LATER:
                logger.warning(
                    "the transaction of %r, whose time is over, is not aborted: %s", transactional_id, refusal
                )
        else:
            logger.info("the transaction of %r is aborted, its time is over", transactional_id)

    def _expire(self, shard: Shard) -> Work[None]:
        machine = machine_of(shard)
        for stretch in stretches(iter(list(machine.transactions.values()))):
            now_ms = self._clock.now_ms()
            try:
                expired = expired_id_records(machine, stretch, now_ms)
            except Exception as error:
                report("looking for unused transactional ids", error)
                expired = []
            for result in expired:
                self._tasks.start("forgetting unused transactional ids", _forget(shard, result))
                yield len(result.records) * TOMBSTONE_COST
            yield len(stretch)


async def _forget(shard: Shard, result: CoordinatorResult[Any, None]) -> None:
    try:
        await shard.write(lambda _: result)
    except OperationRefused as refusal:
        logger.warning("transactional ids that are unused stay: %s", refusal)
