"""The shard of each key, and what is kept of keys."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.coordinator import shards as module
from kafkacompat.coordinator.shards import Shards
from kafkacompat.ids import partition_for_key


def shards() -> Shards:
    def make(partition: int, epoch: int) -> Any:
        raise AssertionError("no shard is asked for")

    made = Shards(1, "__consumer_offsets", make)
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
