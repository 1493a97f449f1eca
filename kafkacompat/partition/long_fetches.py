"""Fetches of so many partitions that they are read in steps of the loop, with appends and other fetches in between.

The answer is the same as for a small fetch. Changes between two steps are recorded and checked before the fetch waits,
so it never waits for data that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.partition.delayed_fetch import LongFetch
from kafkacompat.partition.fetch_purgatory import EVERYTHING
from kafkacompat.partition.fetch_reads import READ_A_STEP, Reading
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters, FetchRequestPartition
    from kafkacompat.ids import Uuid
    from kafkacompat.partition.fetch_purgatory import FetchPurgatory
    from kafkacompat.partition.fetch_reads import FetchReads
    from kafkacompat.partition.sessions import FetchContext, FetchSessionCache
    from kafkacompat.stepping.freeing import Freeing
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.fetch_response import PartitionData

    Forgotten = Sequence[tuple[Uuid, str | None, int]]
    Open = Callable[[FetchParameters, Sequence[FetchRequestPartition], Forgotten], FetchContext]

LONG_FROM = 500
"""A fetch with more partitions in its request or session than this is read in steps."""
NAMED_A_STEP = 1_000
"""Partitions that a session adds or removes in one step, at about 1 us each."""


class LongFetches:
    def __init__(
        self, sessions: FetchSessionCache, reads: FetchReads, purgatory: FetchPurgatory, freeing: Freeing
    ) -> None:
        self._sessions = sessions
        self._reads = reads
        self._purgatory = purgatory
        self._freeing = freeing

    def named(
        self,
        open_session: Open,
        parameters: FetchParameters,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Forgotten,
    ) -> Steps[FetchResponse]:
        """A fetch that names or removes many partitions: its session is updated in steps."""
        context = open_session(parameters, (), ())
        session = context.session
        if session is None:
            context.partitions = () if context.error is not ErrorCode.NONE else partitions
            return (yield from self.served(context, parameters))
        for start in range(0, len(partitions), NAMED_A_STEP):
            if not self._sessions.learn(session, partitions[start : start + NAMED_A_STEP], ()):
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            yield None
        for start in range(0, len(forgotten), NAMED_A_STEP):
            self._sessions.learn(session, (), forgotten[start : start + NAMED_A_STEP])
            yield None
        context.partitions = list(session.partitions.values())
        if self._sessions.drop_if_empty(session):
            context.session = None
        return (yield from self.served(context, parameters))

    def served(self, context: FetchContext, parameters: FetchParameters) -> Steps[FetchResponse]:
        """A fetch whose session has many partitions."""
        if context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=context.error)
        answers: list[tuple[Any, PartitionData]] = []
        try:
            answers = yield from self._answers(context, parameters)
            return (yield from self._reads.answers.respond_in_steps(context, parameters, answers))
        finally:
            self._freeing.free(answers)
            if isinstance(context.partitions, list):
                self._freeing.free(context.partitions)

    def _answers(
        self, context: FetchContext, parameters: FetchParameters
    ) -> Steps[list[tuple[Any, PartitionData]]]:
        answers: list[tuple[Any, PartitionData]]
        purgatory = self._purgatory
        waiter = purgatory.new_long_waiter(context, parameters)
        purgatory.long_fetches[waiter] = None
        try:
            answers, ready = yield from self._read_arrived(waiter)
            if not ready and parameters.max_wait_ms > 0:
                ready = yield from self._note_sizes(waiter, answers)
                if ready and waiter.noted:
                    answers, _ = yield from self._read_noted(waiter, answers)
            else:
                ready = True
        finally:
            del purgatory.long_fetches[waiter]
        if not ready and not waiter.parked_in.is_full():
            purgatory.park(waiter, [EVERYTHING])
            if len(waiter.noted) > READ_A_STEP:
                waiter.parked_in.remove(waiter)
                waiter.expire()
            for core in waiter.noted.values():
                if waiter.parked:
                    purgatory.look_again_at_long(waiter, core)
            waiter.noted = {}
            self._freeing.free(answers)  # it will be read again
            partitions: Iterable[Any] = yield waiter.answer
            reading = Reading(list(partitions), parameters.max_bytes)
            answers, _ = yield from self._read(waiter, reading, arrived=False)
        return answers

    def _read(self, waiter: LongFetch, reading: Reading, *, arrived: bool) -> Generator[Any, Any, Any]:
        while True:
            before, waiter.noted = waiter.noted, {}
            answers, ready = self._reads.read_all(
                waiter.context, waiter.parameters, reading.stretch(), arrived=arrived, reading=reading
            )
            # A consumer's read changes nothing. Any partition noted here was opened by the read itself.
            waiter.noted = before if waiter.parameters.replica_id < 0 else before | waiter.noted
            if reading.is_over:
                return answers, ready
            try:
                yield None
            except GeneratorExit:
                self._freeing.free(answers)
                raise

    def _read_arrived(self, waiter: LongFetch) -> Generator[Any, Any, Any]:
        """Like a small fetch of a follower: partitions that changed while being read are read once more."""
        parameters = waiter.parameters
        reading = Reading(waiter.context.partitions, parameters.max_bytes)
        answers, ready = yield from self._read(waiter, reading, arrived=True)
        if parameters.replica_id < 0 or ready or not waiter.noted:
            return answers, ready
        if any(len(answer.records) for _, answer in answers):
            return answers, True
        return (yield from self._read_noted(waiter, answers))

    def _read_noted(
        self, waiter: LongFetch, answers: list[tuple[Any, PartitionData]]
    ) -> Generator[Any, Any, Any]:
        """The answers, with the changed partitions read again."""
        noted, waiter.noted = waiter.noted, {}
        again = {id(asked): asked for core in noted.values() if (asked := waiter.asks_of(core)) is not None}
        kept = [pair for pair in answers if id(pair[0]) not in again]
        reading = Reading(list(again.values()), waiter.parameters.max_bytes)
        reading.total = sum(len(answer.records) for _, answer in kept)
        reading.budget -= reading.total
        reading.first = not reading.total
        fresh, ready = yield from self._read(waiter, reading, arrived=False)
        return kept + fresh, ready and bool(again)

    def _note_sizes(
        self, waiter: LongFetch, answers: list[tuple[Any, PartitionData]]
    ) -> Generator[Any, Any, bool]:
        """Record what each partition could give now. Returns True if the fetch need not wait."""
        parameters = waiter.parameters
        for start in range(0, len(answers), READ_A_STEP):
            if start:
                yield None
            if not self._purgatory.note_sizes(waiter, answers[start : start + READ_A_STEP]):
                return True
        return not (waiter.asked or parameters.replica_id >= 0) or waiter.total >= parameters.min_bytes
