"""One coordinator partition that this node leads: its machine, its timers, and its operations through the log.

It loads the state, runs operations one at a time (`OperationQueue`), appends the records of each as one batch, sends answers when
they are committed, and unloads. The order is: operation, append, replay, `committed`, then replies, because a reply may
cause the next request at once. Long work (loading, unloading, very many replies) runs in steps. Follows Kafka's coordinator
runtime. The append is synchronous here, so only records in the log are replayed, and nothing is reverted.

A key of a timer has at most one pending operation, the latest. A key is the object itself and not its name, because a name may be
reused. Every heartbeat delays the end of a session, so a delay postpones the timer and sets no new one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from weakref import ref

from kafkacompat.coordinator.core import (
    Caller,
    CoordinatorResult,
    Damaged,
    InTransaction,
    LoadFailure,
    Machine,
    OperationRefused,
    PartitionWriter,
    RecordRun,
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
)
from kafkacompat.coordinator.partition_writer import ShardLog
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.faults import forget_locals, report
from kafkacompat.ports import passes
from kafkacompat.records.batch import NO_SEQUENCE
from kafkacompat.tasks import at_once as in_one_step
from kafkacompat.tasks import in_turns, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.coordinator.services import CoordinatorServices
    from kafkacompat.meters import RecentTimes
    from kafkacompat.ports import Clock, TimerHandle, Timers
    from kafkacompat.tasks import Limit, Started, Work
    from kafkacompat.wire.message import Message


TimerKey = tuple[Hashable, ...]
Operation = Callable[[int], Any]


class _Entry:
    __slots__ = ("_timers", "deadline_ms", "handle", "is_due", "key", "operation")

    def __init__(self, timers: ShardTimers, key: TimerKey, deadline_ms: int, operation: Operation) -> None:
        self._timers = timers
        self.key = key
        self.deadline_ms = deadline_ms
        self.operation = operation
        self.is_due = False
        """It has rung, and its operation waits for its turn."""
        self.handle: TimerHandle = timers.alarms.call_at(deadline_ms, self.ring)

    def move(self, deadline_ms: int) -> None:
        is_earlier, self.deadline_ms = deadline_ms < self.deadline_ms, deadline_ms
        if is_earlier:
            self.handle.cancel()
            self.handle = self._timers.alarms.call_at(deadline_ms, self.ring)
        else:
            self.handle.postpone(deadline_ms)

    def ring(self) -> None:
        self._timers.rings(self)


class ShardTimers:
    """`run` is called with the operation when it is due, and handles the result."""

    __slots__ = ("_clock", "_entries", "_run", "alarms")

    def __init__(self, clock: Clock, timers: Timers, run: Callable[[Operation], None]) -> None:
        self._clock = clock
        self.alarms = timers
        self._run = run
        self._entries: dict[TimerKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def schedule(self, key: TimerKey, delay_ms: int, operation: Operation) -> None:
        deadline_ms = self._clock.monotonic_ms() + delay_ms
        entry = self._entries.get(key)
        if entry is None or entry.is_due:
            self._entries[key] = _Entry(self, key, deadline_ms, operation)
        else:
            entry.operation = operation
            entry.move(deadline_ms)

    def reschedule(self, key: TimerKey, delay_ms: int) -> bool:
        """Like `schedule`, with the operation that the key has. False if it has none."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        if entry.is_due:
            self.schedule(key, delay_ms, entry.operation)
        else:
            entry.move(self._clock.monotonic_ms() + delay_ms)
        return True

    def cancel(self, key: TimerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.handle.cancel()

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._entries

    def cancel_all(self) -> Iterator[int]:
        """Cancel all timers in steps. The runtime ignores timers that fire meanwhile."""
        while self._entries:
            _, entry = self._entries.popitem()
            entry.handle.cancel()
            yield 1

    def rings(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is entry:
            entry.is_due = True
            self._run(partial(self._carry_out, entry))

    def _carry_out(self, entry: _Entry, now_ms: int) -> Any:
        """Nothing, if what had its turn before has cancelled the timer or set it anew. So it is in Kafka."""
        if self._entries.get(entry.key) is not entry:
            return CoordinatorResult((), None)
        del self._entries[entry.key]
        return entry.operation(now_ms)


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class OperationQueue:
    __slots__ = ("_is_going_on", "_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        """Whether an append is under way, or its replay, of which a long one takes several turns of the loop."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_going_on = False

    def submit(
        self, operation: Callable[P, Deferred[T]], *arguments: P.args, **options: P.kwargs
    ) -> Deferred[T]:
        """Carry the operation out now, or after the present one, in order. What it raises then fails the answer."""
        if self.is_taken:
            return self._later(partial(operation, *arguments, **options))
        try:
            return operation(*arguments, **options)
        finally:
            if self._waiting:
                self._go_on()

    def exclusively(self, part: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Carry out the part of an operation in which no other one may begin."""
        self.is_taken = True
        try:
            return part(*arguments, **options)
        finally:
            self.is_taken = False

    def wait_for(self, rest: Started) -> None:
        """No operation begins before the rest of the last one has ended."""

        def go_on(_: object) -> None:
            self.is_taken = False
            self._go_on()

        self.is_taken = True
        rest.on_done(go_on)

    def _later(self, operation: Callable[[], Deferred[T]]) -> Deferred[T]:
        answer: Deferred[T] = Deferred()

        def carry_out() -> None:
            try:
                given = operation()
            except Exception as error:
                answer.fail(error)
            else:
                given.pass_to(answer)

        self._waiting.append(carry_out)
        return answer

    def _go_on(self) -> None:
        if self.is_taken or self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._waiting and not self.is_taken:
                try:
                    self._waiting.popleft()()
                except Exception as error:
                    report("telling what a coordinator's operation has given", error)
        finally:
            self._is_going_on = False


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


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """Times in ms, sizes in bytes."""

    topic: str
    append_timeout_ms: int
    compression: int = 0
    """As in a batch's attributes."""
    base_sequence: int = NO_SEQUENCE
    """Of each batch that a shard writes."""
    load_step_bytes: int = LOAD_STEP_BYTES
    load_costs: LoadCosts = USUAL_COSTS
    is_patient: bool = False
    """A shard becomes active only after everything that it has loaded is committed. Machines need it that act on what they loaded
    before they write anything."""
    reloads_for_new_epoch: bool = False
    """A shard lives for one leader epoch, since its writes in the former epoch may have failed after they were appended."""


class _Asking:
    """What a machine knows as a Caller. The machine holds it as long as it may still answer."""

    __slots__ = ("__weakref__", "answer")

    def __init__(self, answer: Deferred[Any]) -> None:
        self.answer = answer


class _Left(OperationRefused):
    """The shard is closed, because what is committed could not be applied."""


class Shard:
    __slots__ = (
        "_asking",
        "_clock",
        "_ending",
        "_load_task",
        "_load_times",
        "_log",
        "_make_machine",
        "_on_active",
        "_on_out_of_step",
        "_operations",
        "_services",
        "_settings",
        "_tasks",
        "epoch",
        "large",
        "loader",
        "machine",
        "partition",
        "state",
        "timers",
    )

    def __init__(
        self,
        partition: int,
        epoch: int,
        services: CoordinatorServices,
        settings: ShardSettings,
        writer: PartitionWriter,
        large: Limit,
        make_machine: Callable[[ShardTimers], Machine[Any]],
        on_active: Callable[[Shard], None] | None = None,
        load_times: RecentTimes | None = None,
        on_out_of_step: Callable[[Shard], None] | None = None,
    ) -> None:
        """`large`: whoever may have a large body in memory, of all shards of a coordinator. `on_out_of_step` closes the shard, and
        has another load what is in the log."""
        self.partition = partition
        self.epoch = epoch
        self.state = ShardState.INITIAL
        self._services = services
        self._settings = settings
        self._log = ShardLog(writer, partition, settings.compression, settings.base_sequence)
        self._clock = services.clock
        self._tasks = services.tasks
        self._operations = OperationQueue()
        self._asking: dict[Deferred[Any], ref[_Asking]] = {}
        """Whoever was not answered yet."""
        self._load_times = load_times
        self._load_task: Started | None = None
        self._ending: Started | None = None
        """The latest transaction that took longer to end than a piece."""
        self._make_machine = make_machine
        self.timers = ShardTimers(services.clock, services.timers, self._run_timer)
        self.machine = make_machine(self.timers)
        self._on_active = on_active
        self._on_out_of_step = on_out_of_step
        self.large = large
        self.loader: Loader | None = None
        """While it loads."""

    # --- life

    def start(self) -> None:
        """Begin to load, or become active at once if the log is empty. The shard stays INITIAL while there is no log."""
        log = self._log.found()
        if log is None:
            return
        began_ms = self._clock.monotonic_ms()
        if log.log_end_offset == log.log_start_offset:
            self._activate(began_ms)
            return
        self.state = ShardState.LOADING
        self.loader = self._new_loader()
        self._load_task = self._tasks.start("loading a coordinator's partition", self._load(began_ms))

    def close(self, *, at_once: bool = False) -> None:
        """The leadership is lost: stop serving and writing, and answer waiting requests. `at_once`: in this step of the loop,
        because the node ends."""
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        if self._load_task is not None:
            self._load_task.cancel()
        if self._ending is not None:
            self._ending.cancel()
        unloading = _unloading(self.machine, self.timers, self._clock.now_ms() if was_active else None)
        if at_once:
            in_one_step(unloading)
        else:
            self._tasks.start("unloading a coordinator's partition", _unload(unloading))

    async def _load(self, began_ms: int) -> None:
        """It ends when the shard is active, or failed for good. It is cancelled when the shard is closed."""
        await pause()
        while True:
            loader = self.loader
            assert loader is not None
            try:
                await loader.load()
                break
            except Damaged as damage:
                self.state = ShardState.FAILED
                await self._leave_to_others(damage, loader.next_offset)
                self.state = ShardState.LOADING
            except MemoryError:
                # A part of a batch may be applied already, so the whole state is loaded again.
                await self._begin_anew()
            except Exception as error:
                self.state = ShardState.FAILED
                self.loader = None
                logger.error(
                    "coordinator partition %d cannot be loaded, its groups are not served: %s",
                    self.partition,
                    error,
                )
                if not isinstance(error, LoadFailure):
                    report("loading a coordinator's partition", error)
                return
        for kind, count in loader.skipped.items():
            logger.warning(
                "coordinator partition %d: %d records of the unknown type %d are passed over",
                self.partition,
                count,
                kind,
            )
        logger.debug("coordinator partition %d: %d records loaded", self.partition, loader.record_count)
        self.loader = None
        if self._settings.is_patient:
            await self._until_committed(loader.next_offset)
        else:
            self._log.doubt(loader.next_offset)
        self._activate(began_ms)

    def _new_loader(self) -> Loader:
        settings = self._settings
        return Loader(
            f"{settings.topic}-{self.partition}",
            self._log.found,
            self.machine,
            self._services,
            self.large,
            settings.load_step_bytes,
            settings.load_costs,
        )

    async def _leave_to_others(self, damage: Damaged, offset: int) -> None:
        """Clients look for the coordinator again, and find the new leader. Without one the load is tried again: the files
        may be repaired, or a replica may return."""
        is_handed_over = self._log.hand_over(offset)
        logger.error(
            "coordinator partition %d is damaged on this node's disk and cannot be loaded: %s; %s",
            self.partition,
            damage,
            "another replica takes over" if is_handed_over else "no other replica could take over",
        )
        await self._tasks.sleep(DAMAGED_RETRY_MS)

    async def _begin_anew(self) -> None:
        logger.error("coordinator partition %d is loaded anew: there was no memory for it", self.partition)
        unloading = _unloading(self.machine, self.timers, None)
        self._tasks.start("unloading a coordinator's partition", _unload(unloading))
        self.timers = ShardTimers(self._clock, self._services.timers, self._run_timer)
        self.machine = self._make_machine(self.timers)
        self.loader = self._new_loader()
        await self._tasks.sleep(RETRY_MAX_MS)

    async def _until_committed(self, end_offset: int) -> None:
        """Loaded records that an earlier leader did not commit may still be lost."""
        while (pending := self._log.when_loaded_is_committed(end_offset)) is not None:
            if await pending is ErrorCode.NONE:
                await pause()
            else:
                await self._tasks.sleep(LOAD_RETRY_MS)

    def _activate(self, began_ms: int) -> None:
        self.state = ShardState.ACTIVE
        if self._load_times is not None:
            now_ms = self._clock.monotonic_ms()
            self._load_times.note(now_ms - began_ms, now_ms)
        self._tasks.start("taking up a coordinator's partition", self._take_up())
        if self._on_active is not None:
            self._on_active(self)

    async def _take_up(self) -> None:
        results = self.machine.on_loaded(self._clock.now_ms())
        while True:
            await self.when_free()
            if self.state is not ShardState.ACTIVE:
                return
            try:
                result = next(results)
            except StopIteration:
                return
            except Exception as failure:
                # The rest would have no sessions, and prepared transactions no markers.
                if passes(failure):
                    await self._tasks.sleep(RETRY_MAX_MS)
                if not self._has_left(failure):
                    raise
                return
            if result is not None:
                self._write_unasked(result)
            await pause(2 if result is None else OPERATION_COST)

    def _write_unasked(self, result: CoordinatorResult[Any, None]) -> None:
        what = f"writing to coordinator partition {self.partition}"
        try:
            self.write(lambda _: result).unheeded(what, OperationRefused)
        except Exception as error:
            report(what, error)

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def require_active(self) -> None:
        if self.state is ShardState.ACTIVE:
            return
        if self.state is ShardState.LOADING:
            raise OperationRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise OperationRefused(ErrorCode.NOT_COORDINATOR)

    # --- operations

    def write(self, operation: Callable[[int], CoordinatorResult[Any, T]]) -> Deferred[T]:
        """Run one operation. Raises OperationRefused (nothing has changed), or the Deferred fails with it."""
        return self._operations.submit(self._write, operation, None)

    def ask(self, operation: Callable[[Caller, int], CoordinatorResult[Any, None]]) -> Deferred[Any]:
        """Run an operation that answers its caller by a reply, now or in a later operation. Raises OperationRefused, or the
        Deferred fails with it, if the operation was not carried out. What the log refuses, the operation answers."""
        return self._operations.submit(self._ask, operation)

    def transactional_write(
        self, operation: Callable[[int], CoordinatorResult[Any, T]], owner: InTransaction
    ) -> Deferred[T]:
        """Like `write`, but the records take effect only with the transaction's marker."""
        return self._operations.submit(self._write, operation, owner)

    def complete_transaction(
        self, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, version: int
    ) -> Deferred[ErrorCode]:
        """Write a marker, and have the machine take or drop what the transaction wrote. Raises OperationRefused, or the Deferred
        fails with it."""
        return self._operations.submit(
            self._complete_transaction, producer_id, epoch, committed, coordinator_epoch, version
        )

    def _complete_transaction(
        self, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int, version: int
    ) -> Deferred[ErrorCode]:
        self.require_active()
        now_ms = self._clock.now_ms()

        def append() -> tuple[ErrorCode, int, Work[None] | None]:
            error, offset = self._log.append_marker(
                producer_id, epoch, committed, coordinator_epoch, version, now_ms
            )
            if error is not ErrorCode.NONE:
                return error, offset, None
            ending = self.machine.replay_end_transaction(producer_id, epoch, committed, offset)
            try:
                is_long = next(ending, None) is not None
            except Exception as failure:
                if not self._has_left(failure):
                    raise
                is_long = False  # the marker counts, since whoever loads it carries it out
            return error, offset, ending if is_long else None

        error, offset, rest = self._operations.exclusively(append)
        if rest is not None:
            self._ending = self._tasks.start("ending a large transaction", self._go_on(rest))
            self._operations.wait_for(self._ending)
        pending = None if error is not ErrorCode.NONE else self._log.when_committed(offset + 1)
        return Deferred.of(error) if pending is None else pending

    def in_turn(self, act: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Do what looks at the state before it writes: now, or when the record of the present operation is replayed."""
        return self._operations.submit(act)

    def when_free(self) -> Deferred[None]:
        """`in_turn` for a task: done when what has been asked for before is carried out. Until the task waits again, what it writes
        follows at once on what it has seen."""
        return self._operations.submit(_nothing) if self._operations.is_taken else _NOTHING

    def at_once(self, operation: Callable[[int], bool]) -> bool:
        """Run an operation that writes nothing and answers nobody. It returns whether it has done what is to be done. False
        without a call if another operation is under way, or what is seen is not committed yet."""
        if self.state is not _ACTIVE or self._operations.is_taken or not self._log.is_all_committed:
            return False
        return operation(self._clock.now_ms())

    def read(self, operation: Callable[[], T]) -> Deferred[T]:
        """An answer from the state, given when everything it may show is committed. Raises OperationRefused, or the Deferred fails
        with it."""
        return self._operations.submit(self._read, operation)

    def _read(self, operation: Callable[[], T]) -> Deferred[T]:
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
        return self._complete(self._decided(operation, now_ms), now_ms, owner)

    def _ask(self, operation: Callable[[Caller, int], CoordinatorResult[Any, None]]) -> Deferred[Any]:
        self.require_active()
        now_ms = self._clock.now_ms()
        answer: Deferred[Any] = Deferred()
        asking = _Asking(answer)
        self._asking[answer] = ref(asking)
        answer.on_done(self._told)
        try:
            written = self._complete(self._decided(operation, Caller(asking), now_ms), now_ms, asker=answer)
        except BaseException:  # which is the answer, if there was none before
            self._told(answer)
            raise
        if not written.done or written.has_failed:
            written.unheeded(f"an operation of coordinator partition {self.partition}", OperationRefused)
        return answer

    def _told(self, answer: Deferred[Any]) -> None:
        self._asking.pop(answer, None)

    def _decided(self, decide: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """What the machine decides. If it fails for a reason that nobody expected, those whom it has taken from its state
        without a reply get that failure: nobody else would answer them."""
        try:
            return decide(*arguments, **options)
        except OperationRefused:
            raise
        except Exception as error:
            forget_locals(error.__traceback__)
            for answer in [each for each, asking in self._asking.items() if asking() is None]:
                answer.fail(error)
            raise

    def _complete(
        self,
        result: CoordinatorResult[Any, T],
        now_ms: int,
        owner: InTransaction | None = None,
        asker: Deferred[Any] | None = None,
    ) -> Deferred[T]:
        """The response, once the records are committed. Without records, once everything it may show is. `asker`: who may
        be answered by what follows the commit only."""
        if result.records:
            error, end_offset = self._operations.exclusively(self._append, result, now_ms, owner)
            if error is not ErrorCode.NONE:
                answer: Deferred[T] = Deferred()
                answer.fail(OperationRefused(client_error(error)))
                return answer
            pending = self._log.when_committed(end_offset)
        else:
            pending = self._log.when_all_committed()
        if pending is None or pending.done:
            self._finish(result, ErrorCode.NONE if pending is None else pending.result(), result.replies)
            return Deferred.of(result.response) if pending is None else self._after(pending, result.response)
        if result.committed is not None:
            pending.on_done(lambda done: self._finish_later(result, done.result(), asker))
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
            except Exception as failure:
                self._send(result.replies)  # nobody else would
                if self._has_left(failure):
                    raise OperationRefused(ErrorCode.NOT_COORDINATOR) from failure
                raise
        return error, end_offset

    async def _go_on(self, rest: Work[None]) -> None:
        try:
            await pause()
            await in_turns(rest)
        except Exception as failure:
            if not self._has_left(failure):
                raise

    def _has_left(self, failure: Exception) -> bool:
        """Whether the shard is closed, because the log has what its state could not take for want of memory. As where a log and
        a state of Kafka differ, the partition is loaded anew, and clients come back. A bug would fail the load as well."""
        if self._on_out_of_step is None or not passes(failure):
            return False
        logger.error(
            "coordinator partition %d is loaded anew: what was written could not be applied (%r)",
            self.partition,
            failure,
        )
        self._on_out_of_step(self)
        return True

    def _replay(self, result: CoordinatorResult[Any, Any], offset: int, producer_id: int) -> None:
        for record in result.records:
            if isinstance(record, RecordRun):
                if record.apply is not None:
                    record.apply(offset)
                offset += record.count
            else:
                self.machine.replay(record, offset, producer_id)
                offset += 1

    def _undo(self, result: CoordinatorResult[Any, Any], error: ErrorCode) -> None:
        try:
            if result.refused is not None:
                result.refused()
        except Exception:
            self._send(result.replies)  # nobody else would
            raise
        self._finish(result, error, result.replies)

    def _finish_later(
        self, result: CoordinatorResult[Any, Any], error: ErrorCode, asker: Deferred[Any] | None
    ) -> None:
        """If that fails, the asker gets the failure, as if it had failed at once."""
        try:
            self._finish(result, error, ())
        except _Left as left:
            if asker is not None and not asker.done:
                asker.fail(left)
        except Exception as failure:
            if asker is not None and not asker.done:
                asker.fail(failure)
            raise

    def _finish(
        self, result: CoordinatorResult[Any, Any], error: ErrorCode, replies: Sequence[Reply]
    ) -> None:
        """The records are committed, or it is known that they are not. `replies`: those that were not sent before."""
        if result.committed is None:
            self._send(replies)
            return
        now_ms = self._clock.now_ms()
        try:
            told = error if error is ErrorCode.NONE else client_error(error)
            following = self._decided(result.committed, told, now_ms)
        except Exception as failure:
            if self._has_left(failure):
                raise _Left(ErrorCode.NOT_COORDINATOR) from failure
            raise
        finally:
            self._send(replies)
        if following is None:
            return
        if self.state is not ShardState.ACTIVE or (not following.records and following.committed is None):
            self._send(following.replies)
            return
        # What the log refuses is undone (CoordinatorResult.refused).
        self._operations.submit(self._complete, following, now_ms).unheeded(
            f"what follows a write to coordinator partition {self.partition}", OperationRefused
        )

    def _after(self, pending: Deferred[ErrorCode], value: T) -> Deferred[T]:
        def release(error: ErrorCode) -> T:
            if error is not ErrorCode.NONE:
                raise OperationRefused(client_error(error))
            return value

        return pending.then(release)

    def _send(self, replies: Sequence[Reply]) -> None:
        if len(replies) > REPLIES_AT_ONCE:
            self._tasks.start("answering members", _answer_in_turns(replies))
            return
        for caller, message in replies:
            _answer(caller, message)

    def _run_timer(self, operation: Operation) -> None:
        if self.state is not ShardState.ACTIVE:
            return
        try:
            # What the log refuses is undone: the timer of a session is set again, for example.
            self.write(operation).unheeded(
                f"a timer's operation of coordinator partition {self.partition}", OperationRefused
            )
        except OperationRefused as refusal:
            logger.warning(
                "coordinator partition %d: a timer's operation was refused: %s", self.partition, refusal
            )


_NOTHING: Deferred[None] = Deferred.of(None)


def _nothing() -> Deferred[None]:
    return _NOTHING


async def _unload(unloading: Work[None]) -> None:
    await in_turns(unloading)


def _unloading(machine: Machine[Any], timers: ShardTimers, now_ms: int | None) -> Work[None]:
    """Answer whoever is parked (`now_ms` None: the shard was not active), and free the state in pieces, because freeing millions of
    objects also takes time."""
    if now_ms is not None:
        for cost, replies in machine.unload(now_ms):
            yield from _answering(replies)
            yield cost
    yield from timers.cancel_all()
    yield from machine.take_apart()


async def _answer_in_turns(replies: Sequence[Reply]) -> None:
    await in_turns(_answering(replies))


def _answering(replies: Sequence[Reply]) -> Work[None]:
    for caller, message in replies:
        _answer(caller, message)
        yield REPLY_COST


def _answer(caller: Caller, message: Message) -> None:
    try:
        cast("_Asking", caller).answer.resolve(message)
    except Exception as error:  # it was answered before
        report("answering a member", error)
