"""How a shard handles the results of any machine, tested with a machine that only keeps its records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.cli.sender import PRODUCE_RETRIABLE
from kafkacompat.coordinator._tests.kit import Partitions
from kafkacompat.coordinator.core import Caller, CoordinatorResult, OperationRefused, Reply, client_error
from kafkacompat.coordinator.loading import LOAD_RETRY_MS
from kafkacompat.coordinator.partition_writer import SHORT_BYTES, ServicePartitionWriter
from kafkacompat.coordinator.services import CoordinatorServices
from kafkacompat.coordinator.shard import OPERATION_COST, Shard, ShardSettings, ShardState, ShardTimers
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.meters import RecentTimes
from kafkacompat.tasks import TURN_COST, Limit, Tasks
from kafkacompat.wire.errors import ErrorCode as E

NAME = TopicPartition(OFFSETS_TOPIC, 0)
Result = CoordinatorResult[str, Any]


@dataclass
class Heard:
    """What a caller is told."""

    said: str


class Notes:
    """A machine whose records are names."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended: list[int] = []
        self.parked: list[Caller] = []
        self.due: Iterable[Result] = []
        """Results to write when everything is loaded."""
        self.end_costs: Sequence[int] = ()
        """Of the pieces in which a transaction ends."""

    def encode(self, record: str) -> tuple[bytes, bytes | None]:
        if record == "unspeakable":
            raise ValueError(record)
        return record.encode(), b""

    def decode(self, key: bytes, value: bytes | None) -> str | None:
        return key.decode()

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        raise AssertionError("no record is large")

    def replay(self, record: str, offset: int, producer_id: int) -> None:
        self.said.append(record)

    def replay_end_transaction(
        self, producer_id: int, epoch: int, committed: bool, offset: int
    ) -> Generator[int, None, None]:
        self.ended.append(producer_id)
        yield from self.end_costs

    def on_loaded(self, now_ms: int) -> Iterator[Result | None]:
        yield None
        yield from self.due

    def unload(self, now_ms: int) -> Iterator[tuple[int, Sequence[Reply]]]:
        parked, self.parked = self.parked, []
        for caller in parked:
            yield 1, ((caller, Heard("unloaded")),)

    def take_apart(self) -> Iterator[int]:
        return iter(())


class UnstartedShard:
    """A shard that is not started, over a real log."""

    def __init__(self, partitions: Partitions | None = None, *, is_patient: bool = False) -> None:
        self.time = HandTime()
        self.partitions = partitions or Partitions()
        self.machine = Notes()
        self.active: list[Shard] = []
        self.load_times = RecentTimes()
        service: Any = self.partitions
        self.shard = Shard(
            0,
            0,
            CoordinatorServices(1, service, self.time, self.time, Tasks(self.time), None),
            ShardSettings(OFFSETS_TOPIC, 5_000, is_patient=is_patient),
            ServicePartitionWriter(service, OFFSETS_TOPIC, 5_000),
            Limit(1),
            self._make_machine,
            self.active.append,
            self.load_times,
        )

    def _make_machine(self, timers: ShardTimers) -> Notes:
        self.timers = timers
        return self.machine

    def say(self, *records: str, **options: Any) -> Any:
        return self.shard.write(lambda _: CoordinatorResult(records, "said", **options))

    @property
    def end(self) -> int:
        return self.partitions.log_of(NAME).log_end_offset


def started(*records: str, is_committed: bool = True, is_patient: bool = False) -> UnstartedShard:
    """A world whose log has these records and whose shard has loaded nothing yet."""
    before = UnstartedShard()
    before.shard.start()
    before.partitions.held = not is_committed
    for record in records:
        before.say(record)
    world = UnstartedShard(before.partitions, is_patient=is_patient)
    world.shard.start()
    return world


def loaded(*records: str) -> UnstartedShard:
    world = started(*records)
    world.time.advance(0)
    assert world.shard.state is ShardState.ACTIVE
    return world


@pytest.mark.parametrize("sizes", [(SHORT_BYTES + 1,), (10, SHORT_BYTES, 10)])
def test_a_large_record_is_encoded_once(sizes: tuple[int, ...]) -> None:
    """A transaction of very many partitions takes many milliseconds for that."""
    world = UnstartedShard()
    world.shard.start()
    encoded: list[str] = []
    encode = world.machine.encode

    def counted(record: str) -> tuple[bytes, bytes | None]:
        encoded.append(record)
        return encode(record)

    world.machine.encode = counted  # type: ignore[method-assign]
    records = tuple(str(at) * size for at, size in enumerate(sizes))
    assert world.say(*records).result() == "said"
    assert encoded == list(records)
    assert world.machine.said == list(records)
    again = UnstartedShard(world.partitions)
    again.shard.start()
    while again.shard.state is ShardState.LOADING:
        again.time.advance(1)
    assert again.machine.said == list(records)


def test_a_marker_comes_neither_before_the_load_nor_after_the_end() -> None:
    world = started("a")
    for state, code in (
        (ShardState.LOADING, E.COORDINATOR_LOAD_IN_PROGRESS),
        (ShardState.CLOSED, E.NOT_COORDINATOR),
    ):
        assert world.shard.state is state
        with pytest.raises(OperationRefused) as refusal:
            world.shard.complete_transaction(9, 0, True, 0, 2)
        assert refusal.value.code is code
        world.time.advance(0)
        world.shard.close()
    assert (world.end, world.machine.ended) == (1, [])


def test_a_listener_that_hears_of_an_active_shard_may_use_it() -> None:
    world = loaded("a", "b")
    assert world.active == [world.shard]
    assert world.machine.said == ["a", "b"]
    assert world.say("c").result() == "said"
    assert world.machine.said == ["a", "b", "c"]


def test_what_is_due_after_a_load_is_written_whatever_becomes_of_the_rest(faults: Any) -> None:
    world = started("a")
    world.machine.due = [CoordinatorResult((each,), None) for each in ("b", "unspeakable", "c")]
    world.time.advance(0)
    assert world.machine.said == ["a", "b", "c"]
    assert world.end == 3
    assert [str(each) for each in faults.take()] == ["unspeakable"]


def test_what_a_load_leads_to_knows_what_was_asked_for_while_a_large_transaction_ends() -> None:
    world = started("a")
    told = TURN_COST // OPERATION_COST

    def due() -> Iterator[Result]:
        for each in range(told):
            yield CoordinatorResult((str(each),), None)
        yield CoordinatorResult((f"after {world.machine.said[-1]}",), None)

    world.machine.due = due()
    world.machine.end_costs = [1, 1]
    while "0" not in world.machine.said:
        assert world.time.step()
    assert world.shard.complete_transaction(7, 0, True, 0, 2).result() is E.NONE
    asked = world.say("b")
    assert not asked.done
    world.time.advance(0)
    assert asked.result() == "said"
    assert world.machine.said[-2:] == ["b", "after b"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_patient_shard_waits_for_what_it_has_loaded_unless_it_ends_before(ends: bool) -> None:
    world = started("a", is_patient=True, is_committed=False)
    world.time.advance(0)
    assert (world.machine.said, world.shard.state) == (["a"], ShardState.LOADING)
    if ends:
        world.shard.close()
    world.partitions.release()
    world.time.advance(LOAD_RETRY_MS)
    assert world.shard.state is (ShardState.CLOSED if ends else ShardState.ACTIVE)
    assert len(world.active) == (0 if ends else 1)


def test_what_was_loaded_is_shown_when_it_is_committed() -> None:
    """An earlier leader may not have committed it. If this one ends soon, the next leader may not have it."""
    world = started("a", is_committed=False)
    world.time.advance(0)
    assert world.shard.state is ShardState.ACTIVE
    assert not world.shard.at_once(lambda _: True)
    answers = [world.shard.read(lambda: "seen"), world.say()]
    assert not any(each.done for each in answers)
    world.partitions.release()
    assert [each.result() for each in answers] == ["seen", "said"]
    assert world.shard.at_once(lambda _: True)


@pytest.mark.parametrize("error", [E.NONE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_what_follows_from_a_write_that_has_ended_is_written_too(error: E) -> None:
    world = loaded()
    told: list[E] = []

    def committed(code: E, now_ms: int) -> Result:
        told.append(code)
        return CoordinatorResult(("then",), None)

    world.partitions.held = True
    answer = world.say("first", committed=committed)
    assert (told, world.machine.said) == ([], ["first"])
    world.partitions.release(error)
    assert told == [E.NONE if error is E.NONE else E.COORDINATOR_NOT_AVAILABLE]
    assert world.machine.said == ["first", "then"]
    assert answer.done


def leads_to(world: UnstartedShard, operation: Callable[[], Any]) -> None:
    """The next append answers an earlier write, and whoever gets that answer begins an operation at once."""
    append, due = world.partitions.append, [operation]

    def watched(*given: Any, **options: Any) -> Any:
        result = append(*given, **options)
        if due:
            due.pop()()
        return result

    world.partitions.append = watched  # type: ignore[method-assign]


def what_is_known(world: UnstartedShard) -> Result:
    return CoordinatorResult((f"after {world.machine.said} {world.machine.ended}",), "done")


def test_an_operation_that_an_append_leads_to_knows_its_record() -> None:
    world = loaded()
    answers: list[Any] = []
    leads_to(world, lambda: answers.append(world.shard.write(lambda _: what_is_known(world))))
    world.say("a")
    assert world.machine.said == ["a", "after ['a'] []"]
    assert [each.result() for each in answers] == ["done"]


def test_an_operation_that_a_marker_leads_to_knows_what_it_ended() -> None:
    world = loaded()
    leads_to(world, lambda: world.shard.write(lambda _: what_is_known(world)))
    world.shard.complete_transaction(7, 0, True, 0, 2)
    assert world.machine.said == ["after [] [7]"]


def test_a_marker_that_an_append_leads_to_comes_after_its_record() -> None:
    world = loaded()
    known: list[list[str]] = []
    leads_to(
        world,
        lambda: world.shard.complete_transaction(7, 0, True, 0, 2).on_done(
            lambda done: known.append([done.result().name, *world.machine.said])
        ),
    )
    world.say("a")
    assert known == [["NONE", "a"]]


def test_what_an_append_leads_to_is_refused_once_the_shard_is_closed() -> None:
    world = loaded()
    answers: list[Any] = []

    def ask() -> None:
        answers.append(world.shard.write(lambda _: what_is_known(world)))
        world.shard.close()

    leads_to(world, ask)
    world.say("a")
    with pytest.raises(OperationRefused, match="NOT_COORDINATOR"):
        answers[0].result()


def test_nothing_follows_once_the_shard_is_closed() -> None:
    world = loaded()
    world.partitions.held = True
    world.say("first", committed=lambda code, now_ms: CoordinatorResult(("then",), None))
    world.timers.schedule(("key",), 1000, lambda now_ms: CoordinatorResult(("late",), None))
    world.shard.close()
    world.partitions.release(E.NOT_LEADER_OR_FOLLOWER)
    world.time.advance(1000)
    assert (world.machine.said, world.end) == (["first"], 1)
    assert len(world.timers) == 0


@pytest.mark.parametrize("refusal", [E.NOT_ENOUGH_REPLICAS, None])
def test_what_the_log_has_not_taken_is_undone_and_told(refusal: E | None) -> None:
    world = loaded()
    undone: list[object] = []
    world.partitions.refusal = refusal

    def say() -> Any:
        return world.say(
            "ok" if refusal else "unspeakable",
            refused=lambda: undone.append("refused"),
            committed=lambda code, now_ms: undone.append(code),
        )

    if refusal is None:
        with pytest.raises(ValueError, match="unspeakable"):
            say()
        assert undone == ["refused", E.UNKNOWN_SERVER_ERROR]
    else:
        with pytest.raises(OperationRefused):
            say().result()
        assert undone == ["refused", E.COORDINATOR_NOT_AVAILABLE]
    assert (world.machine.said, world.end) == ([], 0)


def test_a_load_is_measured_until_the_shard_is_active() -> None:
    world = started("a", is_committed=False, is_patient=True)
    world.time.advance(40)
    assert world.shard.state is ShardState.LOADING
    assert isnan(world.load_times.mean_and_max(world.time.monotonic_ms())[1]), "not before its end"
    world.partitions.release()
    world.time.advance(LOAD_RETRY_MS)
    assert world.shard.state is ShardState.ACTIVE
    assert world.load_times.mean_and_max(world.time.monotonic_ms())[1] >= 40


def test_a_load_of_an_empty_log_is_one_too() -> None:
    world = UnstartedShard()
    world.shard.start()
    assert world.load_times.mean_and_max(world.time.monotonic_ms()) == (0, 0)


ONLY_OF_OTHER_REQUESTS = {
    *(E.LEADER_NOT_AVAILABLE, E.REPLICA_NOT_AVAILABLE, E.OFFSET_NOT_AVAILABLE),
    *(E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH),
}
"""No append is refused with these. Senders share them with readers."""


@pytest.mark.parametrize("code", [each for each in PRODUCE_RETRIABLE if each not in ONLY_OF_OTHER_REQUESTS])
def test_a_refused_write_of_the_coordinator_s_own_is_not_told_as_that_of_a_producer(code: E) -> None:
    """Clients of groups and transactions do not know what a Produce is answered."""
    assert client_error(code) in {
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_COORDINATOR,
    }
