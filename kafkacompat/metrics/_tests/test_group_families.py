"""The numbers of the group coordinator: how many groups of each kind are in which state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkacompat.metrics.broker import group_families


class Groups:
    """GroupCoordinator, as much of it as is used."""

    consumer_group_rebalances = 4
    share_group_rebalances = 7

    def group_states(self) -> Iterator[tuple[str, str]]:
        yield from (("share", "Stable"), ("share", "Stable"), ("share", "Empty"), ("consumer", "Assigning"))
        yield from (("classic", "Empty"), ("streams", "Dead"))

    def shard_states(self) -> list[str]:
        return ["active"]


def test_groups_are_counted_by_kind_and_state() -> None:
    families: Any = [each for each in group_families(Groups()) if each is not None]  # type: ignore[arg-type]
    told = {family.name: family.samples[0][1] for family in families}
    name = "kafka_server_group_coordinator_metrics_"
    assert told[f"{name}protocol_share_group_count"] == 3
    assert told[f"{name}state_stable_share_group_count"] == 2
    assert told[f"{name}state_empty_share_group_count"] == 1
    assert told[f"{name}state_dead_share_group_count"] == 0
    assert told[f"{name}share_group_rebalance_count"] == 7
    assert told[f"{name}protocol_consumer_group_count"] == 1
    assert told[f"{name}protocol_classic_group_count"] == 1
