"""One coordinator partition that this node leads: its machine, its timers, and the way of an operation through the log.

Load, run operations one at a time, append their records as one batch each, release answers when they are committed, unload.
Order kept: operation, append, replay, `committed`, replies last, since a reply may bring the next request in at once. What is
long (loading, unloading, very many replies) goes in steps. Follows Kafka's coordinator runtime; the append is synchronous
here, so nothing is ever replayed that the log has not taken, and nothing needs to be reverted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.coordinator.core import (
    UNBOUNDED,
    CoordinatorResult,
    InTransaction,
    Machine,
    PartitionWriter,
    Refused,
    client_error,
)
from kafkacompat.coordinator.loading import LOAD_RETRY_MS, LOAD_STEP_BYTES, Loader, Loading
from kafkacompat.coordinator.timers import Operation, ShardTimers
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ports import TransactionTerms
from kafkacompat.records.batch import build_batch
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.record import Record
from kafkacompat.stepping.works import Steps, Work
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, Timers, Workers

T = TypeVar("T")
logger = logging.getLogger(__name__)

REPLIES_AT_ONCE = 50
"""More of one operation are sent in steps: a group of 10,000 members is told of a rebalance at once."""
REPLY_COST = 80
OPERATION_COST = 200


class ShardState(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class Shard:
    __slots__ = (
        "_clock",
        "_compression",
        "_doubtful_end",
        "_is_patient",
        "_load_step_bytes",
        "_steps",
        "_timers",
        "_uncommitted",
        "_workers",
        "_writer",
        "epoch",
        "loading",
        "machine",
        "on_active",
        "partition",
        "state",
        "timers",
    )

    def __init__(
        self,
        partition: int,
        epoch: int,
        writer: PartitionWriter,
        clock: Clock,
        timers: Timers,
        workers: Workers | None,
        steps: Steps,
        make_machine: Callable[[ShardTimers], Machine[Any]],
        *,
        compression: int = 0,
        load_step_bytes: int = LOAD_STEP_BYTES,
        on_active: Callable[[Shard], None] | None = None,
        is_patient: bool = False,
    ) -> None:
        """`workers` None: cold reads block (the simulator's disk has none). `is_patient`: active only once all that was
        loaded is committed, for a machine that acts on it before it writes anything itself."""
        self._is_patient = is_patient
        self.partition = partition
        self.epoch = epoch
        self.state = ShardState.INITIAL
        self._writer = writer
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self._steps = steps
        self._compression = compression
        self._load_step_bytes = load_step_bytes
        self._uncommitted: Deferred[ErrorCode] | None = None
        """The latest append that is not committed yet."""
        self._doubtful_end = -1
        """Where the latest append ends when the wait for it has failed."""
        self.timers = ShardTimers(clock, timers, self._run_timer)
        self.machine = make_machine(self.timers)
        self.on_active = on_active
        self.loading: Loading | None = None

    # --- life

    def start(self) -> None:
        """Begin to load, or be active at once when there is nothing to load. Stays INITIAL while there is no log."""
        log = self._writer.log(self.partition)
        if log is None:
            return
        if log.log_end_offset == log.log_start_offset:
            self._activate()
            return
        self.state = ShardState.LOADING
        self.loading = Loading(
            log,
            self.machine,
            lambda: self._writer.log(self.partition),
            self._steps,
            self._timers,
            self._workers,
            self._load_step_bytes,
            lambda: self.state is ShardState.LOADING,
            self._finish_load,
            self._fail,
        )
        self._timers.call_after(0, self.loading.read_on)

    def close(self) -> None:
        """Leadership is gone: nothing is served or written from now on, and whoever waits is told."""
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        self._steps.start_now("unloading a coordinator's partition", self._unload(was_active))

    def _unload(self, was_active: bool) -> Work:
        """Taken apart piece by piece: to free millions of objects takes its time as well."""
        if was_active:
            for cost in self.machine.unload(self._clock.now_ms()):
                self._send_replies()
                yield cost
        yield from self.timers.cancel_all()
        yield from self.machine.take_apart()

    @property
    def end_offset(self) -> int:
        """Where the log ends just now; -1 without one."""
        log = self._writer.log(self.partition)
        return -1 if log is None else log.log_end_offset

    def require_active(self) -> None:
        if self.state is ShardState.ACTIVE:
            return
        if self.state is ShardState.LOADING:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise Refused(ErrorCode.NOT_COORDINATOR)

    # --- operations

    def write(self, operation: Callable[[int], CoordinatorResult[Any, T]]) -> Deferred[T]:
        """Carry out one operation. Raises Refused (nothing has changed), or the Deferred fails with it."""
        self.require_active()
        now_ms = self._clock.now_ms()
        return self.carry_out(self._decide(operation, now_ms), now_ms)

    def transactional_write(
        self, operation: Callable[[int], CoordinatorResult[Any, T]], owner: InTransaction
    ) -> Deferred[T]:
        """As `write`, but the records count only once the transaction's marker says so."""
        self.require_active()
        now_ms = self._clock.now_ms()
        return self.carry_out(self._decide(operation, now_ms), now_ms, owner)

    def complete_transaction(
        self, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, version: int
    ) -> Deferred[ErrorCode]:
        """Write a marker, and have the machine take or drop what the transaction wrote. Raises Refused."""
        self.require_active()
        marker = build_end_transaction_marker(
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        terms = TransactionTerms(transaction_version=version)
        error, offset = self._writer.append_transactional(self.partition, marker, terms)
        if error is not ErrorCode.NONE:
            return Deferred.of(error)
        self.machine.replay_end_transaction(producer_id, epoch, committed, offset)
        pending = self._writer.when_committed(self.partition, offset + 1)
        if pending is None or pending.done:
            return Deferred.of(ErrorCode.NONE) if pending is None else pending
        self._wait_for(pending, offset + 1)
        return pending

    def read(self, operation: Callable[[], T]) -> Deferred[T]:
        """An answer from the state, released once everything that it may show is committed."""
        self.require_active()
        value = operation()
        pending = self._pending()
        return Deferred.of(value) if pending is None else self._after(pending, value)

    def carry_out(
        self, result: CoordinatorResult[Any, T], now_ms: int, owner: InTransaction | None = None
    ) -> Deferred[T]:
        pending: Deferred[ErrorCode] | None = None
        if result.records:
            try:
                error, first_offset, end_offset = self._append(result.records, now_ms, owner)
            except Exception:
                if result.refused is not None:
                    result.refused()
                self._finish(result, ErrorCode.UNKNOWN_SERVER_ERROR)
                raise
            if error is not ErrorCode.NONE:
                if result.refused is not None:
                    result.refused()
                self._finish(result, error)
                answer: Deferred[T] = Deferred()
                answer.fail(Refused(client_error(error)))
                return answer
            if result.replay:
                producer_id = -1 if owner is None else owner.producer_id
                for index, record in enumerate(result.records):
                    self.machine.replay(record, first_offset + index, producer_id)
            pending = self._writer.when_committed(self.partition, end_offset)
            if pending is not None and not pending.done:
                self._wait_for(pending, end_offset)
            elif pending is not None and pending.result() is not ErrorCode.NONE:
                self._doubtful_end = end_offset
        else:
            pending = self._pending()
        if pending is None or pending.done:
            self._finish(result, ErrorCode.NONE if pending is None else pending.result())
            return Deferred.of(result.response) if pending is None else self._after(pending, result.response)
        if result.committed is not None:
            pending.on_done(lambda done: self._finish(result, done.result()))
        self._send_replies()
        return self._after(pending, result.response)

    def try_to_carry_out(self, result: CoordinatorResult[Any, None]) -> bool:
        """For what nobody waits for: False when the log has not taken it, or when it failed, which is reported."""
        try:
            answer = self.carry_out(result, self._clock.now_ms())
        except Exception as error:
            report(f"writing to coordinator partition {self.partition}", error)
            return False
        return not (answer.done and answer.has_failed)

    def _decide(
        self, operation: Callable[[int], CoordinatorResult[Any, T]], now_ms: int
    ) -> CoordinatorResult[Any, T]:
        try:
            return operation(now_ms)
        except BaseException:
            self._send_replies()  # whoever was answered on the way is not to wait for the next operation
            raise

    def _append(
        self, records: tuple[Any, ...], now_ms: int, owner: InTransaction | None
    ) -> tuple[ErrorCode, int, int]:
        """(error, first offset, end offset)."""
        encode = self.machine.encode
        entries = []
        left = self.batch_bytes_max()
        for index, record in enumerate(records):
            key, value = encode(record)
            entries.append(Record(index, now_ms, key, value))
            left -= len(key) + (0 if value is None else len(value))
            if left < 0:
                break
        error, last_offset = ErrorCode.MESSAGE_TOO_LARGE, -1
        if left < 0:
            pass  # the log would say so of the whole batch
        elif owner is None:
            batch = build_batch(entries, compression=self._compression)
            error, last_offset = self._writer.append(self.partition, batch)
        else:
            batch = build_batch(
                entries,
                compression=self._compression,
                producer_id=owner.producer_id,
                producer_epoch=owner.epoch,
                is_transactional=True,
            )
            terms = TransactionTerms(owner.verification_guard)
            error, last_offset = self._writer.append_transactional(self.partition, batch, terms)
        if error is not ErrorCode.NONE:
            logger.warning(
                "coordinator partition %d: %d records could not be written: %s",
                self.partition,
                len(records),
                error.name,
            )
        return error, last_offset - len(records) + 1, last_offset + 1

    def batch_bytes_max(self) -> int:
        """What keys and values of one operation's records may take; more are refused. No bound where they are compressed."""
        log = None if self._compression else self._writer.log(self.partition)
        return UNBOUNDED if log is None else log.config.max_message_bytes

    def _wait_for(self, pending: Deferred[ErrorCode], end_offset: int) -> None:
        self._uncommitted = pending

        def done(finished: Deferred[ErrorCode]) -> None:
            if self._uncommitted is pending:
                self._uncommitted = None
                self._doubtful_end = -1 if finished.result() is ErrorCode.NONE else end_offset

        pending.on_done(done)

    def _pending(self) -> Deferred[ErrorCode] | None:
        """What an answer out of the state waits for; None when all of it is committed."""
        if self._uncommitted is None and self._doubtful_end >= 0:
            pending = self._writer.when_committed(self.partition, self._doubtful_end)
            if pending is not None and pending.done:
                return pending
            if pending is not None:
                self._wait_for(pending, self._doubtful_end)
            self._doubtful_end = -1
        return self._uncommitted

    def _finish(self, result: CoordinatorResult[Any, Any], error: ErrorCode) -> None:
        if result.committed is not None:
            code = error if error is ErrorCode.NONE else client_error(error)
            now_ms = self._clock.now_ms()
            following = result.committed(code, now_ms)
            if following is not None and self.state is ShardState.ACTIVE:
                self.carry_out(following, now_ms)
        self._send_replies()

    def _after(self, pending: Deferred[ErrorCode], value: T) -> Deferred[T]:
        def release(error: ErrorCode) -> T:
            if error is not ErrorCode.NONE:
                raise Refused(client_error(error))
            return value

        return pending.then(release)

    def _send_replies(self) -> None:
        replies = self.machine.take_replies()
        if len(replies) > REPLIES_AT_ONCE:
            self._steps.start_now("answering members", _send(replies))
            return
        for waiter, message in replies:
            _answer(waiter, message)

    def _run_timer(self, operation: Operation) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        now_ms = self._clock.now_ms()
        try:
            result = self._decide(operation, now_ms)
        except Refused as refusal:
            logger.warning(
                "coordinator partition %d: a timer's operation was refused: %s", self.partition, refusal
            )
            return
        self.carry_out(result, now_ms)

    # --- loading

    def _activate(self) -> None:
        self.state = ShardState.ACTIVE
        self._steps.start_now("taking up a coordinator's partition", self._take_up())
        if self.on_active is not None:
            self.on_active(self)

    def _take_up(self) -> Work:
        for result in self.machine.on_loaded(self._clock.now_ms()):
            if self.state is not ShardState.ACTIVE:
                return
            if result is not None:
                self.try_to_carry_out(result)
            yield 2 if result is None else OPERATION_COST

    def _fail(self, reason: object) -> None:
        logger.error(
            "coordinator partition %d cannot be loaded, its groups are not served: %s", self.partition, reason
        )
        self.state = ShardState.FAILED
        self.loading = None

    def _finish_load(self, loader: Loader) -> None:
        for kind, count in loader.skipped.items():
            logger.warning(
                "coordinator partition %d: %d records of the unknown type %d are passed over",
                self.partition,
                count,
                kind,
            )
        logger.debug("coordinator partition %d: %d records loaded", self.partition, loader.record_count)
        self.loading = None
        if self._is_patient:
            self._activate_when_committed(loader.next_offset)
        else:
            self._activate()

    def _activate_when_committed(self, end_offset: int) -> None:
        """What another leader appended and could not commit may be lost with this one as well."""
        if self.state is not ShardState.LOADING:
            return
        pending = self._writer.when_committed(self.partition, end_offset)
        if pending is None:
            self._activate()
            return

        def decided(done: Deferred[ErrorCode]) -> None:
            delay_ms = 0 if done.result() is ErrorCode.NONE else LOAD_RETRY_MS
            self._timers.call_after(delay_ms, lambda: self._activate_when_committed(end_offset))

        pending.on_done(decided)


def _send(replies: list[tuple[Any, Any]]) -> Work:
    for waiter, message in replies:
        _answer(waiter, message)
        yield REPLY_COST


def _answer(waiter: Deferred[Any], message: Any) -> None:
    try:
        waiter.resolve(message)
    except Exception as error:  # answered before
        report("answering a member", error)
