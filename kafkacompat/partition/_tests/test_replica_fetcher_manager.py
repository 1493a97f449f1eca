"""Partitions of several nodes: followers fetch, the ISR shrinks and grows, leaders fail over, and acknowledged records
are kept."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Faults
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition import hosted_partitions, replica_fetcher
from kafkacompat.partition import replica_fetcher_manager as replication
from kafkacompat.partition._tests.cluster import T0, Cluster, FakeChannel, values_of
from kafkacompat.partition.following import BATCHES_AT_ONCE, TRUNCATION_US, Fetched, FollowerFetches
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.replica_fetcher_manager import ReplicaFetcherManager
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.tasks import TURN_COST, Task
from kafkacompat.wire.errors import ErrorCode


def test_an_append_is_acknowledged_as_soon_as_the_followers_have_it_and_asked_again() -> None:
    cluster = Cluster()
    cluster.settle()
    before_ms = cluster.time.ms
    acknowledged = cluster.nodes[1].produce(b"a")
    assert not acknowledged.done
    cluster.drain()
    assert acknowledged.result() is ErrorCode.NONE
    assert cluster.time.ms == before_ms, (
        "the parked fetches of followers wake at the append, not at their timeout"
    )
    assert [node.log().log_end_offset for node in cluster.nodes.values()] == [1, 1, 1]


def test_the_rate_of_the_slowest_fetcher_is_known() -> None:
    cluster = Cluster()
    cluster.settle()
    follower = cluster.nodes[2].replication
    cluster.time.advance(40_000)
    before = follower.min_fetch_rate()
    assert before > 0
    assert cluster.nodes[1].replication.min_fetch_rate() == 0
    for number in range(30):
        cluster.nodes[1].produce(b"%d" % number)
        cluster.drain()
        cluster.time.advance(100)
    assert follower.min_fetch_rate() > before


def test_followers_learn_the_high_watermark_with_the_next_fetch() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.nodes[1].produce(b"a")
    cluster.drain()
    assert cluster.nodes[1].log().high_watermark == 1
    cluster.settle(600)
    assert [node.log().high_watermark for node in cluster.nodes.values()] == [1, 1, 1]


def test_a_dead_follower_leaves_and_a_restarted_one_joins_again() -> None:
    cluster = Cluster(min_isr=2)
    cluster.settle()
    cluster.kill(3)
    cluster.settle()
    assert cluster.partition().isr == (1, 2)
    assert produced(cluster, b"a") is ErrorCode.NONE
    cluster.restart(3, empty=True)
    cluster.settle()
    assert set(cluster.partition().isr) == {1, 2, 3}
    assert values_of(cluster.nodes[3].log(), 1) == {0: b"a"}


def test_a_follower_that_lags_is_left_out_and_acks_all_goes_on_without_it() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.cut = {frozenset((1, 3))}
    waiting = cluster.nodes[1].produce(b"a")
    cluster.settle(20_000)
    assert not waiting.done
    cluster.settle(40_000)
    assert cluster.partition().isr == (1, 2)
    assert produced(cluster, b"b") is ErrorCode.NONE
    cluster.cut = set()
    cluster.settle()
    assert set(cluster.partition().isr) == {1, 2, 3}
    assert cluster.nodes[3].log().log_end_offset == 2


def test_below_min_isr_acks_all_is_refused_and_the_high_watermark_stands_still() -> None:
    cluster = Cluster(min_isr=2)
    cluster.settle()
    cluster.kill(2)
    cluster.kill(3)
    cluster.settle()
    leader = cluster.nodes[1]
    assert leader.produce(b"a").result() is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.append(b"b", acks=1).error is ErrorCode.NONE
    assert leader.log().high_watermark == 0
    cluster.restart(2)
    cluster.settle()
    assert leader.log().high_watermark == 1


@pytest.mark.parametrize("ids", [(1, 2, 3), (2, 0, 1)])
def test_a_killed_leader_is_replaced_and_its_unreplicated_tail_truncated_when_it_returns(
    ids: tuple[int, int, int],
) -> None:
    first, second, third = ids
    cluster = Cluster(ids)
    cluster.settle()
    assert produced(cluster, b"kept") is ErrorCode.NONE
    cluster.cut = {frozenset((first, second)), frozenset((first, third))}
    lost = cluster.nodes[first].produce(b"lost")
    cluster.kill(first)
    cluster.cut = set()
    cluster.settle()
    assert cluster.partition().leader == second
    assert not lost.done
    assert produced(cluster, b"new") is ErrorCode.NONE
    cluster.restart(first)
    cluster.settle()
    expected = {0: b"kept", 1: b"new"}
    assert {node.id: values_of(node.log(), 9) for node in cluster.nodes.values()} == dict.fromkeys(
        ids, expected
    )
    assert set(cluster.partition().isr) == set(ids)


def test_a_deposed_leader_answers_its_parked_produces_and_follows() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.cut = {frozenset((1, 2)), frozenset((1, 3))}
    waiting = cluster.nodes[1].produce(b"lost")
    cluster.change(leader=2)
    cluster.publish()
    cluster.drain()
    assert waiting.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.nodes[1].append(b"x").error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.cut = set()
    cluster.settle()
    assert produced(cluster, b"new") is ErrorCode.NONE
    assert values_of(cluster.nodes[1].log(), 9) == {0: b"new"}


def test_a_truncated_follower_fetches_once_its_checkpoints_know() -> None:
    """Its fetched records count as replicated, and a start would take them for checked up to the end of the truncated
    records."""
    cluster = Cluster()
    cluster.settle()
    cluster.cut = {frozenset((1, 2)), frozenset((1, 3))}
    former = cluster.nodes[1]
    former.produce(b"lost")
    flush = former.log().begin_flush()
    flush.run()
    former.log().finish_flush(flush)
    former.logs.checkpoint_now()
    former.logs.on_stale = lambda: None
    cluster.change(leader=2)
    cluster.publish()
    cluster.drain()
    cluster.cut = set()
    cluster.settle()
    cluster.nodes[2].append(b"new", acks=1)
    cluster.settle()
    assert former.log().log_end_offset == 0
    former.logs.checkpoint_now()
    cluster.settle()
    assert values_of(former.log(), 9) == {0: b"new"}


def cut_back(*, full: bool = False, deleted: bool = False) -> Cluster:
    """Node 1 led, and it synced and checkpointed a record that no other node has. It was then truncated, and its
    checkpoints are not yet rewritten.

    `full`: the disk refused the last step. `deleted`: node 1's log began after that record, as after an unclean
    election.
    """
    cluster = Cluster()
    cluster.settle()
    cluster.cut = {frozenset((1, 2)), frozenset((1, 3))}
    former = cluster.nodes[1]
    former.produce(b"lost")
    log: Any = former.log()
    log.flush()
    if deleted:
        former.log().set_high_watermark(1)
        former.log().increment_log_start_offset(1)
    former.logs.checkpoint_now()
    former.logs.on_stale = lambda: None
    cluster.change(leader=2)
    cluster.publish()
    cluster.drain()
    if full:
        former.disk.failing = "leader-epoch"
    cluster.cut = set()
    cluster.settle()
    former.disk.failing = None
    assert former.log().log_end_offset == 0
    return cluster


@pytest.mark.parametrize("leader", [2, 3])
def test_a_truncated_follower_waits_for_its_checkpoints_under_the_next_leader_as_well(leader: int) -> None:
    cluster = cut_back()
    cluster.change(leader=leader)
    cluster.publish()
    cluster.settle()
    cluster.nodes[leader].append(b"new", acks=1)
    cluster.settle()
    former = cluster.nodes[1]
    assert former.log().log_end_offset == 0
    former.logs.checkpoint_now()
    cluster.settle()
    assert values_of(former.log(), 9) == {0: b"new"}


@pytest.mark.parametrize("event", ["another address", "no address for a while", "another directory"])
def test_a_truncated_follower_waits_for_its_checkpoints_also_when_it_follows_anew(event: str) -> None:
    """In the same epoch: its leader has another address, or its log is in another directory and durable there."""
    cluster = cut_back()
    former, broker = cluster.nodes[1], cluster.brokers[2]
    if event == "another directory":
        core = former.manager.core(T0)
        assert core is not None
        core.log.is_durable = False  # type: ignore[misc]
        former.manager.hosted.log_replaced(core)
    else:
        for node in cluster.nodes.values():
            node.by_address["elsewhere"] = 2
        endpoints = {name: replace(each, host="elsewhere") for name, each in broker.endpoints.items()}
        if event == "no address for a while":
            cluster.brokers[2] = replace(broker, endpoints={})
            cluster.publish()
            cluster.settle()
        cluster.brokers[2] = replace(broker, endpoints=endpoints)
        cluster.publish()
    cluster.settle()
    cluster.nodes[2].append(b"new", acks=1)
    cluster.settle()
    assert former.log().log_end_offset == 0
    former.logs.checkpoint_now()
    cluster.settle()
    assert values_of(former.log(), 9) == {0: b"new"}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_truncated_follower_waits_for_its_checkpoints_also_when_the_disk_refused_its_epochs(
    deleted: bool,
) -> None:
    cluster = cut_back(full=True, deleted=deleted)
    cluster.nodes[2].append(b"new", acks=1)
    cluster.settle()
    former = cluster.nodes[1]
    assert former.log().log_end_offset == 0
    former.logs.checkpoint_now()
    cluster.settle()
    assert values_of(former.log(), 9) == {0: b"new"}


@pytest.mark.parametrize("replicas", [(1, 2, 3), (1,)])
def test_a_leader_that_was_cut_back_commits_once_its_checkpoints_know(replicas: tuple[int, ...]) -> None:
    """Its own appends count as replicated at once."""
    cluster = cut_back()
    cluster.change(leader=1, replicas=replicas, isr=replicas)
    cluster.publish()
    cluster.settle()
    former = cluster.nodes[1]
    waiting = former.produce(b"new")
    cluster.settle(1000)
    assert {cluster.nodes[each].log().log_end_offset for each in replicas} == {1}
    assert not waiting.done
    assert former.log().high_watermark == 0
    former.logs.checkpoint_now()
    assert waiting.result() is ErrorCode.NONE


def test_epochs_without_records_do_not_keep_a_former_leader_from_following() -> None:
    """Node 1 leads epochs in which it appends nothing. Its epoch cache must not block it from following the next
    leader."""
    cluster = Cluster()
    cluster.settle()
    assert produced(cluster, b"a") is ErrorCode.NONE
    for leader in (2, 1, 3, 1, 2):
        cluster.change(leader=leader)
        cluster.publish()
        cluster.settle(2000)
    assert produced(cluster, b"b") is ErrorCode.NONE
    for node in cluster.nodes.values():
        assert values_of(node.log(), 9) == {0: b"a", 1: b"b"}


def test_a_follower_behind_the_leaders_start_begins_anew_there() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.kill(3)
    for value in (b"a", b"b", b"c"):
        assert produced(cluster, value) is ErrorCode.NONE
    deleted = cluster.nodes[1].manager.delete_records({T0: 2}, 30_000)
    cluster.settle()
    assert deleted.result() == {T0: (ErrorCode.NONE, 2)}
    cluster.restart(3, empty=True)
    cluster.settle(5000)
    log = cluster.nodes[3].log()
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    assert set(cluster.partition().isr) == {1, 2, 3}


def test_damage_met_while_the_leaders_offsets_are_taken_keeps_no_other_partition_from_being_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(partitions=2)
    cluster.settle()
    cluster.kill(3)
    assert produced(cluster, b"a") is ErrorCode.NONE
    cluster.leader().manager.delete_records({T0: 1}, 30_000)
    cluster.settle()
    asked = 0

    def damaged(*_: Any, **__: Any) -> None:
        nonlocal asked
        asked += 1
        raise BatchCorrupt("crc")

    monkeypatch.setattr(UnifiedLog, "truncate_fully_and_start_at", damaged)
    cluster.restart(3, empty=True)
    cluster.settle(5000)
    assert produced(cluster, b"b", 1) is ErrorCode.NONE
    assert values_of(cluster.nodes[3].log(TopicPartition("t", 1)), 9) == {0: b"b"}
    assert asked == 1, "not followed until its leader changes"


def test_a_follower_that_lacks_memory_for_the_leaders_offsets_takes_them_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.kill(3)
    for value in (b"a", b"b"):
        assert produced(cluster, value) is ErrorCode.NONE
    cluster.leader().manager.delete_records({T0: 1}, 30_000)
    cluster.settle()
    problems = [MemoryError()]
    begin = UnifiedLog.truncate_fully_and_start_at

    def refused_once(log: UnifiedLog, *arguments: Any, **options: Any) -> None:
        if problems:
            raise problems.pop()
        begin(log, *arguments, **options)

    monkeypatch.setattr(UnifiedLog, "truncate_fully_and_start_at", refused_once)
    cluster.restart(3, empty=True)
    cluster.settle(10_000)
    assert not problems
    assert values_of(cluster.nodes[3].log(), 9) == {1: b"b"}


def test_a_follower_that_met_a_bug_asks_its_leader_again(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    """If its fetcher stayed busy forever, it would no longer follow that leader, without any report."""
    cluster = Cluster()
    cluster.settle()
    left = [4]
    original = FollowerFetches.take_in_turns

    def take(self: FollowerFetches, *arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise KeyError("a bug")
        return original(self, *arguments)

    monkeypatch.setattr(FollowerFetches, "take_in_turns", take)
    cluster.leader().append(b"a")
    cluster.settle(10_000)
    assert values_of(cluster.nodes[2].log(T0), 9) == values_of(cluster.nodes[3].log(T0), 9) == {0: b"a"}
    assert len(faults.take()) == 4


def test_a_bug_behind_a_request_to_the_leader_is_reported_and_the_follower_asks_again(
    monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.leader().append(b"a")
    bug = KeyError("a bug")

    def request(*_: Any) -> Deferred[Any]:
        raise bug

    with monkeypatch.context() as patch:
        patch.setattr(FakeChannel, "request", request)
        cluster.settle(2_000)
    assert bug in faults.take()
    cluster.settle(10_000)
    assert values_of(cluster.nodes[2].log(T0), 9) == values_of(cluster.nodes[3].log(T0), 9) == {0: b"a"}


def test_delete_records_waits_for_every_live_replica_and_tells_when_one_does_not_follow() -> None:
    cluster = Cluster()
    cluster.settle()
    assert produced(cluster, b"a") is ErrorCode.NONE
    cluster.settle()
    before_ms = cluster.time.ms
    deleted = cluster.nodes[1].manager.delete_records({T0: 1}, 1000)
    assert not deleted.done
    cluster.drain()
    assert deleted.result() == {T0: (ErrorCode.NONE, 1)}
    assert cluster.time.ms == before_ms
    assert produced(cluster, b"b") is ErrorCode.NONE
    cluster.cut = {frozenset((1, 3))}
    late = cluster.nodes[1].manager.delete_records({T0: 2}, 1000)
    cluster.settle(900)
    assert not late.done
    cluster.settle(200)
    assert late.result() == {T0: (ErrorCode.REQUEST_TIMED_OUT, -1)}


def test_a_replica_that_is_moved_away_lets_go_of_its_log_and_a_new_one_is_filled() -> None:
    cluster = Cluster((1, 2, 3, 4))
    cluster.change(replicas=(1, 2, 3), isr=(1, 2, 3))
    cluster.publish()
    cluster.settle()
    assert T0 not in cluster.nodes[4].manager.by_name
    assert produced(cluster, b"a") is ErrorCode.NONE
    cluster.change(replicas=(4, 1, 2, 3), adding_replicas=(4,), removing_replicas=(3,))
    cluster.publish()
    cluster.settle()
    assert set(cluster.partition().isr) == {1, 2, 3, 4}
    cluster.change(replicas=(4, 1, 2), isr=(1, 2, 4), adding_replicas=(), removing_replicas=())
    cluster.publish()
    cluster.settle()
    assert T0 not in cluster.nodes[3].manager.by_name
    assert produced(cluster, b"b") is ErrorCode.NONE
    assert values_of(cluster.nodes[4].log(), 9) == {0: b"a", 1: b"b"}


def test_a_full_disk_delays_a_follower_and_nothing_else() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.nodes[3].disk.failing = "/t-0/"
    waiting = cluster.nodes[1].produce(b"a")
    cluster.settle(2000)
    assert not waiting.done
    cluster.nodes[3].disk.failing = None
    cluster.settle(2000)
    assert waiting.result() is ErrorCode.NONE
    assert values_of(cluster.nodes[3].log(), 9) == {0: b"a"}


def test_a_new_partition_is_replicated_soon_though_the_followers_fetch_is_parked() -> None:
    """The leader answers the parked fetch, so that the next one can name the partition. Kafka waits until the fetch
    times out."""
    cluster = Cluster(partitions=2)
    cluster.settle()
    cluster.change(1, leader=2)
    cluster.publish()
    cluster.drain()
    waiting = cluster.nodes[2].produce(b"a", TopicPartition("t", 1))
    cluster.settle(100)
    assert waiting.result() is ErrorCode.NONE
    cluster.settle(3000)
    before = cluster.fetches
    cluster.settle(10_000)
    assert cluster.fetches - before <= 4 * 21, "four followings fetch twice a second again"


def test_a_first_fetch_that_an_append_ends_leaves_no_partition_out_of_the_session() -> None:
    cluster = Cluster(partitions=3)
    for _ in range(3):
        # New logs are made durable, then followed.
        cluster.drain()
        cluster.tick()
    cluster.drain()
    assert len(cluster.nodes[1].fetches.purgatory) == 2
    for index in (1, 0, 2):
        waiting = cluster.nodes[1].produce(b"a", TopicPartition("t", index))
        cluster.drain()
        assert waiting.result() is ErrorCode.NONE


def test_a_follower_that_hears_of_the_new_leader_first_asks_again_soon() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.change(leader=2)
    cluster.publish()
    told_last = f"image 2/{cluster.nodes[2].epoch}"
    late = cluster.queues.pop(told_last)
    cluster.settle(30)
    cluster.queues[told_last] = late
    cluster.drain()
    waiting = cluster.nodes[2].produce(b"a")
    cluster.settle(200)
    assert waiting.result() is ErrorCode.NONE


def test_several_partitions_of_one_leader_share_a_session() -> None:
    cluster = Cluster(partitions=5)
    cluster.settle()
    for index in range(5):
        assert produced(cluster, b"x%d" % index, index) is ErrorCode.NONE
    assert len(cluster.nodes[1].fetches.sessions) == 2
    cluster.nodes[1].fetches.sessions._sessions.clear()  # evicted: FETCH_SESSION_ID_NOT_FOUND
    assert produced(cluster, b"y", 3) is ErrorCode.NONE
    assert len(cluster.nodes[1].fetches.sessions) == 2


def test_partitions_whose_leader_has_another_address_are_followed_there_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication, "REHOMED_US", TURN_COST // 10)
    cluster = Cluster((1, 2), partitions=45)
    cluster.settle()
    follower = cluster.nodes[2]
    follower.by_address["elsewhere"] = 1
    taken: list[int] = []
    take = ReplicaFetcherManager.role_taken

    def counted(self: ReplicaFetcherManager, core: Partition) -> None:
        if self is follower.replication:
            taken.append(core.topic_partition.partition)
        take(self, core)

    monkeypatch.setattr(ReplicaFetcherManager, "role_taken", counted)
    broker = cluster.brokers[1]
    endpoints = {name: replace(each, host="elsewhere") for name, each in broker.endpoints.items()}
    cluster.brokers[1] = replace(broker, endpoints=endpoints)
    image = replace(follower.image, offset=10, brokers=dict(cluster.brokers))
    follower.take_image(image)
    assert len(taken) == 10
    # Partitions that a later image removes while they wait are not followed again.
    gone = sorted(set(range(45)) - {*taken, 0, 20, 39})[:5]
    for index in gone:
        cluster.change(index, replicas=(1,), isr=(1,))
    kept = set(range(45)) - set(gone)
    topics = {"t": cluster.topic}
    follower.take_image(
        replace(image, offset=11, topics=topics, topics_by_id={cluster.topic.id: cluster.topic})
    )
    assert len(taken) == 10
    steps = 0
    while follower.replication._to_rehome:
        before = len(taken)
        due = next(timer for timer in cluster.time.pending() if timer.at_ms <= cluster.time.ms)
        due.fire()
        assert len(taken) - before <= 10
        steps += 1
        assert steps < 100
    cluster.publish()
    cluster.settle()
    assert set(taken) == kept
    for index in (0, 20, 39):
        assert produced(cluster, b"a", index) is ErrorCode.NONE
    assert {each.address[0] for each in follower.replication._fetchers.values()} == {"elsewhere"}
    assert len([core for each in follower.replication._fetchers.values() for core in each.cores()]) == 40


def test_another_number_of_fetchers_holds_for_the_partitions_that_are_followed_already() -> None:
    cluster = Cluster((1, 2), partitions=8)
    cluster.settle()
    follower = cluster.nodes[2]
    for count in (4, 2):
        cluster.settings["num.replica.fetchers"] = count
        follower.take_image(replace(follower.image, offset=100 + count))
        cluster.settle()
        fetchers = follower.replication._fetchers
        assert sorted(fetchers) == [(1, index) for index in range(count)]
        assert [len(each.cores()) for each in fetchers.values()] == [8 // count] * count
        for index in range(8):
            assert produced(cluster, b"a", index) is ErrorCode.NONE


def test_partitions_whose_leader_has_no_address_wait_for_an_image_with_other_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster((1, 2), partitions=3)
    cluster.settle()
    follower = cluster.nodes[2]
    taken: list[int] = []
    take = ReplicaFetcherManager.role_taken

    def counted(self: ReplicaFetcherManager, core: Partition) -> None:
        if self is follower.replication:
            taken.append(core.topic_partition.partition)
        take(self, core)

    monkeypatch.setattr(ReplicaFetcherManager, "role_taken", counted)
    endpoints = cluster.brokers[1].endpoints
    cluster.brokers[1] = replace(cluster.brokers[1], endpoints={})
    cluster.publish()
    cluster.settle()
    assert sorted(taken) == [0, 1, 2]
    for offset in range(5):
        follower.take_image(replace(follower.image, offset=100 + offset))
    assert len(taken) == 3
    cluster.brokers[1] = replace(cluster.brokers[1], endpoints=endpoints)
    cluster.publish()
    cluster.settle()
    assert len(taken) == 6
    assert produced(cluster, b"a") is ErrorCode.NONE


def produced(cluster: Cluster, value: bytes, index: int = 0) -> ErrorCode:
    waiting = cluster.leader(index).produce(value, TopicPartition("t", index))
    cluster.settle(1500)
    return waiting.result()


EVENTS = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, 2)),
    st.tuples(st.just("step"), st.integers(0, 40)),
    st.tuples(st.just("step"), st.integers(0, 40)),
    st.tuples(st.just("step"), st.integers(0, 40)),
    st.tuples(st.just("steps"), st.integers(1, 30)),
    st.tuples(st.just("tick"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(1, 3)),
    st.tuples(st.just("restart"), st.integers(1, 3)),
    st.tuples(st.just("wipe"), st.integers(1, 3)),
    st.tuples(st.just("fence"), st.integers(1, 3)),
    st.tuples(st.just("unfence"), st.integers(1, 3)),
    st.tuples(st.just("tick"), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 3)),
    st.tuples(st.just("lead"), st.integers(1, 3)),
)


@pytest.mark.costly
@pytest.mark.parametrize("min_isr", [1, 2])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(EVENTS, max_size=120))
def test_nothing_acknowledged_is_lost_in_any_order_of_events(
    min_isr: int, events: list[tuple[str, int]]
) -> None:
    """Kills leave at least one replica of the ISR. If the last one is gone, Kafka waits for it, and so does this
    controller."""
    run(min_isr, events)


def run(min_isr: int, events: list[tuple[str, int]]) -> None:
    cluster = Cluster(
        min_isr=min_isr,
        replica_lag_time_max_ms=600,
        replica_fetch_wait_max_ms=200,
        replica_fetch_backoff_ms=100,
    )
    cluster.settle(1500)
    sent: list[tuple[bytes, int, Deferred[ErrorCode]]] = []
    pairs = [frozenset(), frozenset((1, 2)), frozenset((1, 3)), frozenset((2, 3))]
    for kind, choice in events:
        if kind == "produce":
            for node in cluster.nodes.values():
                core = node.manager.by_name.get(T0)
                if node.alive and core is not None and core.is_leader:
                    value = b"%d" % len(sent)
                    offset = core.log.log_end_offset
                    sent.append((value, offset, node.produce(value)))
        elif kind == "step":
            cluster.step(choice)
        elif kind == "steps":
            for turn in range(choice):
                cluster.step(turn * 7)
        elif kind == "tick":
            cluster.tick()
        elif kind == "kill" and cluster.nodes[choice].alive:
            cluster.kill(choice)
        elif kind == "restart" and not cluster.nodes[choice].alive:
            cluster.restart(choice)
        elif kind == "wipe" and not cluster.nodes[choice].alive:
            cluster.restart(choice, empty=choice not in cluster.partition().isr)
        elif kind == "unfence" and cluster.nodes[choice].alive and cluster.brokers[choice].fenced:
            cluster.unfence(choice)
        elif kind == "fence" and cluster.nodes[choice].alive and not cluster.brokers[choice].fenced:
            cluster.fence(choice)
        elif kind == "cut":
            cluster.cut = {pairs[choice]} if choice else set()
        elif kind == "lead" and choice in cluster.partition().isr and not cluster.brokers[choice].fenced:
            cluster.change(leader=choice)
            cluster.publish()
        check_watermarks(cluster)
    cluster.cut = set()
    for node_id in (1, 2, 3):
        if not cluster.nodes[node_id].alive or cluster.brokers[node_id].fenced:
            if cluster.nodes[node_id].alive:
                cluster.kill(node_id)
            cluster.restart(node_id)
    cluster.settle(100_000)
    assert set(cluster.partition().isr) == {1, 2, 3}
    leader = cluster.leader()
    assert leader.produce(b"last").done is False
    cluster.settle(3000)
    logs = {node.id: values_of(node.log(), node.log().log_end_offset) for node in cluster.nodes.values()}
    assert logs[1] == logs[2] == logs[3]
    assert {node.log().high_watermark for node in cluster.nodes.values()} == {leader.log().log_end_offset}
    for value, offset, answer in sent:
        if answer.done and answer.result() is ErrorCode.NONE:
            assert logs[leader.id].get(offset) == value, f"{value!r} was acknowledged at {offset}"


def check_watermarks(cluster: Cluster) -> None:
    """Records below any live node's high watermark are equal on all nodes that have them."""
    known: dict[int, bytes] = {}
    for node in cluster.nodes.values():
        core = node.manager.by_name.get(T0)
        if node.alive and core is not None:
            for offset, value in values_of(core.log, core.log.high_watermark).items():
                assert known.setdefault(offset, value) == value


def test_a_follower_that_catches_up_on_very_many_small_batches_gives_way_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster((1, 2))
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    count = 2 * BATCHES_AT_ONCE + 100
    for _ in range(count):
        cluster.nodes[1].append(b"v")
    cluster.restart(2)
    appended: list[int] = []
    go_on = Task.go_on

    def counted(self: Any) -> None:
        before = cluster.nodes[2].log().log_end_offset if T0 in cluster.nodes[2].manager.by_name else 0
        go_on(self)
        if self.what == "fetching from node 1":
            appended.append(cluster.nodes[2].log().log_end_offset - before)

    monkeypatch.setattr(Task, "go_on", counted)
    cluster.settle()
    assert cluster.nodes[2].log().log_end_offset == sum(appended) == count
    assert max(appended) == BATCHES_AT_ONCE
    assert set(cluster.partition().isr) == {1, 2}


def done_by_steps(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[int]:
    """How often each step of a fetcher calls this method."""
    counts: list[int] = []
    go_on, original = Task.go_on, getattr(of, name)

    def step(self: Any) -> None:
        if not self.what.startswith("fetching from node"):
            go_on(self)
            return
        counts.append(0)
        go_on(self)

    def counted(*arguments: Any, **options: Any) -> Any:
        counts[-1] += 1
        return original(*arguments, **options)

    monkeypatch.setattr(Task, "go_on", step)
    monkeypatch.setattr(of, name, counted)
    return counts


def test_a_follower_with_a_new_disk_begins_with_its_partitions_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 9
    cluster = Cluster((1, 3), partitions=count)
    cluster.settle()
    cluster.kill(3)
    names = [TopicPartition("t", index) for index in range(count)]
    for name in names:
        assert produced(cluster, b"a", name.partition) is ErrorCode.NONE
    deleted = cluster.leader().manager.delete_records(dict.fromkeys(names, 1), 30_000)
    cluster.settle()
    assert set(deleted.result().values()) == {(ErrorCode.NONE, 1)}
    begun = done_by_steps(monkeypatch, UnifiedLog, "truncate_fully_and_start_at")
    cluster.restart(3, empty=True)
    cluster.settle(5000)
    assert [cluster.nodes[3].log(name).log_start_offset for name in names] == [1] * count
    assert sum(begun) == count
    assert max(begun) <= TURN_COST // TRUNCATION_US


def test_what_an_answer_says_of_very_many_partitions_is_carried_out_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "ACTED_US", TURN_COST // 2)
    cluster = Cluster((1, 3))
    cluster.settle()
    (fetcher,) = cluster.nodes[3].replication._fetchers.values()
    outcome = Fetched.nothing()
    outcome.notes.extend([f"something of partition {index}" for index in range(20)])
    told = done_by_steps(monkeypatch, logging.Logger, "info")
    fetcher._tasks.start("fetching from node 1: an answer", fetcher._act_on(outcome))
    cluster.settle(1)
    assert sum(told) >= 20
    assert max(told) <= 3


def test_a_leader_that_was_alone_watches_the_replicas_that_it_gets() -> None:
    """A reassignment that only adds replicas begins no leader epoch. A follower that stands still must leave the ISR all
    the same."""
    cluster = Cluster((1, 2))
    cluster.change(replicas=(1,), isr=(1,))
    cluster.publish()
    cluster.settle(60_000)
    cluster.change(replicas=(1, 2))
    cluster.publish()
    cluster.settle()
    assert set(cluster.partition().isr) == {1, 2}
    cluster.cut = {frozenset((1, 2))}
    cluster.nodes[1].append(b"a")
    cluster.settle(60_000)
    assert cluster.partition().isr == (1,)
    assert cluster.nodes[1].log().high_watermark == 1


def leading_many(monkeypatch: pytest.MonkeyPatch) -> tuple[Cluster, list[list[int]]]:
    """Node 1 leads 45 partitions that node 2 follows no longer, and looks at 10 of them in a step. Its check of lagging
    replicas is due. The list gets the partitions that are looked at, by step."""
    monkeypatch.setattr(hosted_partitions, "VISITED_US", TURN_COST // 10)
    monkeypatch.setattr(hosted_partitions, "ACTED_US", TURN_COST // 10)
    cluster = Cluster((1, 2), partitions=45)
    cluster.settle()
    cluster.cut = {frozenset((1, 2))}
    for index in range(45):
        cluster.nodes[1].append(b"a", TopicPartition("t", index))
    looked: list[list[int]] = []
    shrink = Partition.maybe_shrink_isr

    def counted(core: Partition, now_ms: int) -> Any:
        if core.node_id == 1:
            looked[-1].append(core.topic_partition.partition)
        return shrink(core, now_ms)

    monkeypatch.setattr(Partition, "maybe_shrink_isr", counted)
    cluster.time.ms += 60_000
    looked.append([])
    begin_look(cluster)
    return cluster, looked


def begin_look(cluster: Cluster) -> None:
    """The time until the next look at lagging replicas of node 1 is over."""
    look: Any = cluster.nodes[1].replication._isr_check
    sleep = look.waits_for
    sleep.abandon()
    sleep.resolve(None)


def walk_on(cluster: Cluster, looked: list[list[int]]) -> None:
    """The next turns of the look that is under way."""
    look: Any = cluster.nodes[1].replication._isr_check
    tasks = cluster.nodes[1].tasks
    while look in tasks._paused and not look.done:
        looked.append([])
        next(timer for timer in cluster.time.pending() if timer._callback == tasks._turn).fire()


def test_lagging_replicas_are_looked_for_a_few_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, looked = leading_many(monkeypatch)
    walk_on(cluster, looked)
    assert [len(step) for step in looked] == [10, 10, 10, 10, 5]
    cluster.settle(0)
    assert {cluster.partition(index).isr for index in range(45)} == {(1,)}
    assert cluster.nodes[1].log(TopicPartition("t", 44)).high_watermark == 1


def test_a_look_at_lagging_replicas_lets_roles_change_between_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions are deposed, moved away and given to this node while it looks."""
    cluster, looked = leading_many(monkeypatch)
    cluster.change(20, leader=2)
    cluster.change(21, replicas=(2,), isr=(2,), leader=2)
    cluster.publish()
    while link := next((each for each in cluster.queues if each.startswith("image 1/")), None):
        cluster.step(sorted(cluster.queues).index(link))
    walk_on(cluster, looked)
    assert not {20, 21} & {index for step in looked for index in step}
    cluster.settle(0)
    assert {cluster.partition(index).isr for index in range(45) if index not in (20, 21)} == {(1,)}
    assert cluster.partition(20).isr == (1, 2)


def test_a_leader_that_begins_during_a_look_is_looked_at_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is its only partition with other replicas, and so the only reason for another look."""
    monkeypatch.setattr(hosted_partitions, "VISITED_US", TURN_COST // 10)
    cluster = Cluster((1, 2), partitions=45)
    for index in range(45):
        cluster.change(index, leader=2)
    cluster.publish()
    cluster.settle(10_000)
    look: Any = cluster.nodes[1].replication._isr_check
    begin_look(cluster)
    assert look in cluster.nodes[1].tasks._paused
    cluster.change(3, leader=1)
    cluster.publish()
    cluster.settle(1000)
    assert look not in cluster.nodes[1].tasks._paused
    cluster.cut = {frozenset((1, 2))}
    cluster.nodes[1].append(b"a", TopicPartition("t", 3))
    cluster.settle(60_000)
    assert cluster.partition(3).isr == (1,)


def test_a_closed_node_looks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, looked = leading_many(monkeypatch)
    cluster.nodes[1].replication.close()
    walk_on(cluster, looked)
    cluster.settle(0)
    assert len(looked) == 1


def test_a_look_that_fails_halts_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions behind the failure would never be looked at."""
    cluster, looked = leading_many(monkeypatch)
    monkeypatch.setattr(Partition, "maybe_shrink_isr", lambda core, now_ms: 1 // 0)
    walk_on(cluster, looked)
    assert [type(each) for each in cluster.nodes[1].halted] == [ZeroDivisionError]


def test_records_do_not_wait_for_a_replica_whose_joining_is_refused() -> None:
    """The image with the fenced broker comes while the controller is still asked, and the refusal after it."""
    cluster = Cluster((1, 2))
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    cluster.restart(2)
    while not (asking := [link for link in cluster.queues if link.endswith(" alters")]):
        if not cluster.step(2):
            cluster.tick()
    waiting = cluster.nodes[1].produce(b"a")
    cluster.kill(2)
    image = next(link for link in cluster.queues if link.startswith("image 1/"))
    cluster.step(sorted(cluster.queues).index(image))
    assert not waiting.done
    before_ms = cluster.time.ms
    cluster.step(sorted(cluster.queues).index(asking[0]))
    cluster.drain()
    assert waiting.result() is ErrorCode.NONE
    assert cluster.time.ms == before_ms
