"""The shard of each key, and what is kept of keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.controller.image import MetadataImage
from kafkacompat.coordinator import shards as module
from kafkacompat.coordinator.shard import ShardSettings, ShardState
from kafkacompat.coordinator.shards import Shards
from kafkacompat.ids import OFFSETS_TOPIC, partition_for_key
from kafkacompat.partition._tests.kit import image_of, partition_image, topic_image
from kafkacompat.tasks import Tasks


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


def test_the_partitions_of_an_image_that_is_met_late_are_started_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their logs may not be open yet, and each takes up to a millisecond."""
    started: list[int] = []

    class Starting(FakeShard):
        def __init__(self, partition: int, epoch: int, *_: Any) -> None:
            super().__init__(partition, epoch)
            self.partition = partition

        def start(self) -> None:
            started.append(self.partition)
            self.state = ShardState.ACTIVE

        def close(self) -> None:
            self.state = ShardState.CLOSED

    monkeypatch.setattr(module, "Shard", Starting)
    time = HandTime()
    made = shards()
    made._services = SimpleNamespace(tasks=Tasks(time))  # type: ignore[assignment]  # it has what is used
    partitions = {each: partition_image(leader=1) for each in range(50)}
    image = image_of(topic_image("__consumer_offsets", partitions))
    made.on_image(MetadataImage(), image)
    counts = [len(started)]
    assert made.shard_for("group") is not None
    while time.pending():
        time.fire_next()
        counts.append(len(started))
    assert max(later - sooner for sooner, later in zip([0, *counts], counts, strict=False)) <= 10
    assert sorted(started) == list(range(50))
    assert len(started) == 50


def test_a_partition_that_has_gone_before_its_turn_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(FakeShard):
        def start(self) -> None:
            assert self.state is ShardState.INITIAL

        def close(self) -> None:
            self.state = ShardState.CLOSED

    monkeypatch.setattr(module, "Shard", Gone)
    time = HandTime()
    made = shards()
    made._services = SimpleNamespace(tasks=Tasks(time))  # type: ignore[assignment]  # it has what is used
    partitions = {each: partition_image(leader=1) for each in range(50)}
    image = image_of(topic_image("__consumer_offsets", partitions))
    made.on_image(MetadataImage(), image)
    made.on_image(image, image_of())
    while time.pending():
        time.fire_next()
    assert made.states() == []
