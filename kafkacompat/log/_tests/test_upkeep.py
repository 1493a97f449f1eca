"""Passes over all logs: in steps if there may be much work, and a failing log does not delay the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from kafkacompat.ids import TopicPartition
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.upkeep import CHECKED_AT_ONCE, LOGS_AT_ONCE, LogUpkeep

NOW_MS = 1_700_000_000_000


class Logs:
    def __init__(self, *logs: Any) -> None:
        self.logs = {TopicPartition("t", index): log for index, log in enumerate(logs)}

    def get(self, name: TopicPartition) -> Any:
        return self.logs.get(name)


def upkeep_of(*logs: Any) -> LogUpkeep:
    manager: Any = Logs(*logs)
    return LogUpkeep(manager)


def log_with(producers: int) -> Any:
    state = ProducerStateManager()
    for producer_id in range(producers):
        state.apply_data(producer_id, 0, 0, producer_id, producer_id, NOW_MS, False)
    return SimpleNamespace(state=state, expire_producers=state.expire)


def broken(*_: Any) -> Iterator[None]:
    yield
    raise KeyError("of a log")


def test_producer_ids_expire_in_steps_and_past_a_log_that_fails(faults: Any) -> None:
    first, last = log_with(CHECKED_AT_ONCE + 100), log_with(CHECKED_AT_ONCE)
    upkeep = upkeep_of(first, SimpleNamespace(expire_producers=broken), last)
    counts = []
    steps = upkeep.remove_expired_producers(NOW_MS + 10, 10)
    before = 2 * CHECKED_AT_ONCE + 100
    for _ in steps:
        left = len(first.state.producers) + len(last.state.producers)
        counts.append(before - left)
        before = left
    assert max(counts) <= CHECKED_AT_ONCE
    assert not first.state.producers
    assert not last.state.producers
    assert [type(error) for error in faults.take()] == [KeyError]


def test_the_expiry_of_producer_ids_compares_no_names_of_logs() -> None:
    class Name(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            raise AssertionError("to sort all names is one step")

    upkeep = upkeep_of()
    logs = {TopicPartition(Name(f"t{each}"), 0): log_with(1) for each in range(3)}
    upkeep._manager.logs.update(logs)
    for _ in upkeep.remove_expired_producers(NOW_MS + 10, 10):
        pass
    assert not any(each.state.producers for each in logs.values())


def test_retention_goes_on_past_a_log_that_fails(faults: Any) -> None:
    def fails(now_ms: int) -> int:
        raise KeyError("of a log")

    def log_that(enforce: Callable[[int], int]) -> Any:
        return SimpleNamespace(enforce_retention=enforce, unknown_ages=lambda now_ms: None)

    counts = [0, 2, 0, 2]
    whole = log_that(lambda now_ms: counts.pop())
    upkeep = upkeep_of(whole, log_that(fails), whole)
    for at, log in enumerate(upkeep._manager.logs.values()):
        log.topic_partition = at  # type: ignore[assignment]
    retention = upkeep.begin_retention(NOW_MS)
    retention.is_served = lambda log: True  # type: ignore[method-assign]
    while (step := retention.next()) is not None:
        step.run()
        step.finish()
    assert retention.removed == 4
    assert [type(error) for error in faults.take()] == [KeyError]


def test_a_step_of_retention_looks_at_a_bounded_number_of_logs() -> None:
    looked = 0

    def enforce(now_ms: int) -> int:
        nonlocal looked
        looked += 1
        return 0

    log = SimpleNamespace(enforce_retention=enforce, unknown_ages=lambda now_ms: None)
    upkeep = upkeep_of(*[log] * (2 * LOGS_AT_ONCE + 10))
    retention = upkeep.begin_retention(NOW_MS)
    retention.is_served = lambda log: True  # type: ignore[method-assign]
    counts = []
    while (step := retention.next()) is not None:
        step.run()
        step.finish()
        counts.append(looked)
        looked = 0
    assert sum(counts) == 2 * LOGS_AT_ONCE + 10
    assert max(counts) <= LOGS_AT_ONCE
