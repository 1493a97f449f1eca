"""Fetches of so many partitions that they are read in steps of the loop, with appends and other fetches in between.

Duty: what the engine does with a small fetch, a part at a time. What moves between two steps is noted, and looked at before the
fetch waits; so nothing is waited for that is there. It decides nothing of its own about what a partition gives.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkacompat.partition.parked_fetches import ParkedFetch, asked_of
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters, FetchRequestPartition
    from kafkacompat.ids import Uuid
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.sessions import FetchContext
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.fetch_response import PartitionData

LONG_FROM = 500
"""Partitions of a request or of its session above which a fetch takes steps."""
READ_A_STEP = 200
"""Partitions of which an answer is made: up to 30 us each."""
LOOKED_AT_A_STEP = 2_000
"""Partitions of a follower that has all of them: about 1 us each."""
NAMED_A_STEP = 1_000
"""Partitions that a session learns or forgets: about 1 us each."""
EVERYTHING = ("", -1)
"""What long fetches of consumers wait for; no topic has an empty name. Under each partition's it would take steps to park them."""


class LongFetch(ParkedFetch):
    """A fetch in steps. What it waits for is which partitions to read then."""

    __slots__ = ("noted",)

    def __init__(self, engine: FetchEngine, context: FetchContext, parameters: FetchParameters) -> None:
        super().__init__(engine, context, parameters)
        self.noted: dict[tuple[str, int], PartitionCore] = {}
        """Partitions that moved while it was read: a consumer's high watermarks, ends and starts for a follower, roles for both."""

    def finish(self, partitions: Iterable[Any]) -> None:
        self.answer.resolve(partitions)  # type: ignore[arg-type]  # its answer is not the response

    def asks_of(self, core: PartitionCore) -> Any:
        """What it asks of a partition; None when it does not."""
        return asked_of(self.context, core) or self.asked.get(core.topic_partition)


class Reading:
    """How far the partitions of a fetch are read, and what they have given."""

    __slots__ = ("answers", "budget", "ended", "first", "is_known", "partitions", "position", "total")

    def __init__(self, partitions: Sequence[Any], max_bytes: int) -> None:
        self.partitions = partitions
        self.position = 0
        self.answers: list[tuple[Any, PartitionData]] = []
        self.budget = max_bytes
        self.first = True
        self.is_known = self.ended = False
        self.total = 0

    @property
    def is_over(self) -> bool:
        return self.position >= len(self.partitions)

    def stretch(self) -> Iterator[Any]:
        """What one step reads: the fewer, the more of them are answered."""
        answers_max = len(self.answers) + READ_A_STEP
        for asked in islice(self.partitions, self.position, self.position + LOOKED_AT_A_STEP):
            self.position += 1
            yield asked
            if len(self.answers) >= answers_max:
                return


def named_in_steps(
    engine: FetchEngine,
    parameters: FetchParameters,
    partitions: Sequence[FetchRequestPartition],
    forgotten: Sequence[tuple[Uuid, str | None, int]],
) -> Steps[FetchResponse]:
    """A fetch that names many partitions, or forgets many."""
    context = engine.open(parameters, ())
    session = context.session
    if session is None:
        context.partitions = () if context.error is not ErrorCode.NONE else partitions
        return (yield from served_in_steps(engine, parameters, context))
    for start in range(0, len(partitions), NAMED_A_STEP):
        session.update(partitions[start : start + NAMED_A_STEP], ())
        yield None
    for start in range(0, len(forgotten), NAMED_A_STEP):
        session.update((), forgotten[start : start + NAMED_A_STEP])
        yield None
    context.partitions = list(session.partitions.values())
    if engine.sessions.drop_if_empty(session):
        context.session = None
    return (yield from served_in_steps(engine, parameters, context))


def served_in_steps(
    engine: FetchEngine, parameters: FetchParameters, context: FetchContext
) -> Steps[FetchResponse]:
    if context.error is not ErrorCode.NONE:
        return FetchResponse(error_code=context.error)
    engine.bound(parameters)
    waiter = LongFetch(engine, context, parameters)
    engine.long_fetches[waiter] = None
    try:
        answers, ready = yield from _read_arrived(waiter)
        if not ready and parameters.max_wait_ms > 0:
            ready = yield from _note_sizes(waiter, answers)
            if ready and waiter.noted:
                answers, _ = yield from _read_noted(waiter, answers)
        else:
            ready = True
    finally:
        del engine.long_fetches[waiter]
    if not ready and not waiter.parked_in.is_full():
        engine.park(waiter, [EVERYTHING])
        if len(waiter.noted) > READ_A_STEP:
            waiter.parked_in.remove(waiter)
            waiter.expire()
        for core in waiter.noted.values():
            if waiter.parked:
                engine.look_again_at_long(waiter, core)
        waiter.noted = {}
        partitions: Iterable[Any] = yield waiter.answer
        reading = Reading(list(partitions), parameters.max_bytes)
        answers, _ = yield from _read(waiter, reading, arrived=False)
    return (yield from engine.answers.respond_in_steps(context, parameters, answers))


def _read(waiter: LongFetch, reading: Reading, *, arrived: bool) -> Generator[Any, Any, Any]:
    while True:
        before, waiter.noted = waiter.noted, {}
        answers, ready = waiter.engine.read_all(
            waiter.context, waiter.parameters, reading.stretch(), arrived=arrived, reading=reading
        )
        # A consumer moves nothing by reading; what has moved was opened just before it was read.
        waiter.noted = before if waiter.parameters.replica_id < 0 else before | waiter.noted
        if reading.is_over:
            return answers, ready
        yield None


def _read_arrived(waiter: LongFetch) -> Generator[Any, Any, Any]:
    """As with a small fetch of a follower: what has moved while it was read is read once more."""
    parameters = waiter.parameters
    reading = Reading(waiter.context.partitions, parameters.max_bytes)
    answers, ready = yield from _read(waiter, reading, arrived=True)
    if parameters.replica_id < 0 or ready or not waiter.noted:
        return answers, ready
    if any(len(answer.records) for _, answer in answers):
        return answers, True
    return (yield from _read_noted(waiter, answers))


def _read_noted(waiter: LongFetch, answers: list[tuple[Any, PartitionData]]) -> Generator[Any, Any, Any]:
    """The answers with those anew whose partitions have moved."""
    noted, waiter.noted = waiter.noted, {}
    again = {id(asked): asked for core in noted.values() if (asked := waiter.asks_of(core)) is not None}
    kept = [pair for pair in answers if id(pair[0]) not in again]
    reading = Reading(list(again.values()), waiter.parameters.max_bytes)
    reading.total = sum(len(answer.records) for _, answer in kept)
    reading.budget -= reading.total
    reading.first = not reading.total
    fresh, ready = yield from _read(waiter, reading, arrived=False)
    return kept + fresh, ready and bool(again)


def _note_sizes(waiter: LongFetch, answers: list[tuple[Any, PartitionData]]) -> Generator[Any, Any, bool]:
    """What each could give by now; True when the fetch need not wait."""
    engine, parameters = waiter.engine, waiter.parameters
    for start in range(0, len(answers), READ_A_STEP):
        if start:
            yield None
        if not engine.note_sizes(waiter, answers[start : start + READ_A_STEP]):
            return True
    return not (waiter.asked or parameters.replica_id >= 0) or waiter.total >= parameters.min_bytes
