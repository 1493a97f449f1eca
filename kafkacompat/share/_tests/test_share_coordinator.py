"""The shell of the share coordinator: requests for many share-partitions, failing writes, loads, pruning and upkeep."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.coordinator._tests.kit import topic_image as topic_of
from kafkacompat.coordinator.partition_writer import ServicePartitionWriter
from kafkacompat.coordinator.shard import ShardState
from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.share._tests.share_coordinator_kit import (
    TOPIC,
    ShareCoordinatorNode,
    initialization,
    partition_name,
    reading,
    results,
    writing,
)
from kafkacompat.share.service import StateBatch
from kafkacompat.share.share_coordinator import ShareCoordinatorSettings
from kafkacompat.share.state.records import ShareGroupOffset, ShareUpdate
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages import delete_share_group_state_request as delete
from kafkacompat.wire.messages import read_share_group_state_summary_request as summary

FINE = (E.NONE, None)


def deletion(*partitions: int, group: str = "g") -> Any:
    return delete.DeleteShareGroupStateRequest(
        group_id=group,
        topics=[
            delete.DeleteStateData(
                topic_id=TOPIC, partitions=[delete.PartitionData(partition=each) for each in partitions]
            )
        ],
    )


def summary_of(*partitions: int, group: str = "g") -> Any:
    return summary.ReadShareGroupStateSummaryRequest(
        group_id=group,
        topics=[
            summary.ReadStateSummaryData(
                topic_id=TOPIC, partitions=[summary.PartitionData(partition=each) for each in partitions]
            )
        ],
    )


def test_a_state_is_written_read_summed_up_and_deleted() -> None:
    world = ShareCoordinatorNode()
    assert results(world.initialize(0, 1, epoch=2, start=10)) == {0: FINE, 1: FINE}
    state = world.read(0, leader=4).result().results[0].partitions[0]
    assert (state.state_epoch, state.start_offset, state.state_batches) == (2, 10, [])
    batches = [StateBatch(10, 14, 2, 1), StateBatch(15, 15, 0, 2)]
    answer = world.write(
        {0: batches}, state_epoch=2, leader_epoch=4, start_offset=12, delivery_complete_count=3
    )
    assert results(answer) == {0: FINE}
    (told,) = world.read(0, leader=4).result().results
    assert told.topic_id == TOPIC
    assert [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in told.partitions[0].state_batches
    ] == [(12, 14, 2, 1), (15, 15, 0, 2)]
    answer = world.coordinator.read_state_summary(summary_of(0, 1, 2)).result()
    assert [
        (each.partition, each.state_epoch, each.leader_epoch, each.start_offset, each.delivery_complete_count)
        for each in answer.results[0].partitions
    ] == [(0, 2, 4, 12, 3), (1, 2, 0, 10, 0), (2, 0, 0, -1, -1)]
    assert results(world.coordinator.delete_state(deletion(0, 1, 2))) == {0: FINE, 1: FINE, 2: FINE}
    assert results(world.read(0, leader=4))[0][0] is E.INVALID_REQUEST


def test_share_partitions_of_one_request_are_one_batch() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0, 1, 2)
    assert len(world.records()) == 3
    assert world.batch_count() == 1


def test_a_share_partition_that_is_named_twice_is_written_twice_and_answered_once() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0)
    request = writing({0: [StateBatch(0, 0, 2, 1)]})
    request.topics[0].partitions *= 2
    assert results(world.coordinator.write_state(request)) == {0: FINE}
    request = initialization(0)
    request.topics[0].partitions *= 2
    assert results(world.coordinator.initialize_state(request)) == {0: FINE}
    snapshots = [each.value for _, each in world.records() if isinstance(each.value, ShareGroupOffset)]
    assert [each.snapshot_epoch for each in snapshots] == [0, 1, 2]
    assert len(world.records()) == 5


def test_large_requests_are_written_in_several_batches() -> None:
    world = ShareCoordinatorNode(partitions=1)
    groups = "g" * 1000
    world.initialize(0, 1, 2, group=groups)
    many = [StateBatch(2 * each, 2 * each, 2, 1) for each in range(1_000)]
    answer = world.write({0: many, 1: many, 2: many}, group=groups)
    while not answer.done:
        assert world.time.step()
    assert results(answer) == {0: FINE, 1: FINE, 2: FINE}
    assert world.batch_count() == 4


def test_snapshots_that_are_due_at_once_are_written_in_several_batches() -> None:
    """Small writes may lead to large records."""
    config = LogConfig(max_message_bytes=32_768)
    world = ShareCoordinatorNode(ShareCoordinatorSettings(updates_per_snapshot=1), config=config)

    def told(answer: Any) -> Any:
        while not answer.done:
            assert world.time.step()
        return results(answer)

    all_fine = {0: FINE, 1: FINE, 2: FINE}
    assert told(world.initialize(0, 1, 2)) == all_fine
    for each in range(3):
        told(world.write({each: [StateBatch(2 * at, 2 * at, 2, 1) for at in range(1_000)]}))
    assert told(world.write({each: [StateBatch(1, 1, 0, 1)] for each in range(3)})) == all_fine
    assert [type(record.value) for _, record in world.records()[-3:]] == [ShareGroupOffset] * 3
    # The epoch of a new leader may lead to one, too.
    assert told(world.write({each: [] for each in range(3)})) == all_fine
    assert told(world.coordinator.read_state(reading(0, 1, 2, leader=1))) == all_fine
    assert [type(record.value) for _, record in world.records()[-3:]] == [ShareGroupOffset] * 3


@pytest.mark.parametrize(
    ("ask", "request_"),
    [
        ("initialize_state", initialization(0)),
        ("write_state", writing({0: []})),
        ("delete_state", deletion(0)),
        ("read_state_summary", summary_of(0)),
    ],
)
def test_requests_that_cannot_be_served(ask: str, request_: Any) -> None:
    world = ShareCoordinatorNode()
    verb = ask.replace("_state", " share group state").replace("_", " ")
    world.resign()
    serve = getattr(world.coordinator, ask)
    assert results(serve(request_)) == {
        0: (E.NOT_COORDINATOR, f"Unable to {verb}: This is not the correct coordinator.")
    }
    world.publish(deleted=[SHARE_STATE_TOPIC])
    assert results(serve(request_))[0][0] is E.NOT_COORDINATOR
    world.coordinator.stop()
    assert results(serve(request_)) == {
        0: (E.COORDINATOR_NOT_AVAILABLE, "Share coordinator is not available.")
    }
    assert not world.coordinator.is_active()


def test_requests_without_content_get_empty_responses() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0)
    for request in (deletion(0, group=""), deletion(), delete.DeleteShareGroupStateRequest(group_id="g")):
        assert world.coordinator.delete_state(request).result().results == []
    assert world.initialize().result().results == []


def test_an_answer_waits_for_the_followers_and_a_failed_wait_is_an_error() -> None:
    world = ShareCoordinatorNode(followed=True)
    answer = world.initialize(0, 1)
    assert not answer.done
    world.follow()
    world.follow()
    assert results(answer) == {0: FINE, 1: FINE}
    late = world.write({0: [StateBatch(0, 4, 2, 1)]})
    read = world.read(1)
    world.time.advance(world.settings.write_timeout_ms)
    text = "Unable to write share group state: The coordinator is not available."
    assert results(late) == {0: (E.COORDINATOR_NOT_AVAILABLE, text)}
    assert results(read)[1][0] is E.COORDINATOR_NOT_AVAILABLE  # it might show what is not committed
    world.follow()
    world.follow()
    # What the log has taken stays.
    assert len(world.read(0).result().results[0].partitions[0].state_batches) == 1


def test_a_write_that_the_log_refuses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ShareCoordinatorNode()
    world.initialize(0)
    refused = (E.NOT_LEADER_OR_FOLLOWER, -1, False)
    monkeypatch.setattr(ServicePartitionWriter, "append_built", lambda *_: refused)
    assert results(world.write({0: [StateBatch(0, 4, 2, 1)]}))[0][0] is E.NOT_COORDINATOR
    monkeypatch.undo()
    assert world.read(0).result().results[0].partitions[0].state_batches == []


def test_states_are_the_same_after_a_restart_and_after_a_time_as_follower() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(updates_per_snapshot=3))
    world.initialize(0, 1)
    world.read(0, leader=3)
    for offset in range(10):
        world.write(
            {0: [StateBatch(offset, offset, 2, 1)], 1: [StateBatch(offset, offset, 0, 2)]}, leader_epoch=3
        )
    world.coordinator.delete_state(deletion(2))
    states = machine(world).states
    known = {key: (state.offset, state.updates, state.leader_epoch) for key, state in states.items()}
    for again in (world.restart, world.resign, world.lead_again):
        again()
        if again == world.resign:
            continue
        found = machine(world).states
        assert {k: (s.offset, s.updates, s.leader_epoch) for k, s in found.items()} == known
        assert machine(world).offsets.last_redundant_offset() is not None


def test_a_shard_that_loads_says_so() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0)
    world.resign()
    world.leader_epoch += 1
    world.publish(world.state_topic())
    assert results(world.read(0))[0] == (
        E.COORDINATOR_LOAD_IN_PROGRESS,
        "Unable to read share group state: The coordinator is loading and hence can't process requests.",
    )
    world.time.advance(0)
    assert results(world.read(0)) == {0: FINE}


def machine(world: ShareCoordinatorNode) -> Any:
    (shard,) = list(world.coordinator._shards)
    assert shard.state is ShardState.ACTIVE
    return shard.machine


# --- pruning


def test_records_that_snapshots_replace_are_removed() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(updates_per_snapshot=2, cold_interval_ms=1 << 30))
    world.initialize(0)
    for offset in range(4):
        world.write({0: [StateBatch(offset, offset, 2, 1)]})
    assert [type(record.value) for _, record in world.records()] == [
        ShareGroupOffset, ShareUpdate, ShareUpdate, ShareGroupOffset, ShareUpdate
    ]  # fmt: skip
    world.time.advance(world.settings.prune_interval_ms)
    assert world.log().log_start_offset == 3
    assert world.coordinator.sweeps.pruned == {0: 3}
    known = machine(world).states
    world.restart()
    assert {k: s.offset for k, s in machine(world).states.items()} == {k: s.offset for k, s in known.items()}


def test_what_replaces_records_must_be_committed() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(updates_per_snapshot=0), followed=True)
    world.initialize(0)
    world.follow()
    world.follow()
    world.time.advance(world.settings.prune_interval_ms - 1)
    world.write({0: []})
    world.time.advance(1)
    assert world.log().log_start_offset == 0
    world.follow()
    world.follow()
    assert world.log().log_start_offset == 1
    assert world.coordinator.sweeps.pruned == {0: 1}


def test_what_replaces_records_must_be_committed_also_if_an_earlier_leader_wrote_it() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(updates_per_snapshot=0), followed=True)
    world.initialize(0)
    world.follow()
    world.follow()
    world.write({0: []})
    world.restart()
    world.time.advance(world.settings.prune_interval_ms)
    assert world.log().log_start_offset == 0
    world.follow()
    world.follow()
    world.time.advance(world.settings.prune_interval_ms)
    world.follow()
    assert world.log().log_start_offset == 1


def test_a_cold_share_partition_does_not_hold_up_pruning_for_ever() -> None:
    settings = ShareCoordinatorSettings(
        updates_per_snapshot=0, cold_interval_ms=1_000, prune_interval_ms=10_000
    )
    world = ShareCoordinatorNode(settings)
    world.initialize(0, 1)
    world.time.advance(999)
    world.write({0: []})
    world.time.advance(1)
    offset, cold = world.records()[-1]
    assert isinstance(cold.value, ShareGroupOffset)
    assert (offset, cold.key.partition, cold.value.snapshot_epoch) == (3, 1, 1)
    assert cold.value.write_timestamp == world.time.now_ms()
    assert cold.value.create_timestamp == world.time.now_ms() - 1_000
    world.time.advance(9_000)
    assert world.log().log_start_offset > 1


def test_what_comes_while_cold_share_partitions_are_snapshotted_stays() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(cold_interval_ms=1_000))
    world.initialize(0, 1, 2)
    # So many batches that the snapshot of this one takes all of a turn.
    world.write({0: [StateBatch(2 * at, 2 * at, 2, 1) for at in range(2_001)]})
    answers: list[Any] = []

    def between() -> None:
        answers.append(world.write({1: [StateBatch(7, 7, 2, 1)]}, start_offset=5, delivery_complete_count=1))
        answers.append(world.coordinator.delete_state(deletion(2)))

    world.time.call_after(1_000, between)
    world.time.advance(1_000)
    assert [results(each) for each in answers] == [{1: FINE}, {2: FINE}]
    kinds = [(record.key.partition, type(record.value)) for _, record in world.records()[4:]]
    assert kinds == [
        (0, ShareGroupOffset), (1, ShareUpdate), (2, type(None)), (1, ShareGroupOffset)
    ]  # fmt: skip
    for _ in range(2):
        state = world.read(1).result().results[0].partitions[0]
        assert (state.start_offset, [each.first_offset for each in state.state_batches]) == (5, [7])
        assert {key.partition for key in machine(world).states} == {0, 1}
        world.restart()


def test_quiet_shards_are_left_alone() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(cold_interval_ms=1_000))
    world.initialize(0, 1)
    world.time.advance(1_000)
    assert len(world.records()) == 4
    world.time.advance(5_000)
    assert len(world.records()) == 4


def test_nothing_is_done_without_share_groups() -> None:
    world = ShareCoordinatorNode(ShareCoordinatorSettings(updates_per_snapshot=0, cold_interval_ms=1_000))
    world.initialize(0)
    world.write({0: []})
    old = world.image
    world.image = topicless = old.__class__(**{
        **{name: getattr(old, name) for name in ("topics", "topics_by_id", "brokers")}, "features": {}
    })  # fmt: skip
    world.coordinator.on_image(old, topicless)
    world.time.advance(world.settings.prune_interval_ms)
    assert len(world.records()) == 2


# --- deleted topics


def test_states_of_a_deleted_topic_are_deleted() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0, 1)
    world.publish(deleted=["t"])
    assert [record.value for _, record in world.records()][2:] == [None, None]
    assert not machine(world).states


def test_a_topic_deleted_while_its_states_are_loaded_is_not_forgotten() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0)
    world.resign()
    world.leader_epoch += 1
    world.publish(world.state_topic())
    world.publish(deleted=["t"])
    world.time.advance(0)
    assert not machine(world).states


def test_states_of_a_deleted_topic_that_the_log_did_not_let_go_go_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ShareCoordinatorNode()
    world.initialize(0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(ServicePartitionWriter, "append_built", lambda *_: (E.KAFKA_STORAGE_ERROR, -1, False))
        world.publish(deleted=["t"])
        world.time.advance(world.settings.prune_interval_ms)
        assert len(machine(world).states) == 2
    world.time.advance(world.settings.prune_interval_ms)
    assert not machine(world).states
    assert not world.coordinator.sweeps._deleted


def test_states_of_a_topic_that_was_deleted_while_nobody_coordinated_go() -> None:
    world = ShareCoordinatorNode()
    world.initialize(0, 1)
    world.resign()
    world.publish(deleted=["t"])
    world.lead_again()
    world.time.advance(world.settings.prune_interval_ms)
    assert not machine(world).states


def test_a_shard_that_goes_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ShareCoordinatorNode()
    world.initialize(0)
    monkeypatch.setattr(ServicePartitionWriter, "append_built", lambda *_: (E.KAFKA_STORAGE_ERROR, -1, False))
    world.publish(deleted=["t"])
    assert world.coordinator.sweeps._deleted
    world.resign()
    assert not world.coordinator.sweeps._deleted


def test_of_many_states_only_those_of_deleted_topics_go() -> None:
    world = ShareCoordinatorNode()
    world.publish(topic_of("u", 3, bytes(15) + b"\x09"))
    request = initialization(0, 1, 2)
    request.topics += initialization(0, 1, 2).topics
    request.topics[1].topic_id = bytes(15) + b"\x09"
    world.coordinator.initialize_state(request)
    assert len(machine(world).states) == 6
    world.publish(deleted=["u"])
    assert {key.topic_id for key in machine(world).states} == {TOPIC}


def test_the_coordinator_finds_the_partition_as_kafka_does() -> None:
    world = ShareCoordinatorNode(partitions=50)
    key = "group:AAAAAAAAAAAAAAAAAAAABw:3"
    expected = 0
    for each in key:
        expected = (expected * 31 + ord(each)) & 0xFFFFFFFF
    signed = expected - (1 << 32) if expected >> 31 else expected
    assert world.coordinator.partition_for(key) == abs(signed) % 50
    assert world.manager.log(partition_name(49)) is not None
