"""What `kafkacompat reassign` concludes from what brokers tell while it watches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.cli import moves, reassign
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress

WHERE = ("t", 0)
ADDRESS = ClusterAddress("127.0.0.1:1")
Told = list[dict[tuple[str, int], tuple[int, ...]]]


class Clock:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Told], Clock]:
    """told(answers): no move is in progress, and the brokers that are asked in turn show these replicas. The last answer
    stays."""

    def begin(answers: Told) -> Clock:
        clock = Clock()
        left: list[Any] = [None, *answers]
        monkeypatch.setattr(
            moves, "patiently", lambda bootstrap, question: left.pop(0) if len(left) > 1 else left[0]
        )
        monkeypatch.setattr(moves, "time", clock)
        return clock

    return begin


def test_a_broker_whose_metadata_is_behind_is_asked_again(told: Callable[[Told], Clock]) -> None:
    clock = told([{WHERE: (2, 1)}, {}, {WHERE: (2,)}])
    moves.watch(ADDRESS, {WHERE: (2,)}, {})
    assert clock.now_s == pytest.approx(2 * moves.LOOK_INTERVAL_S)


def test_a_plan_that_somebody_changed_fails(told: Callable[[Told], Clock]) -> None:
    clock = told([{WHERE: (2, 1)}])
    with pytest.raises(
        CommandFailed, match="t-0 is on 2,1, not on 2: somebody has cancelled or changed the plan"
    ):
        moves.watch(ADDRESS, {WHERE: (2,)}, {})
    assert clock.now_s == pytest.approx(moves.METADATA_BEHIND_MAX_S, abs=1)


def test_a_file_for_the_plan_back_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=f"cannot write the plan {tmp_path}: Is a directory"):
        reassign.write(str(tmp_path), "{}")
