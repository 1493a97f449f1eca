"""Consumers that read from the replica in their rack (KIP-392): the leader's preferred read replica, and the
follower's answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.cluster import T0, Cluster, ClusterNode, with_bytes
from kafkacompat.partition._tests.kit import LISTENER
from kafkacompat.partition._tests.test_fetch import parameters
from kafkacompat.partition.replica_selector import LEADER_ONLY, RACK_AWARE, selects_by_rack
from kafkacompat.partition.service import FetchParameters, FetchRequestPartition
from kafkacompat.wire.errors import ErrorCode


def ask(node: ClusterNode, offset: int, rack: str = "", **changes: Any) -> Any:
    """The partition's answer, or the Deferred response of a fetch that parks."""
    topic_id = node.cluster.topic.id
    wanted = FetchRequestPartition(topic_id, "t", 0, offset, 1 << 20)
    asked: FetchParameters = parameters(rack_id=rack, listener_name=LISTENER, **changes)
    answer = node.fetches.fetch(asked, [wanted], ())
    return answer if isinstance(answer, Deferred) else with_bytes(answer).responses[0].partitions[0]


def filled() -> Cluster:
    cluster = Cluster()
    cluster.settle()
    waiting = cluster.nodes[1].produce(b"a")
    cluster.settle(1000)
    assert waiting.result() is ErrorCode.NONE
    return cluster


def test_the_leader_names_the_replica_in_the_consumers_rack_and_sends_no_records() -> None:
    cluster = filled()
    answer = ask(cluster.nodes[1], 0, "rack-2")
    assert (answer.preferred_read_replica, answer.records, answer.error_code) == (2, b"", 0)
    assert answer.high_watermark == 1
    assert ask(cluster.nodes[1], 0, "rack-2", read_committed=True).aborted_transactions is None
    assert ask(cluster.nodes[1], 1, "rack-2").preferred_read_replica == 2, (
        "at once, though there is nothing to read"
    )


@pytest.mark.parametrize("rack", ["", "rack-1", "rack-9"])
def test_without_a_rack_in_the_leaders_and_in_an_unknown_one_the_leader_answers(rack: str) -> None:
    answer = ask(filled().nodes[1], 0, rack)
    assert answer.preferred_read_replica == -1
    assert len(answer.records) > 0


def test_a_replica_without_the_offset_or_out_of_sync_is_not_named() -> None:
    cluster = filled()
    cluster.cut = {frozenset((1, 2))}
    cluster.nodes[1].append(b"b", acks=1)
    assert ask(cluster.nodes[1], 2, "rack-2", max_wait_ms=0).preferred_read_replica == -1
    assert ask(cluster.nodes[1], 1, "rack-2").preferred_read_replica == 2
    cluster.settle(60_000)
    assert 2 not in cluster.partition().isr
    assert ask(cluster.nodes[1], 0, "rack-2").preferred_read_replica == -1


def test_of_several_in_the_rack_the_one_with_most_records_is_named() -> None:
    cluster = filled()
    cluster.brokers[3] = replace(cluster.brokers[3], rack="rack-2")
    cluster.publish()
    cluster.drain()
    cluster.cut = {frozenset((1, 2))}
    cluster.nodes[1].append(b"b", acks=1)
    cluster.drain()
    assert ask(cluster.nodes[1], 0, "rack-2").preferred_read_replica == 3


def test_a_follower_serves_up_to_its_own_high_watermark_and_wakes_when_it_moves() -> None:
    cluster = filled()
    follower = cluster.nodes[2]
    assert len(ask(follower, 0, "rack-2").records) > 0
    waiting = ask(follower, 1, "rack-2", max_wait_ms=10_000)
    assert not waiting.done
    cluster.nodes[1].produce(b"b")
    cluster.drain()
    assert follower.log().log_end_offset == 2
    assert not waiting.done, "it has the record, and does not know yet that all have it"
    cluster.settle(600)
    assert len(with_bytes(waiting.result()).responses[0].partitions[0].records) > 0


def test_a_follower_answers_between_its_high_watermark_and_end_at_once_and_empty() -> None:
    cluster = filled()
    cluster.cut = {frozenset((1, 3))}
    for value in (b"b", b"c"):
        cluster.nodes[1].produce(value)
        cluster.drain()
    follower = cluster.nodes[2]
    assert (follower.log().high_watermark, follower.log().log_end_offset) == (1, 3)
    answer = ask(follower, 2, "rack-2")
    assert (answer.error_code, answer.records) == (0, b"")
    assert ask(follower, 4, "rack-2").error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_followers_and_old_consumers_read_from_the_leader_only() -> None:
    follower = filled().nodes[2]
    assert ask(follower, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(follower, 0, replica_id=3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_is_gone_ends_the_wait_at_a_follower() -> None:
    cluster = filled()
    waiting = ask(cluster.nodes[3], 1, max_wait_ms=10_000)
    cluster.change(replicas=(1, 2), isr=(1, 2))
    cluster.publish()
    cluster.drain()
    assert waiting.result().responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert T0 not in cluster.nodes[3].manager.by_name


def test_only_kafkas_own_selectors_are_served() -> None:
    assert selects_by_rack(RACK_AWARE)
    assert not selects_by_rack(LEADER_ONLY)
    assert not selects_by_rack(None)
    with pytest.raises(ConfigError, match=r"replica\.selector\.class"):
        selects_by_rack("org.example.Nearest")
