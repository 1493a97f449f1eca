"""Bugs planted in consumer groups (KIP-848). The simulation with groups of both protocols must find each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.group import group_metadata_manager as machine
from kafkacompat.group import modern_group
from kafkacompat.group.consumer import (
    classic_members,
    consumer_group,
    conversion,
    heartbeat,
    membership,
    target_assignment_builder,
)
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.current_assignment_builder import Reconciliation
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt

CURRENT_ASSIGNMENT = 8


def partitions_are_given_away_before_they_are_revoked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "partition_epoch", lambda self, topic_id, partition: -1)
    patch.setattr(consumer_group, "report", lambda *_: None)


def a_heartbeat_that_tells_nothing_gives_everything_up(patch: pytest.MonkeyPatch) -> None:
    original = Reconciliation._owns_any
    patch.setattr(
        Reconciliation, "_owns_any", lambda self, revoked: self.owned is not None and original(self, revoked)
    )


def every_epoch_of_a_consumer_may_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "validate_offset_commit", lambda *_: None)


def a_new_coordinator_forgets_what_is_to_be_revoked(patch: pytest.MonkeyPatch) -> None:
    original = machine.take_up

    def take_up(env: Any, group: ConsumerGroup, members: Sequence[Any]) -> None:
        for member in members:
            group.update_member(replace(member, pending_revocation={}))
        original(env, group, members)

    patch.setattr(machine, "take_up", take_up)


def a_new_coordinator_forgets_targets(patch: pytest.MonkeyPatch) -> None:
    original = machine.take_up

    def take_up(env: Any, group: ConsumerGroup, members: Sequence[Any]) -> None:
        group.targets.clear()
        original(env, group, members)

    patch.setattr(machine, "take_up", take_up)


def a_new_coordinator_takes_no_sessions_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "take_up", lambda env, group, members: None)


def partitions_of_fenced_members_are_not_released(patch: pytest.MonkeyPatch) -> None:
    original = consumer_group._REPLAYS[CURRENT_ASSIGNMENT]

    def current_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
        epochs = {topic_id: dict(each) for topic_id, each in group.partition_epochs.items()}
        original(group, key, value)
        if value is None:
            group.partition_epochs = epochs

    patch.setitem(consumer_group._REPLAYS, CURRENT_ASSIGNMENT, current_assignment)


def a_conversion_forgets_what_classic_members_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conversion, "assigned_partitions", lambda assignment, topics: {})


def partitions_of_a_static_member_are_given_away_when_it_leaves_for_a_while(
    patch: pytest.MonkeyPatch,
) -> None:
    original = heartbeat._leave

    def leave(env: Any, request: Any, now_ms: int) -> Any:
        request.member_epoch = -1
        return original(env, request, now_ms)

    patch.setattr(heartbeat, "_leave", leave)


def a_twin_joins_before_its_instance_is_released(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat.static_member_for

    def static_member_for(
        group: Any, member_id: str, instance_id: str, joins: bool, records: Any, epoch_of: Any
    ) -> Any:
        told = None if joins else epoch_of
        return original(group, member_id, instance_id, joins, records, epoch_of=told)

    patch.setattr(heartbeat, "static_member_for", static_member_for)


def a_twin_that_was_replaced_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    for module in (classic_members, modern_group):
        patch.setattr(module, "throw_if_fenced", lambda *_: None)


def changed_topics_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "request_metadata_refresh", lambda self: None)


def all_members_are_taken_to_subscribe_to_the_same_topics(patch: pytest.MonkeyPatch) -> None:
    for module in (membership, target_assignment_builder):
        patch.setattr(module, "is_homogeneous", lambda *_: True)


CONSUMER_GROUP_MUTANTS: tuple[Plant, ...] = (
    partitions_are_given_away_before_they_are_revoked,
    a_heartbeat_that_tells_nothing_gives_everything_up,
    every_epoch_of_a_consumer_may_commit,
    a_new_coordinator_takes_no_sessions_up,
    partitions_of_fenced_members_are_not_released,
    a_conversion_forgets_what_classic_members_own,
    partitions_of_a_static_member_are_given_away_when_it_leaves_for_a_while,
    a_twin_joins_before_its_instance_is_released,
    a_twin_that_was_replaced_is_not_fenced,
    changed_topics_are_not_noticed,
    all_members_are_taken_to_subscribe_to_the_same_topics,
)
RARE_CONSUMER_GROUP_MUTANTS: tuple[Plant, ...] = (
    a_new_coordinator_forgets_what_is_to_be_revoked,
    a_new_coordinator_forgets_targets,
)
"""Found by few seeds: a coordinator has to move in the middle of a revocation, or before a target is reached. Soaks look for
them here. The random lives of coordinator/_tests find them in ordinary tests."""
CONSUMER_GROUP_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "partitions_of_fenced_members_are_not_released": (1, 0),
    "every_epoch_of_a_consumer_may_commit": 3,
    "a_heartbeat_that_tells_nothing_gives_everything_up": (0, 1),
    "partitions_of_a_static_member_are_given_away_when_it_leaves_for_a_while": (9, 8, 6),
    "a_twin_joins_before_its_instance_is_released": 4,
    "a_twin_that_was_replaced_is_not_fenced": (10, 64, 30),
    "changed_topics_are_not_noticed": (18, 2, 7, 0, 23),
    "all_members_are_taken_to_subscribe_to_the_same_topics": (6, 1, 4),
}
"""The seeds that found them when they were planted, unless it was the first seed."""
