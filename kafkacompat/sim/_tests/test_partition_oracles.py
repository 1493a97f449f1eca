"""What a consumer was shown before the oracle saw that it was committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkacompat.ids import TopicPartition
from kafkacompat.sim.partition_history import LogStartHistory, PartitionHistory, Written
from kafkacompat.sim.partition_oracles import PartitionOracles

KEY = (bytes(16), 0)


def test_a_batch_in_whose_place_another_is_committed_was_no_last_act_of_its_leader() -> None:
    """Each replica has something there, but not what the consumer was shown."""
    image = SimpleNamespace(isr=(2, 3))
    env: Any = SimpleNamespace(metadata=SimpleNamespace(partition=lambda key: image))
    oracles = PartitionOracles(env, {})
    ledger = oracles.ledgers[KEY] = PartitionHistory(TopicPartition("t", 0), LogStartHistory())
    shown, committed = Written(0, 1, 11, -1, -1), Written(0, 2, 12, -1, -1)
    ledger.written[1, 0] = shown
    oracles.log_ends = {(2, KEY): 1, (3, KEY): 1}
    assert oracles.was_last_act(KEY, 0, shown)
    ledger.batches[0], ledger.end = committed, 1
    assert not oracles.was_last_act(KEY, 0, shown)
