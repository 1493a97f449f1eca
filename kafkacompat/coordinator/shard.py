"""One coordinator partition that this node leads: its machine, its timers, and its operations through the log.

It loads the state, runs operations one at a time (`turns`), appends the records of each as one batch, sends answers when
they are committed, and unloads. The order is: operation, append, replay, `committed`, then replies, because a reply may
cause the next request at once. Long work (loading, unloading, very many replies) runs in steps. Follows Kafka's coordinator
runtime. The append is synchronous here, so only records in the log are replayed, and nothing is reverted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kafkacompat.coordinator.core import (
    Caller,
    CoordinatorResult,
    Damaged,
    InTransaction,
    Machine,
    PartitionWriter,
    RecordRun,
    Refused,
    Reply,
    client_error,
)
from kafkacompat.coordinator.loading import (
    LOAD_RETRY_MS,
    LOAD_STEP_BYTES,
    RETRY_MAX_MS,
    USUAL_COSTS,
    LoadCosts,
    Loader,
    Loading,
)
from kafkacompat.coordinator.shard_log import ShardLog
from kafkacompat.coordinator.timers import Operation, ShardTimers
from kafkacompat.coordinator.turns import Turns
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.records.batch import NO_SEQUENCE
from kafkacompat.stepping.works import Steps, Work
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.meters import RecentTimes
    from kafkacompat.ports import Clock, Timers, Workers
    from kafkacompat.wire.message import Message

T = TypeVar("T")
logger = logging.getLogger(__name__)

OPERATION_COST = 200
REPLIES_AT_ONCE = 50
"""More replies of one operation are sent in steps: a rebalance may answer a group of 10,000 members at once."""
REPLY_COST = 80
DAMAGED_RETRY_MS = 30_000
"""Delay before a damaged partition that nobody else could lead is tried again. It costs one read."""


class ShardState(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_ACTIVE = ShardState.ACTIVE
"""A module's name, because looking up an enum member is far slower."""


class Shard:
    __slots__ = (
        "_began_ms",
        "_clock",
        "_is_patient",
        "_load_costs",
        "_load_step_bytes",
        "_load_times",
        "_log",
        "_make_machine",
        "_timers",
        "_turns",
        "_workers",
        "epoch",
        "loading",
        "machine",
        "on_active",
        "partition",
        "state",
        "steps",
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
        base_sequence: int = NO_SEQUENCE,
        load_step_bytes: int = LOAD_STEP_BYTES,
        on_active: Callable[[Shard], None] | None = None,
        is_patient: bool = False,
        load_times: RecentTimes | None = None,
        load_costs: LoadCosts = USUAL_COSTS,
    ) -> None:
        """`workers` None: cold reads block (the simulator's disk has none).

        `is_patient`: the shard becomes active only after everything that it has loaded is committed. Machines need it that
        act on what they loaded before they write anything. `base_sequence` is that of each batch that the shard writes.
        """
        self._is_patient = is_patient
        self._load_times = load_times
        self._load_costs = load_costs
        self._began_ms = 0
        """When the load began."""
        self.partition = partition
        self.epoch = epoch
        self.state = ShardState.INITIAL
        self._log = ShardLog(writer, partition, compression, base_sequence)
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self.steps = steps
        self._turns = Turns()
        self._load_step_bytes = load_step_bytes
        self._make_machine = make_machine
        self.timers = ShardTimers(clock, timers, self._run_timer)
        self.machine = make_machine(self.timers)
        self.on_active = on_active
        self.loading: Loading | None = None

    # --- life

    def start(self) -> None:
        """Begin to load, or become active at once if the log is empty. The shard stays INITIAL while there is no log."""
        log = self._log.found()
        if log is None:
            return
        self._began_ms = self._clock.monotonic_ms()
        if log.log_end_offset == log.log_start_offset:
            self._activate()
            return
        self.state = ShardState.LOADING
        self.loading = Loading(
            log,
            self.machine,
            self._log.found,
            self.steps,
            self._timers,
            self._workers,
            self._load_step_bytes,
            lambda: self.state is ShardState.LOADING,
            self._finish_load,
            self._fail,
            self._load_costs,
        )
        self._timers.call_after(0, self.loading.read_on)

    def close(self) -> None:
        """The leadership is lost: stop serving and writing, and answer waiting requests."""
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        self.steps.start_now("unloading a coordinator's partition", self._unload(was_active))

    def _unload(self, was_active: bool) -> Work:
        """Free the state in steps, because freeing millions of objects also takes time."""
        timers, machine = self.timers, self.machine
        if was_active:
            for cost, replies in machine.unload(self._clock.now_ms()):
                self._send(replies)
                yield cost
        yield from timers.cancel_all()
        yield from machine.take_apart()

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def require_active(self) -> None:
        if self.state is ShardState.ACTIVE:
            return
        if self.state is ShardState.LOADING:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise Refused(ErrorCode.NOT_COORDINATOR)

    # --- operations

    def write(self, operation: Callable[[int], CoordinatorResult[Any, T]]) -> Deferred[T]:
        """Run one operation. Raises Refused (nothing has changed), or the Deferred fails with it."""
        return self._turns.next(lambda: self._write(operation, None))

    def ask(self, operation: Callable[[Caller, int], CoordinatorResult[Any, None]]) -> Deferred[Any]:
        """Run an operation that answers its caller by a reply, now or in a later operation. Raises Refused, or the
        Deferred fails with it, if the operation was not carried out. What the log refuses, the operation answers."""
        return self._turns.next(lambda: self._ask(operation))

    def transactional_write(
        self, operation: Callable[[int], CoordinatorResult[Any, T]], owner: InTransaction
    ) -> Deferred[T]:
        """Like `write`, but the records take effect only with the transaction's marker."""
        return self._turns.next(lambda: self._write(operation, owner))

    def complete_transaction(
        self, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, version: int
    ) -> Deferred[ErrorCode]:
        """Write a marker, and have the machine take or drop what the transaction wrote. Raises Refused, or the Deferred
        fails with it."""
        return self._turns.next(
            lambda: self._complete_transaction(producer_id, epoch, committed, coordinator_epoch, version)
        )

    def _complete_transaction(
        self, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, version: int
    ) -> Deferred[ErrorCode]:
        self.require_active()
        now_ms = self._clock.now_ms()

        def append() -> tuple[ErrorCode, int]:
            error, offset = self._log.append_marker(
                producer_id, epoch, committed, coordinator_epoch, version, now_ms
            )
            if error is ErrorCode.NONE:
                self.machine.replay_end_transaction(producer_id, epoch, committed, offset)
            return error, offset

        error, offset = self._turns.take(append)
        pending = None if error is not ErrorCode.NONE else self._log.when_committed(offset + 1)
        return Deferred.of(error) if pending is None else pending

    def in_turn(self, act: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Do what looks at the state before it writes: now, or when the record of the present operation is replayed."""
        return self._turns.next(act)

    def at_once(self, operation: Callable[[int], bool]) -> bool:
        """Run an operation that writes nothing and answers nobody. It returns whether it has done what is to be done. False
        without a call if another operation is under way, or what is seen is not committed yet."""
        if self.state is not _ACTIVE or self._turns.is_taken or not self._log.is_all_committed:
            return False
        return operation(self._clock.now_ms())

    def read(self, operation: Callable[[], T]) -> Deferred[T]:
        """An answer from the state, given when everything it may show is committed."""
        self.require_active()
        value = operation()
        pending = self._log.when_all_committed()
        return Deferred.of(value) if pending is None else self._after(pending, value)

    # --- carrying a write out

    def _write(
        self, operation: Callable[[int], CoordinatorResult[Any, T]], owner: InTransaction | None
    ) -> Deferred[T]:
        self.require_active()
        now_ms = self._clock.now_ms()
        return self._complete(operation(now_ms), now_ms, owner)

    def _ask(self, operation: Callable[[Caller, int], CoordinatorResult[Any, None]]) -> Deferred[Any]:
        self.require_active()
        now_ms = self._clock.now_ms()
        answer: Deferred[Any] = Deferred()
        written = self._complete(operation(Caller(answer), now_ms), now_ms)
        written.unheeded(f"an operation of coordinator partition {self.partition}", Refused)
        return answer

    def _complete(
        self, result: CoordinatorResult[Any, T], now_ms: int, owner: InTransaction | None = None
    ) -> Deferred[T]:
        """The response, once the records are committed. Without records, once everything it may show is."""
        if result.records:
            error, end_offset = self._turns.take(partial(self._append, result, now_ms, owner))
            if error is not ErrorCode.NONE:
                answer: Deferred[T] = Deferred()
                answer.fail(Refused(client_error(error)))
                return answer
            pending = self._log.when_committed(end_offset)
        else:
            pending = self._log.when_all_committed()
        if pending is None or pending.done:
            self._finish(result, ErrorCode.NONE if pending is None else pending.result(), result.replies)
            return Deferred.of(result.response) if pending is None else self._after(pending, result.response)
        if result.committed is not None:
            pending.on_done(lambda done: self._finish(result, done.result(), ()))
        self._send(result.replies)
        return self._after(pending, result.response)

    def _append(
        self, result: CoordinatorResult[Any, T], now_ms: int, owner: InTransaction | None
    ) -> tuple[ErrorCode, int]:
        """(error, end offset). Records in the log are replayed. If the log has refused them, the operation is undone."""
        try:
            error, first_offset, end_offset = self._log.append(
                result.records, self.machine.encode, now_ms, owner
            )
        except Exception:
            self._undo(result, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if error is not ErrorCode.NONE:
            self._undo(result, error)
        elif result.replay:
            try:
                self._replay(result, first_offset, -1 if owner is None else owner.producer_id)
            except Exception:
                self._send(result.replies)  # nobody else would
                raise
        return error, end_offset

    def _replay(self, result: CoordinatorResult[Any, Any], offset: int, producer_id: int) -> None:
        for record in result.records:
            if isinstance(record, RecordRun):
                offset += record.count
                if record.apply is not None:
                    record.apply()
            else:
                self.machine.replay(record, offset, producer_id)
                offset += 1

    def _undo(self, result: CoordinatorResult[Any, Any], error: ErrorCode) -> None:
        if result.refused is not None:
            result.refused()
        self._finish(result, error, result.replies)

    def _finish(
        self, result: CoordinatorResult[Any, Any], error: ErrorCode, replies: Sequence[Reply]
    ) -> None:
        """The records are committed, or it is known that they are not. `replies`: those that were not sent before."""
        if result.committed is None:
            self._send(replies)
            return
        now_ms = self._clock.now_ms()
        following = result.committed(error if error is ErrorCode.NONE else client_error(error), now_ms)
        self._send(replies)
        if following is None:
            return
        if self.state is not ShardState.ACTIVE or (not following.records and following.committed is None):
            self._send(following.replies)
            return
        # What the log refuses is undone (CoordinatorResult.refused).
        self._turns.next(partial(self._complete, following, now_ms)).unheeded(
            f"what follows a write to coordinator partition {self.partition}", Refused
        )

    def _after(self, pending: Deferred[ErrorCode], value: T) -> Deferred[T]:
        def release(error: ErrorCode) -> T:
            if error is not ErrorCode.NONE:
                raise Refused(client_error(error))
            return value

        return pending.then(release)

    def _send(self, replies: Sequence[Reply]) -> None:
        if len(replies) > REPLIES_AT_ONCE:
            self.steps.start_now("answering members", _sent_in_steps(replies))
            return
        for caller, message in replies:
            _answer(caller, message)

    def _run_timer(self, operation: Operation) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        try:
            # What the log refuses is undone: the timer of a session is set again, for example.
            self.write(operation).unheeded(
                f"a timer's operation of coordinator partition {self.partition}", Refused
            )
        except Refused as refusal:
            logger.warning(
                "coordinator partition %d: a timer's operation was refused: %s", self.partition, refusal
            )

    # --- loading

    def _activate(self) -> None:
        self.state = ShardState.ACTIVE
        if self._load_times is not None:
            now_ms = self._clock.monotonic_ms()
            self._load_times.note(now_ms - self._began_ms, now_ms)
        self.steps.start_now("taking up a coordinator's partition", self._take_up())
        if self.on_active is not None:
            self.on_active(self)

    def _take_up(self) -> Work:
        for result in self.machine.on_loaded(self._clock.now_ms()):
            if self.state is not ShardState.ACTIVE:
                return
            if result is not None:
                self._write_unasked(result)
            yield 2 if result is None else OPERATION_COST

    def _write_unasked(self, result: CoordinatorResult[Any, None]) -> None:
        what = f"writing to coordinator partition {self.partition}"
        try:
            self.write(lambda _: result).unheeded(what, Refused)
        except Exception as error:
            report(what, error)

    def _fail(self, reason: object) -> None:
        if isinstance(reason, MemoryError):
            self._begin_anew()
            return
        self.state = ShardState.FAILED
        if isinstance(reason, Damaged):
            self._leave_to_others(reason)
            return
        logger.error(
            "coordinator partition %d cannot be loaded, its groups are not served: %s", self.partition, reason
        )
        self.loading = None

    def _begin_anew(self) -> None:
        """A part of a batch may be applied already, so the whole state is loaded again."""
        logger.error("coordinator partition %d is loaded anew: there was no memory for it", self.partition)
        self.steps.start_now("unloading a coordinator's partition", self._unload(was_active=False))
        self.loading = None
        self.timers = ShardTimers(self._clock, self._timers, self._run_timer)
        self.machine = self._make_machine(self.timers)
        self._timers.call_after(RETRY_MAX_MS, self._load_again)

    def _leave_to_others(self, damage: Damaged) -> None:
        """Clients look for the coordinator again, and find the new leader. Without one the load is tried again: the files
        may be repaired, or a replica may return."""
        assert self.loading is not None
        is_handed_over = self._log.hand_over(self.loading.next_offset)
        logger.error(
            "coordinator partition %d is damaged on this node's disk and cannot be loaded: %s; %s",
            self.partition,
            damage,
            "another replica takes over" if is_handed_over else "no other replica could take over",
        )
        self._timers.call_after(DAMAGED_RETRY_MS, self._load_again)

    def _load_again(self) -> None:
        if self.state is ShardState.LOADING and self.loading is None:
            self.start()
        elif self.state is ShardState.FAILED and self.loading is not None:
            self.state = ShardState.LOADING
            self.loading.read_on()

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
        """Loaded records that an earlier leader did not commit may still be lost."""
        if self.state is not ShardState.LOADING:
            return
        pending = self._log.when_loaded_is_committed(end_offset)
        if pending is None:
            self._activate()
            return

        def decided(done: Deferred[ErrorCode]) -> None:
            delay_ms = 0 if done.result() is ErrorCode.NONE else LOAD_RETRY_MS
            self._timers.call_after(delay_ms, lambda: self._activate_when_committed(end_offset))

        pending.on_done(decided)


def _sent_in_steps(replies: Sequence[Reply]) -> Work:
    for caller, message in replies:
        _answer(caller, message)
        yield REPLY_COST


def _answer(caller: Caller, message: Message) -> None:
    try:
        cast("Deferred[Message]", caller).resolve(message)
    except Exception as error:  # it was answered before
        report("answering a member", error)
