"""The numbers of the group coordinator: how many groups of each kind are in which state, and what they have done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.meters import GroupMeters
from kafkacompat.metrics.coordinators import group_families

NOW_MS = 60_000


class Clock:
    def now_ms(self) -> int:
        return 5

    def monotonic_ms(self) -> int:
        return NOW_MS


class Groups:
    """GroupCoordinator, as much of it as is used."""

    def __init__(self) -> None:
        self.meters = GroupMeters(Clock())

    def group_states(self) -> Iterator[tuple[str, str]]:
        yield from (("share", "Stable"), ("share", "Stable"), ("share", "Empty"), ("consumer", "Assigning"))
        yield from (("classic", "Empty"), ("streams", "Dead"))

    def offset_count(self) -> int:
        return 7

    def shard_states(self) -> list[str]:
        return ["active"]


def told_by(groups: Groups, now_ms: int = NOW_MS) -> dict[str, float]:
    families: Any = [each for each in group_families(groups, now_ms) if each is not None]  # type: ignore[arg-type]
    return {family.name: family.samples[0][1] for family in families}


def test_groups_are_counted_by_kind_and_state() -> None:
    told = told_by(Groups())
    name = "kafka_server_group_coordinator_metrics_"
    assert told[f"{name}protocol_share_group_count"] == 3
    assert told[f"{name}state_stable_share_group_count"] == 2
    assert told[f"{name}state_empty_share_group_count"] == 1
    assert told[f"{name}state_dead_share_group_count"] == 0
    assert told[f"{name}protocol_consumer_group_count"] == 1
    assert told[f"{name}protocol_classic_group_count"] == 1
    assert told["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 7


def test_events_are_counted_with_their_rates() -> None:
    groups = Groups()
    meters = groups.meters
    commit: CoordinatorResult[str, None] = CoordinatorResult(("a", "b", "c"), None)
    assert meters.committed(commit) is commit
    assert meters.committed(CoordinatorResult((), None)).records == ()
    meters.deleted(CoordinatorResult(("a",), None))
    meters.expired(5)
    for number, note in enumerate(
        (meters.rebalance_completed, meters.consumer_rebalanced, meters.share_rebalanced), 1
    ):
        for _ in range(number):
            note()
    told = told_by(groups)
    name = "kafka_server_group_coordinator_metrics_"
    counts = {
        "offset_commit": 3,
        "offset_deletion": 1,
        "offset_expiration": 5,
        "group_completed_rebalance": 1,
        "consumer_group_rebalance": 2,
        "share_group_rebalance": 3,
    }
    assert {each: told[f"{name}{each}_count"] for each in counts} == counts
    # A rate is over two samples of 30 s, and at least over one of them.
    assert {each: 30 * told[f"{name}{each}_rate"] for each in counts} == counts
    later = told_by(groups, NOW_MS + 120_000)
    assert {each: later[f"{name}{each}_rate"] for each in counts} == dict.fromkeys(counts, 0)
    assert {each: later[f"{name}{each}_count"] for each in counts} == counts
