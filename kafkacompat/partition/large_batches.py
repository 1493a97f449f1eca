"""Produced batches that are too large for one step of the loop: decompressed in threads, checked in steps.

The numbers of batches being opened and waiting are bounded; beyond them the client must retry. records/validate
decides what is refused. The connection is not read meanwhile, so its batches stay in order. So a connection has at most
one batch in line.

Batches of usual size do not wait for huge ones, which have few places and may need minutes. Only decompression shows
how large a body is. So each batch begins as a usual one. One that gets larger begins again in the line of huge ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import forget_locals
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import ValidatedBatch
from kafkacompat.records.limits import BatchLimits
from kafkacompat.records.validate import TooMuchAtOnce, validate_large
from kafkacompat.tasks import Limit, Overloaded, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import Buffer

USUAL_BYTES = 16 * 1024 * 1024
"""The decompressed body of a batch of usual size."""
USUAL_AT_ONCE = 8
HUGE_AT_ONCE = 2
"""Batches opened at the same time. Each of the huge ones may use what batch.max.unpacked.bytes allows."""
WAITING_MAX = 1000
"""Waiting batches of each kind. Beyond this the answer is REQUEST_TIMED_OUT, after which a producer retries."""

T = TypeVar("T")


class LargeBatches:
    def __init__(self, services: PartitionServices, limits: BatchLimits) -> None:
        self._clock = services.clock
        self._tasks = services.tasks
        self._workers = services.workers.batches
        self._limits = limits
        self._usual = Limit(USUAL_AT_ONCE, WAITING_MAX)
        self._huge = Limit(HUGE_AT_ONCE, WAITING_MAX)

    def pause(self, given: T) -> Deferred[T]:
        """The given value, after a turn of the loop."""
        return self._tasks.run("a Produce that pauses", _after_a_turn(given))

    def validate(
        self, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> Deferred[Buffer | ValidatedBatch | LogRefused]:
        """The batch, or its refusal. The records stay in use until then."""
        return self._tasks.run("validating a large batch", self._validate(records, config, zstd_allowed))

    async def _validate(
        self, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> Buffer | ValidatedBatch | LogRefused:
        try:
            try:
                return await self._validated(self._usual, USUAL_BYTES, records, config, zstd_allowed)
            except TooMuchAtOnce as error:
                forget_locals(error.__traceback__)
            return await self._validated(
                self._huge, self._limits.unpacked_bytes, records, config, zstd_allowed
            )
        except LogRefused as refused:
            # The frames that it has left would keep the records, and lead to it.
            forget_locals(refused.__traceback__)
            return refused.with_traceback(None)
        except Overloaded as error:
            return LogRefused(ErrorCode.REQUEST_TIMED_OUT, str(error))

    async def _validated(
        self, places: Limit, memory_bytes: int, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> ValidatedBatch:
        now_ms = self._clock.now_ms()
        async with places:
            await pause()
            return await validate_large(
                records,
                config,
                now_ms,
                self._in_worker,
                zstd_allowed=zstd_allowed,
                limits=self._limits,
                memory_bytes=memory_bytes,
            )

    async def _in_worker(self, job: Callable[[], T]) -> T:
        given = self._workers.submit(job)
        await when_all_done([given])
        await pause()  # the jobs of many batches may be done in one turn
        return given.result()


async def _after_a_turn(given: T) -> T:
    await pause()
    return given
