"""Bugs planted in streams groups (KIP-1071). The simulation with a streams group must find each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.group import group_metadata_manager as machine
from kafkacompat.group.streams import heartbeat
from kafkacompat.group.streams.streams_group import NO_PROCESSES, StreamsGroup
from kafkacompat.group.streams.tasks_tuple import NOTHING_ASSIGNED
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def tasks_are_given_away_before_they_are_revoked(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat.Reconciliation

    def reconciliation(epoch: int, target: Any, active: Any, standby: Any, warmup: Any, owned: Any) -> Any:
        return original(epoch, target, lambda *_: None, standby, warmup, owned)

    patch.setattr(heartbeat, "Reconciliation", reconciliation)


def a_task_comes_to_a_process_that_has_it(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat.Reconciliation

    def reconciliation(epoch: int, target: Any, active: Any, standby: Any, warmup: Any, owned: Any) -> Any:
        return original(epoch, target, active, lambda *_: NO_PROCESSES, lambda *_: NO_PROCESSES, owned)

    patch.setattr(heartbeat, "Reconciliation", reconciliation)


def every_epoch_of_a_member_may_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamsGroup, "validate_offset_commit", lambda *_: None)


def a_new_coordinator_forgets_what_is_to_be_revoked(patch: pytest.MonkeyPatch) -> None:
    original = machine.take_up

    def take_up(env: Any, group: StreamsGroup, members: Sequence[Any]) -> None:
        for member in members:
            group.update_member(replace(member, pending_revocation=NOTHING_ASSIGNED))
        original(env, group, members)

    patch.setattr(machine, "take_up", take_up)


def a_new_coordinator_forgets_targets(patch: pytest.MonkeyPatch) -> None:
    original = machine.take_up

    def take_up(env: Any, group: StreamsGroup, members: Sequence[Any]) -> None:
        group.targets.clear()
        original(env, group, members)

    patch.setattr(machine, "take_up", take_up)


def a_new_coordinator_takes_no_sessions_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "take_up", lambda env, group, members: None)


def processes_keep_what_their_members_gave_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamsGroup, "_release", lambda *_: None)


def tasks_of_a_static_member_are_given_away_when_it_leaves_for_a_while(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat._leave

    def leave(env: Any, request: Any) -> Any:
        request.member_epoch = -1
        return original(env, request)

    patch.setattr(heartbeat, "_leave", leave)


STREAMS_GROUP_MUTANTS: tuple[Plant, ...] = (
    tasks_are_given_away_before_they_are_revoked,
    a_task_comes_to_a_process_that_has_it,
    every_epoch_of_a_member_may_commit,
    a_new_coordinator_forgets_targets,
    a_new_coordinator_takes_no_sessions_up,
    processes_keep_what_their_members_gave_up,
    tasks_of_a_static_member_are_given_away_when_it_leaves_for_a_while,
)
RARE_STREAMS_GROUP_MUTANTS: tuple[Plant, ...] = (a_new_coordinator_forgets_what_is_to_be_revoked,)
"""Found by few seeds: a coordinator has to move in the middle of a revocation. The random lives of group/_tests find them in
ordinary tests, and soaks here."""
STREAMS_GROUP_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "tasks_are_given_away_before_they_are_revoked": (2, 1, 0),
    "a_task_comes_to_a_process_that_has_it": (6, 0, 3),
    "every_epoch_of_a_member_may_commit": (2, 5, 0, 10),
    "a_new_coordinator_forgets_targets": 3,
    "tasks_of_a_static_member_are_given_away_when_it_leaves_for_a_while": 3,
}
"""The seeds that found them when they were planted, unless it was the first seed."""
