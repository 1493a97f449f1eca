"""The leader's view of its followers: which are caught up, which ISRs it proposes, and how it handles the controller's
answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.config import LogConfig
from kafkacompat.ids import OffsetAndEpoch, TopicPartition
from kafkacompat.log._tests.logs import batch_of, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.partition._tests.kit import broker_epoch, broker_image, partition_image
from kafkacompat.partition.fetch_session import CachedPartition
from kafkacompat.partition.partition import Altered, Partition, PendingPartitionChange, Replica, Standing
from kafkacompat.partition.service import FetchRequestPartition
from kafkacompat.wire.errors import ErrorCode

LAG_MS = 100


def leader(*, isr: tuple[int, ...] = (1, 2, 3), end: int = 10, min_isr: int = 1) -> Partition:
    name = TopicPartition("t", 0)
    log = open_log(MemoryDisk(), LogConfig(min_insync_replicas=min_isr))
    for _ in range(end):
        log.append_as_leader(batch_of([b"value"]), 0, 0)
    log.is_durable = True
    standing = Standing(LAG_MS)
    standing.brokers = {each: broker_image(each) for each in (1, 2, 3, 4)}
    core = Partition(1, name, bytes(16), log, standing)
    core.become(partition_image(replicas=(1, 2, 3), isr=isr), 0)
    return core


def fetch(core: Partition, replica: int, offset: int, now_ms: int = 0, epoch: int | None = None) -> ErrorCode:
    return core.update_follower_fetch_state(
        replica, offset, 0, broker_epoch(replica) if epoch is None else epoch, now_ms
    )


def test_a_follower_is_caught_up_when_it_has_what_was_there_at_its_fetch_before() -> None:
    state = Replica()
    state.update_fetch_state(5, 0, 10, -1, 1000)
    assert not state.is_caught_up(10, 1000, LAG_MS)
    state.update_fetch_state(
        10, 0, 20, -1, 1200
    )  # everything from the time 1000, not yet everything from 1200
    assert state.last_caught_up_ms == 1000
    assert state.is_caught_up(20, 1000 + LAG_MS, LAG_MS)
    assert not state.is_caught_up(20, 1001 + LAG_MS, LAG_MS)
    assert state.is_caught_up(10, 10**9, LAG_MS), (
        "at the leader's end it is caught up however long ago it fetched"
    )
    state.update_fetch_state(20, 0, 20, -1, 1300)
    assert state.last_caught_up_ms == 1300


@pytest.mark.parametrize(
    ("change", "joins"),
    [
        ({}, True),
        ({"fenced": True}, False),
        ({"in_controlled_shutdown": True}, False),
        ({"epoch": 77}, False),
    ],
)
def test_only_live_staying_brokers_in_their_newest_life_join(change: dict[str, int], joins: bool) -> None:
    core = leader(isr=(1, 2))
    fetch(core, 3, 10)
    core.standing.brokers = {**core.standing.brokers, 3: replace(broker_image(3), **change)}  # type: ignore[arg-type]
    assert (core.maybe_expand_isr(3) is not None) is joins


def test_a_follower_joins_at_the_high_watermark_and_this_epochs_start() -> None:
    core = leader(isr=(1, 2))
    core.log.set_high_watermark(4)
    assert core.epoch_start_offset == 10
    fetch(core, 3, 9)
    assert core.maybe_expand_isr(3) is None
    fetch(core, 3, 10)
    proposal = core.maybe_expand_isr(3)
    assert proposal is not None
    assert (proposal.isr, proposal.maximal) == ((1, 2, 3), (1, 2, 3))
    assert proposal.members == ((1, -1), (2, -1), (3, broker_epoch(3))), (
        "epochs as the followers' fetches told them"
    )
    assert core.maybe_expand_isr(3) is None, "one change at a time"


def test_a_fetch_of_an_earlier_life_is_refused() -> None:
    core = leader()
    assert fetch(core, 3, 10, epoch=broker_epoch(3) - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert core.followers[3].log_end_offset == -1
    assert fetch(core, 3, 10, epoch=-1) is ErrorCode.NONE
    assert fetch(core, 3, 10, epoch=broker_epoch(3) + 1) is ErrorCode.NONE  # this node's metadata is behind


def test_laggards_are_proposed_out_and_still_waited_for_until_the_controller_agrees() -> None:
    core = leader()
    fetch(core, 2, 10, 50)
    assert core.maybe_shrink_isr(LAG_MS) is None
    proposal = core.maybe_shrink_isr(LAG_MS + 1)
    assert proposal is not None
    assert (proposal.isr, proposal.maximal) == ((1, 2), (1, 2, 3))
    assert not core.maybe_increment_leader_high_watermark(LAG_MS + 1)
    assert core.handle_alter_partition(proposal, ErrorCode.NONE, 0, (1, 2), 1) is Altered.COMMITTED
    assert core.maybe_increment_leader_high_watermark(LAG_MS + 1)
    assert core.log.high_watermark == 10


def test_a_joining_follower_is_waited_for_while_the_change_is_on_its_way() -> None:
    core = leader(isr=(1, 2))
    fetch(core, 2, 10)
    fetch(core, 3, 10)
    proposal = core.maybe_expand_isr(3)
    core.log.log_end_offset = 20  # type: ignore[misc]
    fetch(core, 2, 20, 10 * LAG_MS)
    core.maybe_increment_leader_high_watermark(10 * LAG_MS)
    assert core.log.high_watermark == 10, "3 has not caught up for long, and is waited for all the same"
    same = partition_image(replicas=(1, 2, 3), isr=(1, 2))
    core.become(same, 10 * LAG_MS)
    assert core.pending is proposal, "an image of the epoch the proposal builds on decides nothing"
    core.become(replace(same, partition_epoch=1), 10 * LAG_MS)
    assert core.pending is None


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 4), (0, 2)])
def test_an_answer_of_another_epoch_changes_nothing_until_the_image_tells(
    leader_epoch: int, partition_epoch: int
) -> None:
    """The answer is for a partition with a newer leader epoch, or older than the state here."""
    core = leader(isr=(1, 2))
    core.become(replace(partition_image(replicas=(1, 2, 3), isr=(1, 2)), partition_epoch=3), 0)
    fetch(core, 2, 10)
    fetch(core, 3, 10)
    proposal = core.maybe_expand_isr(3)
    assert proposal is not None
    answer = core.handle_alter_partition(proposal, ErrorCode.NONE, leader_epoch, (1, 2, 3), partition_epoch)
    assert answer is Altered.AWAITING
    assert (core.pending, core.isr, core.partition_epoch) == (proposal, (1, 2), 3)
    image = replace(partition_image(replicas=(1, 2, 3), isr=(1, 3), epoch=1), partition_epoch=4)
    core.become(image, 0)
    assert (core.pending, core.isr) == (None, (1, 3))


def test_below_min_isr_the_high_watermark_stands_though_a_change_would_make_it_enough() -> None:
    core = leader(isr=(1,), min_isr=2)
    fetch(core, 2, 10)
    proposal = core.maybe_expand_isr(2)
    assert proposal is not None
    assert not core.maybe_increment_leader_high_watermark(0)
    assert core.may_have_min_isr()
    assert not core.has_min_isr()
    core.handle_alter_partition(proposal, ErrorCode.NONE, 0, (1, 2), 1)
    assert core.maybe_increment_leader_high_watermark(0)


ANSWERS = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: Altered.REJECTED,
    ErrorCode.INELIGIBLE_REPLICA: Altered.REJECTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Altered.AWAITING,
    ErrorCode.UNKNOWN_TOPIC_ID: Altered.AWAITING,
    ErrorCode.FENCED_LEADER_EPOCH: Altered.AWAITING,
    ErrorCode.INVALID_UPDATE_VERSION: Altered.AWAITING,
    ErrorCode.INVALID_REQUEST: Altered.AWAITING,
    ErrorCode.NEW_LEADER_ELECTED: Altered.AWAITING,
    ErrorCode.NOT_CONTROLLER: Altered.RETRY,
    ErrorCode.UNKNOWN_SERVER_ERROR: Altered.RETRY,
}


@pytest.mark.parametrize(("error", "outcome"), ANSWERS.items())
def test_what_each_refusal_means(error: ErrorCode, outcome: Altered) -> None:
    core = leader(isr=(1, 2))
    fetch(core, 3, 10)
    proposal = core.maybe_expand_isr(3)
    assert proposal is not None
    assert core.handle_alter_partition(proposal, error) is outcome
    assert core.isr == (1, 2)
    assert core.maximal_isr() == ((1, 2) if outcome is Altered.REJECTED else (1, 2, 3))


def test_answers_to_what_was_given_up_change_nothing() -> None:
    core = leader(isr=(1, 2))
    fetch(core, 3, 10)
    proposal = core.maybe_expand_isr(3)
    assert proposal is not None
    core.become(replace(partition_image(replicas=(1, 2, 3), isr=(1,)), partition_epoch=5), 0)
    assert core.handle_alter_partition(proposal, ErrorCode.NONE, 0, (1, 2, 3), 1) is Altered.OUTDATED
    assert (core.isr, core.partition_epoch) == ((1,), 5)


def test_what_followers_had_in_a_former_lead_counts_for_nothing_in_the_next() -> None:
    """The leader in between may have truncated them since."""
    core = leader(isr=(1, 2))
    fetch(core, 2, 10)
    core.become(partition_image(leader=2, epoch=1, replicas=(1, 2, 3), isr=(1, 2)), 0)
    core.become(partition_image(leader=1, epoch=2, replicas=(1, 2, 3), isr=(1, 2)), 0)
    assert core.followers[2].log_end_offset == -1
    assert not core.maybe_increment_leader_high_watermark(0)
    core.become(partition_image(leader=1, epoch=3, replicas=(1, 2, 3), isr=(1, 2)), 0)
    fetch(core, 2, 10)
    core.become(partition_image(leader=1, epoch=4, replicas=(1, 2, 3), isr=(1, 2)), 0)
    assert core.followers[2].log_end_offset == -1


def test_a_lead_begins_at_the_end_of_the_log_before_anything_is_appended_in_it() -> None:
    """A replica that led in between may have records of the previous epoch from there on. They must be truncated."""
    core = leader(isr=(1, 2))
    core.become(partition_image(leader=2, epoch=1, replicas=(1, 2, 3), isr=(1, 2)), 0)
    assert core.log.epoch_entries == [(0, 0)]
    core.become(partition_image(leader=1, epoch=2, replicas=(1, 2, 3), isr=(1, 2)), 0)
    assert core.log.epoch_entries == [(0, 0), (2, 10)]
    assert core.log.end_offset_for_epoch(1) == OffsetAndEpoch(10, 0)
    assert core.log.end_offset_for_epoch(2) == OffsetAndEpoch(10, 2)


def test_a_replica_that_has_gone_is_neither_waited_for_nor_served() -> None:
    core = leader(isr=(1, 2, 3))
    for replica, end in ((2, 10), (3, 4)):
        fetch(core, replica, end)
    core.maybe_increment_leader_high_watermark(0)
    assert core.log.high_watermark == 4
    image = partition_image(replicas=(1, 2), isr=(1, 2))
    core.become(replace(image, partition_epoch=1), 0)
    assert core.maybe_increment_leader_high_watermark(0)
    assert core.log.high_watermark == 10
    assert core.check_replica(3, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    core.become(replace(partition_image(replicas=(1,), isr=(1,)), partition_epoch=2), 0)
    assert core.alone


def test_an_older_image_takes_nothing_back_and_a_change_builds_on_the_newest() -> None:
    core = leader(isr=(1, 2))
    older = partition_image(replicas=(1, 2, 3), isr=(1, 2))
    fetch(core, 3, 10)
    proposal = core.maybe_expand_isr(3)
    assert proposal is not None
    assert core.handle_alter_partition(proposal, ErrorCode.NONE, 0, (1, 2, 3), 5) is Altered.COMMITTED
    core.become(replace(older, partition_epoch=4), 0)
    assert (core.isr, core.partition_epoch) == ((1, 2, 3), 5)
    proposal = core.maybe_shrink_isr(10 * LAG_MS)
    assert proposal is not None
    assert proposal.partition_epoch == 5
    assert core.maybe_shrink_isr(20 * LAG_MS) is None, "one change at a time"
    assert core.pending is proposal
    core.resign()
    assert core.pending is None, "what is asked for a partition that is not served is not sent"


def idle(core: Partition, replica: int, now_ms: int, epoch: int | None = None) -> bool:
    """A fetch of a follower that is up to date."""
    log = core.log
    asked = CachedPartition(
        FetchRequestPartition(bytes(16), "t", 0, log.log_end_offset, 1, core.leader_epoch, 0, 0),
        (bytes(16), 0),
    )
    asked.told_high_watermark, asked.told_log_start_offset = log.high_watermark, log.log_start_offset
    asked.settled_epoch = core.leader_epoch
    return core.update_idle_follower_fetch_state(
        replica, asked, broker_epoch(replica) if epoch is None else epoch, now_ms
    )


def test_a_fetch_that_has_nothing_new_says_that_the_follower_is_caught_up() -> None:
    core = leader(isr=(1, 2))
    fetch(core, 2, 10, 0)
    assert idle(core, 2, 10 * LAG_MS)
    core.log.append_as_leader(batch_of([b"value"]), 0, 0)
    assert core.maybe_shrink_isr(11 * LAG_MS) is None
    # The follower had everything at the time of the idle fetch, and nothing more.
    fetch(core, 2, 10, 11 * LAG_MS)
    assert core.followers[2].last_caught_up_ms == 10 * LAG_MS
    core.log.append_as_leader(batch_of([b"value"]), 0, 0)
    fetch(core, 2, 11, 12 * LAG_MS)
    assert core.followers[2].last_caught_up_ms == 11 * LAG_MS


def test_a_fetch_of_another_life_or_of_one_out_of_sync_is_looked_at_whole() -> None:
    core = leader(isr=(1, 2))
    for replica in (2, 3):
        fetch(core, replica, 10)
    assert not idle(core, 2, 0, epoch=7)
    assert not idle(core, 3, 0), "it may be due to join"
    assert idle(core, 2, 0)


def test_the_low_watermark_is_of_live_replicas() -> None:
    core = leader()
    core.log.log_start_offset = 7
    assert core.low_watermark() == -1
    core.update_follower_fetch_state(2, 10, 5, broker_epoch(2), 0)
    core.update_follower_fetch_state(3, 10, 2, broker_epoch(3), 0)
    assert core.low_watermark() == 2
    core.standing.brokers = {**core.standing.brokers, 3: broker_image(3, fenced=True)}
    assert core.low_watermark() == 5


def test_every_state_of_three_replicas_against_the_rule_in_words() -> None:
    """The high watermark is the lowest end offset of the leader, of replicas that may be in the ISR, and of replicas
    about to join."""
    ends = (-1, 4, 10)
    checked = 0
    for end2, end3, isr, pending, recent2, recent3 in product(
        ends, ends, [(1,), (1, 2), (1, 2, 3)], [(), (2,), (3,)], (False, True), (False, True)
    ):
        core = leader(isr=isr)
        now_ms = 1000
        waited_for = {*isr, *pending}
        expected = 10
        for replica, end, recent in ((2, end2, recent2), (3, end3, recent3)):
            state = core.followers[replica]
            if end >= 0:
                state.update_fetch_state(end, 0, 10, broker_epoch(replica), now_ms)
            state.last_caught_up_ms = now_ms if recent else -1000
            about_to_join = end >= 0 and (recent or end == 10)
            if replica in waited_for or about_to_join:
                expected = min(expected, end)
        if pending:
            core.pending = PendingPartitionChange(isr, tuple(sorted(waited_for)), (), 0, 0)
        core.maybe_increment_leader_high_watermark(now_ms)
        assert core.log.high_watermark == max(0, expected)
        checked += 1
    assert checked == 324


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3)),
            st.tuples(st.just("fetch2"), st.integers(0, 30)),
            st.tuples(st.just("fetch3"), st.integers(0, 30)),
            st.tuples(st.just("time"), st.integers(1, 80)),
            st.tuples(st.just("shrink"), st.just(0)),
            st.tuples(st.just("agree"), st.just(0)),
            st.tuples(st.just("refuse"), st.just(0)),
        )
    )
)
def test_every_replica_that_the_controller_may_count_has_all_below_the_high_watermark(
    events: list[tuple[str, int]],
) -> None:
    core = leader(end=0)
    now_ms = 0
    proposal: PendingPartitionChange | None = None
    told = core.isr
    for kind, number in events:
        before = core.log.high_watermark
        if kind == "append":
            core.log.log_end_offset += number
        elif kind.startswith("fetch"):
            replica = int(kind[-1])
            at = min(core.log.log_end_offset, max(number, core.followers[replica].log_end_offset))
            fetch(core, replica, at, now_ms)
            if replica not in core.isr:
                proposal = core.maybe_expand_isr(replica) or proposal
        elif kind == "time":
            now_ms += number
        elif kind == "shrink":
            proposal = core.maybe_shrink_isr(now_ms) or proposal
        elif proposal is not None and core.pending is proposal:
            if kind == "agree":
                told = proposal.isr
                core.handle_alter_partition(proposal, ErrorCode.NONE, 0, told, core.partition_epoch + 1)
            else:
                core.handle_alter_partition(proposal, ErrorCode.INELIGIBLE_REPLICA)
        core.maybe_increment_leader_high_watermark(now_ms)
        assert core.log.high_watermark >= before
        may_count = set(told) | (set(core.pending.isr) if core.pending is not None else set())
        for replica in may_count - {1}:
            if core.log.high_watermark > 0:
                assert core.followers[replica].log_end_offset >= core.log.high_watermark
