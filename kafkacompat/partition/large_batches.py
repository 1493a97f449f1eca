"""Produced batches that are too large for one step of the loop: decompressed in threads, checked in steps.

The numbers of batches being opened and waiting are bounded; beyond them the client must retry. records/validate
decides what is refused. The connection is not read meanwhile, so its batches stay in order. So a connection has at most
one batch in line.

Batches of usual size do not wait for huge ones, which have few places and may need minutes. Only decompression shows
how large a body is. So each batch begins as a usual one. One that gets larger begins again in the line of huge ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ports import LogRefused
from kafkacompat.records.limits import BatchLimits
from kafkacompat.records.validate import TooMuchAtOnce, validate_in_steps
from kafkacompat.records.validated import ValidatedBatch
from kafkacompat.stepping.jobs import Stepping, Steps
from kafkacompat.tasks import Overloaded
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
PAUSES_MAX = 1 << 30
"""Effectively unbounded: a connection has at most one, so the bound on connections applies."""

T = TypeVar("T")


def _given_back(given: T) -> Steps[T]:
    yield None
    return given


class LargeBatches:
    def __init__(self, services: PartitionServices, limits: BatchLimits) -> None:
        timers, workers = services.timers, services.workers.batches
        self._clock = services.clock
        self._limits = limits
        self._usual = Stepping(timers, workers, USUAL_AT_ONCE, WAITING_MAX)
        self._huge = Stepping(timers, workers, HUGE_AT_ONCE, WAITING_MAX)
        self._pauses = Stepping(timers, workers, PAUSES_MAX, 0)

    def pause(self, given: T) -> Deferred[T]:
        """The given value, after a turn of the loop."""
        return self._pauses.submit(_given_back(given))

    def validate(
        self, records: Buffer, config: LogConfig, zstd_allowed: bool
    ) -> Deferred[Buffer | ValidatedBatch | LogRefused]:
        """The batch, or its refusal. The records stay in use until then."""
        given: Deferred[Buffer | ValidatedBatch | LogRefused] = Deferred()
        self._begin(self._usual, USUAL_BYTES, given, records, config, zstd_allowed)
        return given

    # Functions within `validate` that name each other would be a cycle, and the records would stay in memory until the
    # garbage collector comes.

    def _begin(
        self,
        stepping: Stepping,
        memory_bytes: int,
        given: Deferred[Buffer | ValidatedBatch | LogRefused],
        records: Buffer,
        config: LogConfig,
        zstd_allowed: bool,
    ) -> None:
        steps = validate_in_steps(
            records,
            config,
            self._clock.now_ms(),
            zstd_allowed=zstd_allowed,
            limits=self._limits,
            memory_bytes=memory_bytes,
        )
        stepping.submit(steps).on_done(partial(self._validated, given, records, config, zstd_allowed))

    def _validated(
        self,
        given: Deferred[Buffer | ValidatedBatch | LogRefused],
        records: Buffer,
        config: LogConfig,
        zstd_allowed: bool,
        done: Deferred[ValidatedBatch],
    ) -> None:
        verdict: ValidatedBatch | LogRefused
        try:
            verdict = done.result()
        except LogRefused as refused:
            verdict = refused.with_traceback(None)  # it would keep the records, and lead to itself
        except TooMuchAtOnce as error:
            error.__traceback__ = None
            self._begin(self._huge, self._limits.unpacked_bytes, given, records, config, zstd_allowed)
            return
        except Overloaded as error:
            verdict = LogRefused(ErrorCode.REQUEST_TIMED_OUT, str(error))
        except Exception as error:
            given.fail(error)
            return
        given.resolve(verdict)
