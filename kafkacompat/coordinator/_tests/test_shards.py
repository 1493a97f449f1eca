"""The shard of each key, and what is kept of keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.controller.image import MetadataImage
from kafkacompat.coordinator import shards as module
from kafkacompat.coordinator.shard import ShardSettings, ShardState
from kafkacompat.coordinator.shards import Shards
from kafkacompat.ids import OFFSETS_TOPIC, partition_for_key
from kafkacompat.partition._tests.kit import image_of, partition_image, topic_image


def shards() -> Shards:
    services: Any = SimpleNamespace(node_id=1, partitions=None)
    made = Shards(services, ShardSettings(OFFSETS_TOPIC, 5_000), Any)  # type: ignore[arg-type]  # no machine is made
    made.partition_count = 50
    return made


def test_the_partitions_of_few_short_keys_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may ask for any number of groups, with names of 128 KiB each."""
    monkeypatch.setattr(module, "MAX_REMEMBERED_KEYS", 3)
    made = shards()
    keys = [*(f"g{each}" for each in range(5)), "g" * 30_000, "é" * 501]
    for key in (*keys, *keys):
        assert made.partition_for(key) == partition_for_key(key, 50)
        assert len(made._remembered) <= 3
        assert sum(map(len, made._remembered)) < 1_000


class FakeShard:
    def __init__(self, partition: int, epoch: int, *_: Any) -> None:
        self.epoch = epoch
        self.state = ShardState.INITIAL


def test_partitions_of_a_new_topic_are_active_though_nobody_has_asked_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have nothing to load. Apache Kafka loads them at once."""
    monkeypatch.setattr(module, "Shard", FakeShard)
    made = shards()
    partitions = {each: partition_image(leader=1) for each in range(3)}
    topic = topic_image("__consumer_offsets", partitions)
    made.on_image(MetadataImage(offset=5), image_of(topic))
    assert made.states() == ["active"] * 3
    for shard, state in zip(made, (ShardState.LOADING, ShardState.FAILED, ShardState.ACTIVE), strict=True):
        shard.state = state
    assert made.states() == ["loading", "failed", "active"]
