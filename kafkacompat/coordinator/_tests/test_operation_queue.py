"""Operations that wait for their turn are answered whatever becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.coordinator._tests.clients import form_group, join, member_id_of, sync
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.deferred import Deferred
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.wire.errors import ErrorCode as E


@pytest.fixture
def world() -> LeadingCoordinator:
    return LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0))


def during_a_write(world: LeadingCoordinator, act: Callable[[], Any]) -> Any:
    """Act while the record of another operation is in the log and not replayed yet, so that what is asked has to wait."""
    (shard,) = world.coordinator._shards
    operations = shard._operations
    return operations.submit(lambda: Deferred.of(operations.exclusively(act))).result()


@pytest.mark.parametrize(
    "ask",
    [
        lambda world: join(world, member_id_of(world)),
        lambda world: join(world, version=3),
        lambda world: join(world, instance="i"),
        lambda world: sync(world, form_group(world)[0], 1),
    ],
    ids=["join", "join without an id", "static join", "sync"],
)
def test_a_request_that_waits_for_its_turn_hears_that_the_coordinator_has_moved(
    world: LeadingCoordinator, ask: Callable[[LeadingCoordinator], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []
    calls: list[Any] = []
    call = world.call

    def noted(handler: Any, request: Any, version: int, client_id: str | None = "client") -> Any:
        calls.append((handler, request, version, client_id))
        return call(handler, request, version, client_id)

    monkeypatch.setattr(world, "call", noted)
    ask(world)
    last = calls[-1]
    monkeypatch.undo()

    def act() -> None:
        answers.append(world.call(*last))
        world.coordinator.stop()

    during_a_write(world, act)
    (answer,) = answers
    assert answer.done
    assert answer.result().error_code == E.NOT_COORDINATOR


def test_a_request_that_waits_for_its_turn_hears_why_it_is_refused(world: LeadingCoordinator) -> None:
    answers: list[Any] = []
    form_group(world)

    def act() -> None:
        answers.append(join(world, version=3))
        (shard,) = world.coordinator._shards
        groups = machine_of(shard).groups
        groups["g"] = groups["g"].__class__("g")  # type: ignore[call-arg]  # a classic one
        groups["g"].mark_dead(0)

    during_a_write(world, act)
    assert answers[0].result().error_code == E.COORDINATOR_NOT_AVAILABLE


def test_a_bug_in_an_operation_that_waits_reaches_its_request(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkacompat.group import group_coordinator

    def broken(*_: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(group_coordinator, "join", broken)
    answers: list[Any] = []
    during_a_write(world, lambda: answers.append(join(world, version=3)))
    with pytest.raises(KeyError, match="a bug"):
        answers[0].result()


def test_what_the_log_refuses_is_answered_once(world: LeadingCoordinator) -> None:
    """The operation answers it itself."""
    answers: list[Any] = []

    def act() -> None:
        answers.append(join(world, version=3))
        world.partitions.refusal = E.NOT_LEADER_OR_FOLLOWER

    during_a_write(world, act)
    assert answers[0].result().error_code == E.NOT_COORDINATOR


def test_a_failed_timer_that_waited_for_its_turn_is_reported(world: LeadingCoordinator, faults: Any) -> None:
    (shard,) = world.coordinator._shards

    def broken(_: int) -> CoordinatorResult[Any, None]:
        raise KeyError("a bug")

    def refused(_: int) -> CoordinatorResult[Any, None]:
        raise OperationRefused(E.COORDINATOR_NOT_AVAILABLE)

    def act() -> None:
        for number, operation in enumerate((broken, refused)):
            shard.timers.schedule(("test", number), 0, operation)
        world.time.advance(0)

    during_a_write(world, act)
    (fault,) = faults.take()
    assert isinstance(fault, KeyError)
