"""KIP-73: the measured rate, the replicas that a throttle affects, and that a throttled move completes without
affecting the ISR."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.config import LogConfig
from kafkacompat.partition._tests.cluster import Cluster
from kafkacompat.partition.replication_quota_manager import ByteRate
from kafkacompat.wire.errors import ErrorCode


def test_the_rate_is_of_the_last_windows_only() -> None:
    rate = ByteRate(windows=3, window_ms=1000)
    assert rate.bytes_per_second(0) == 0
    rate.record(500, 0)
    assert rate.bytes_per_second(0) == 500, "never over less than a window"
    rate.record(500, 1000)
    assert rate.bytes_per_second(2000) == 500
    assert rate.bytes_per_second(2999) == pytest.approx(1000 * 1000 / 2999)
    assert rate.bytes_per_second(3000) == 500 / 2
    assert rate.bytes_per_second(4000) == 0


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 1000)), max_size=60))
def test_the_rate_against_a_list_of_all_that_passed(steps: list[tuple[int, int]]) -> None:
    rate = ByteRate(windows=4, window_ms=1000)
    now_ms, passed = 0, []
    for wait_ms, size in steps:
        now_ms += wait_ms
        rate.record(size, now_ms)
        passed.append((now_ms, size))
        recent = sum(each for at, each in passed if now_ms - at < 3000)
        everything = sum(each for at, each in passed if now_ms - at < 5000)
        assert recent * 1000 / 4000 <= rate.bytes_per_second(now_ms) <= everything


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_fills_slowly_and_joins_in_the_end(side: str) -> None:
    cluster = Cluster(replica_fetch_max_bytes=1)  # one batch per fetch
    cluster.kill(3)
    cluster.settle()
    for number in range(40):
        waiting = cluster.nodes[1].produce(b"x" * 1000)
        cluster.settle(600)
        assert waiting.result() is ErrorCode.NONE, number
    cluster.log_config = (
        replace(LogConfig(), leader_replication_throttled_replicas=("0:1",))
        if side == "leader"
        else replace(LogConfig(), follower_replication_throttled_replicas=("*",))
    )
    for node in cluster.nodes.values():
        if node.alive:
            node.log().config = cluster.log_config
    cluster.settings[f"{side}.replication.throttled.rate"] = 2000
    cluster.restart(3, empty=True)
    cluster.settle(5000)
    reached = cluster.nodes[3].log().log_end_offset
    assert 3 <= reached <= 25, "about 2 kB a second of 40 kB"
    rates = {
        "leader": cluster.nodes[1].replication.leader_throttle.bytes_per_second(),
        "follower": cluster.nodes[3].replication.follower_throttle.bytes_per_second(),
    }
    measured = rates.pop(side)
    assert measured is not None
    assert 500 < measured < 4000
    assert list(rates.values()) == [None], "nothing of the other side is throttled"
    assert 3 not in cluster.partition().isr
    waiting = cluster.nodes[1].produce(b"not held back")
    cluster.settle(1000)
    assert waiting.result() is ErrorCode.NONE
    cluster.settle(40_000)
    assert 3 in cluster.partition().isr
    assert cluster.nodes[3].log().log_end_offset == 41
