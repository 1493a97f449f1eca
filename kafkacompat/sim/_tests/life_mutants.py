"""Bugs planted on purpose in what befalls topics and logs in the course of a cluster's life: names that come again, moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.manager import LogManager
from kafkacompat.partition.moves import Move, Moves, MoveState
from kafkacompat.partition.placement import Placement

Plant = Callable[[pytest.MonkeyPatch], None]


def a_copy_takes_its_place_at_any_moment(patch: pytest.MonkeyPatch) -> None:
    """Once the controller knows of it, whatever was appended meanwhile."""
    original = Moves._step

    def step(self: Moves, move: Move) -> None:
        if move.state is MoveState.ASSIGNED and not self._is_over(move):
            self._change_places(move)
        else:
            original(self, move)

    patch.setattr(Moves, "_step", step)


def logs_belong_to_names(patch: pytest.MonkeyPatch) -> None:
    """A log that is found at the start is the partition's, whichever topic of that name left it."""
    original = LogManager.get_or_create

    def get_or_create(
        self: LogManager, name: TopicPartition, topic_id: Uuid, *given: Any, **named: Any
    ) -> Any:
        log = self.get(name)
        if log is not None:
            log.topic_id = topic_id
        return original(self, name, topic_id, *given, **named)

    patch.setattr(LogManager, "get_or_create", get_or_create)
    patch.setattr(Placement, "_set_strays_aside", lambda self, image: None)


LIFE_MUTANTS: tuple[Plant, ...] = (a_copy_takes_its_place_at_any_moment, logs_belong_to_names)
LIFE_MUTANTS_SEEN_AT = {"a_copy_takes_its_place_at_any_moment": 1, "logs_belong_to_names": 3}
