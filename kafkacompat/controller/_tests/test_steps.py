"""The cost of a cluster with many partitions in one step: no command, replay, snapshot or fencing handles more records
than one step allows between two turns of the loop, and no decision depends on an unfinished one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.api.request_context import NotController
from kafkacompat.controller import cluster_control_manager, configuration_control_manager, records
from kafkacompat.controller._tests.clusters import broker, cluster, partition
from kafkacompat.controller._tests.harness import HEARD_ON, Harness, context, registration
from kafkacompat.controller.controller_result import RECORDS_A_STEP
from kafkacompat.controller.event_queue import EventQueue
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.controller.partition_change_builder import PartitionChangeBuilder
from kafkacompat.controller.reach import Probed
from kafkacompat.controller.striped_replica_placer import StripedReplicaPlacer
from kafkacompat.controller.topics import (
    NAMED_A_STEP,
    TOPICS_A_STEP,
    create_partitions,
    create_topics,
    delete_topics,
)
from kafkacompat.deferred import Deferred
from kafkacompat.raft._tests.driver_support import QuorumTime
from kafkacompat.tasks import TURN_COST, Tasks, Work
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

PARTITIONS = 1_500


class Turn:
    """Counts the work between two turns of a world's timers."""

    def __init__(self, patch: pytest.MonkeyPatch, world: QuorumTime) -> None:
        self.counts: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.totals: dict[str, int] = {}
        for name, owner, method in (
            ("changes", PartitionChangeBuilder, "build"),
            ("replayed", MetadataDelta, "replay"),
            ("framed", records, "frame"),
            ("placed", StripedReplicaPlacer, "place"),
        ):
            self._count(patch, name, owner, method)
        original = world.call_at

        def call_at(monotonic_ms: int, callback: Callable[[], None]) -> Any:
            def turn() -> None:
                self.counts.clear()
                callback()

            return original(monotonic_ms, turn)

        patch.setattr(world, "call_at", call_at)

    def _count(self, patch: pytest.MonkeyPatch, name: str, owner: Any, method: str) -> None:
        original = getattr(owner, method)

        def counted(*arguments: Any) -> Any:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.totals[name] = self.totals.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self.counts[name])
            return original(*arguments)

        patch.setattr(owner, method, counted)

    def check(self, **least: int) -> None:
        """No step was too large, and everything was done."""
        for name, count in least.items():
            assert self.totals[name] >= count
        assert {name: most for name, most in self.most.items() if most > RECORDS_A_STEP + 2} == {}


def with_partitions(count: int = PARTITIONS, **options: Any) -> Harness:
    """Two brokers, and one topic with replicas on both."""
    harness = Harness(**options).start()
    harness.serve()
    harness.serve(broker_id=2, incarnation=9)
    topic = CreatableTopic(name="t", num_partitions=count, replication_factor=2)
    answer = harness.call(harness.controller.create_topics, CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == 0
    return harness


def settle(harness: Harness) -> None:
    for _ in range(200):
        harness.world.advance(0)
        harness.workers.run_all()


def test_a_large_topic_is_made_in_steps_and_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness().start()
    harness.serve()
    turn = Turn(monkeypatch, harness.world)
    batches = len(harness.batches())
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    answer = harness.controller.create_topics(CreateTopicsRequest(topics=[topic]), context())
    assert not answer.done
    settle(harness)
    assert answer.result().topics[0].error_code == 0
    turn.check(placed=PARTITIONS, framed=PARTITIONS, replayed=PARTITIONS)
    assert len(harness.batches()) == batches + 1
    assert len(harness.image.topics["t"].partitions) == PARTITIONS


def test_others_lead_many_partitions_of_a_broker_that_is_gone_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = with_partitions()
    turn = Turn(monkeypatch, harness.world)
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    assert not harness.machine.core.image.brokers[2].in_controlled_shutdown
    settle(harness)
    assert harness.image.brokers[2].in_controlled_shutdown
    assert {each.leader for each in harness.image.topics["t"].partitions.values()} == {1}
    turn.check(changes=PARTITIONS, framed=PARTITIONS, replayed=PARTITIONS)


def test_very_many_changes_are_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kafkacompat.controller import metadata_machine

    monkeypatch.setattr(metadata_machine, "MAX_RECORDS_PER_BATCH", 1_000)
    harness = with_partitions()
    before = len(harness.batches())
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    settle(harness)
    assert {each.leader for each in harness.image.topics["t"].partitions.values()} == {1}
    assert len(harness.batches()) == before + 2


def test_a_command_waits_for_the_one_before_it_and_sees_what_it_decided() -> None:
    harness = with_partitions()
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    topic = CreatableTopic(name="later", num_partitions=1, replication_factor=2)
    made = harness.controller.create_topics(CreateTopicsRequest(topics=[topic]), context())
    assert not made.done
    settle(harness)
    assert made.result().topics[0].error_code == ErrorCode.NONE
    assert harness.image.topics["later"].partitions[0].isr == (1,)


def test_a_heartbeat_whose_connection_closes_while_it_waits_does_not_hide_that_its_broker_is_gone() -> None:
    harness = with_partitions(20)
    long = CreatableTopic(name="long", num_partitions=PARTITIONS, replication_factor=1)
    made = harness.controller.create_topics(CreateTopicsRequest(topics=[long]), context())
    beat = harness.controller.broker_heartbeat(
        BrokerHeartbeatRequest(
            broker_id=2,
            broker_epoch=harness.image.brokers[2].epoch,
            current_metadata_offset=harness.image.offset,
            cordoned_log_dirs=[],
        ),
        context(),
    )
    assert not made.done
    assert not beat.done
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    settle(harness)
    assert beat.result().error_code == ErrorCode.NONE
    assert 2 not in harness.liveness._heard_on.values()
    # The heartbeat was a sign of life, so its broker is probed again.
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    settle(harness)
    assert harness.image.brokers[2].in_controlled_shutdown
    assert {each.leader for each in harness.image.topics["t"].partitions.values()} == {1}


def pauses(steps: Work[Any]) -> tuple[Any, int]:
    """The value, and the number of pauses."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_the_settings_of_many_resources_are_changed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = with_partitions(2)
    turn = Turn(monkeypatch, harness.world)
    turn._count(monkeypatch, "altered", configuration_control_manager, "_alter_config_resource")
    named = ["t", "t", *(f"g{index}" for index in range(500))]
    config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="46000")
    resources = [
        AlterConfigsResource(resource_type=2 if name == "t" else 32, resource_name=name, configs=[config])
        for name in named
    ]
    asked = IncrementalAlterConfigsRequest(resources=resources)
    answer = harness.controller.incremental_alter_configs(asked, context())
    assert not answer.done
    settle(harness)
    codes = [each.error_code for each in answer.result().responses]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2 + [ErrorCode.NONE] * 500
    assert turn.totals["altered"] == 500
    assert (
        turn.most["altered"]
        <= configuration_control_manager.STEP // configuration_control_manager.RESOURCE_UNITS
    )
    assert harness.image.config(32, "g499") == {"consumer.session.timeout.ms": "46000"}


@pytest.mark.parametrize("leader", [1, 2])
def test_what_a_stopping_broker_leads_is_looked_for_in_steps(
    monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    monkeypatch.setattr(cluster_control_manager, "SCANNED_A_STEP", 10)
    image = cluster(*(partition(1, 2, leader=leader) for _ in range(4)), brokers=(broker(1), broker(2)))
    topics = {
        f"t{number}": replace(each, name=f"t{number}")
        for each in image.topics.values()
        for number in range(12)
    }
    led, paused = pauses(cluster_control_manager._leads(replace(image, topics=topics), 2))
    assert led == (leader == 2)
    assert paused == (0 if led else 6)


def test_many_topics_that_are_refused_take_steps_as_well() -> None:
    harness = with_partitions(2)
    image, settings = harness.image, harness.controller._settings
    topics = [CreatableTopic(name=f"no such name {index}", num_partitions=1) for index in range(1_000)]
    asked = CreateTopicsRequest(topics=[*topics, *topics[:500]])
    made, paused = pauses(create_topics(image, settings, harness.random, asked))
    assert {each.error_code for each in made.response.topics} == {17, 42}
    assert paused >= 500 // TOPICS_A_STEP - 1
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=f"x{index}", count=9) for index in range(1_000)]
    )
    made, paused = pauses(create_partitions(image, harness.random, grown))
    assert {each.error_code for each in made.response.results} == {3}
    assert paused >= 1_000 // TOPICS_A_STEP
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=f"x{index}") for index in range(5_000)])
    made, paused = pauses(delete_topics(image, gone))
    assert {each.error_code for each in made.response.responses} == {3}
    assert paused >= 5


def test_leadership_lost_between_two_steps_ends_the_command() -> None:
    harness = with_partitions()
    ends = harness.log.log_end_offset
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    asked = harness.controller.delete_topics(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), context()
    )
    harness.machine.leader_changed(99, 2)
    settle(harness)
    with pytest.raises(NotController):
        asked.result()
    assert harness.log.log_end_offset == ends
    assert not harness.machine.core.image.brokers[2].in_controlled_shutdown


def test_a_command_whose_leadership_is_over_leaves_the_sessions_of_the_next_alone() -> None:
    """A registration that is not written would end the registered broker's session, and the broker would never be
    fenced."""
    harness = with_partitions(properties={"broker.session.timeout.ms": "9000"})
    harness.world.advance(10_000)
    harness.workers.run_all()
    sessions, machine = harness.liveness.sessions, harness.machine
    broker = machine.core.image.brokers[2]
    answer = harness.controller.broker_registration(
        registration(incarnation=10, broker_id=2, directories=list(broker.directories)), context()
    )
    assert not answer.done
    machine.leader_changed(98, 2)
    harness.world.advance(0)
    before = sessions.registration_offset(2)
    settle(harness)
    with pytest.raises(NotController):
        answer.result()
    assert sessions.registration_offset(2) == before == broker.epoch
    assert 2 not in harness.liveness._heard_on.values()


def test_a_snapshot_is_made_in_steps_while_the_image_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = with_partitions()
    turn = Turn(monkeypatch, harness.world)
    snapshot_of = harness.image
    harness.machine.write_snapshot()
    topic = CreatableTopic(name="later", num_partitions=1, replication_factor=1)
    harness.call(harness.controller.create_topics, CreateTopicsRequest(topics=[topic]))
    settle(harness)
    turn.check(framed=PARTITIONS)
    again = harness.after_kill().start()
    assert sorted(again.image.topics) == ["later", "t"]
    assert again.image.topics["t"] == harness.image.topics["t"]
    (name,) = [each for each in harness.disk.files if each.endswith(".checkpoint") and "0-0" not in each]
    assert f"{snapshot_of.offset + 1:020d}" in name


def test_a_full_disk_puts_a_snapshot_off(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = with_partitions(20, max_bytes_between_snapshots=500)
    settle(harness)
    original = harness.disk.write_atomic
    tried: list[str] = []

    def refuse(path: str, data: bytes, *, sync: bool = True, mode: int = 0o644) -> None:
        if path.endswith(".checkpoint"):
            tried.append(path)
            raise OSError(28, "no space left on device")
        original(path, data, sync=sync, mode=mode)

    monkeypatch.setattr(harness.disk, "write_atomic", refuse)
    monkeypatch.setattr(harness.workers, "run_one", harness.workers.run_one)
    for index in range(5):
        topic = CreatableTopic(name=f"n{index}", num_partitions=5, replication_factor=1)
        harness.call(harness.controller.create_topics, CreateTopicsRequest(topics=[topic]))
        settle(harness)
    assert len(tried) == 1
    assert harness.failures == []
    monkeypatch.undo()
    harness.world.advance(61_000)
    harness.call(
        harness.controller.create_topics,
        CreateTopicsRequest(topics=[CreatableTopic(name="z", num_partitions=1, replication_factor=1)]),
    )
    settle(harness)
    assert any(each.endswith(".checkpoint") for each in harness.disk.files)


def test_turns_keep_the_order_and_pass_failures_on() -> None:
    world = QuorumTime()
    queue = EventQueue(Tasks(world))
    seen: list[str] = []

    def long(name: str) -> Work[Deferred[str]]:
        for _ in range(3):
            seen.append(name)
            yield TURN_COST
        if name == "fails":
            raise ZeroDivisionError
        return Deferred.of(name)

    def short() -> Deferred[str]:
        seen.append("short")
        return Deferred.of("short")

    first = queue.submit_steps(lambda: long("a"))
    second = queue.submit(short)
    third = queue.submit_steps(lambda: long("fails"))
    fourth = queue.submit(short)
    assert seen == ["a"]
    world.advance(10)
    assert seen == ["a", "a", "a", "short", "fails", "fails", "fails", "short"]
    assert (first.result(), second.result(), fourth.result()) == ("a", "short", "short")
    with pytest.raises(ZeroDivisionError):
        third.result()
    assert queue.submit(short).result() == "short"


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ([f"t{each}" for each in range(4 * NAMED_A_STEP)], ErrorCode.POLICY_VIOLATION),
        ([f"t{each % 9_000}" for each in range(4 * NAMED_A_STEP)], ErrorCode.INVALID_REQUEST),
    ],
    ids=["too many", "named twice"],
)
def test_many_names_are_refused_in_steps(names: list[str], code: ErrorCode) -> None:
    harness = Harness().start()
    harness.serve()
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    settings = harness.controller._settings
    made, paused = pauses(
        create_topics(harness.image, settings, harness.random, CreateTopicsRequest(topics=topics))
    )
    assert {each.error_code for each in made.response.topics} == {code}
    assert len(made.response.topics) == len(set(names))
    # Counted, checked, and answered.
    assert paused >= (2 * len(names) + len(set(names))) // NAMED_A_STEP


def test_settings_without_values_are_named_as_far_as_an_answer_has_room() -> None:
    harness = Harness().start()
    harness.serve()
    nulls = [
        CreatableTopicConfig(name=f"name-{each}" + "x" * 40, value=None)
        for each in range(configuration_control_manager.SETTINGS_MAX)
    ]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=nulls)
    answer = harness.call(harness.controller.create_topics, CreateTopicsRequest(topics=[topic]))
    (refused,) = answer.topics
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message.startswith("Null value not supported for topic configs: name-0xxx")
    assert len(refused.error_message) < configuration_control_manager.SETTINGS_MAX * 40
    encode(answer, 7)


def test_turns_measure_how_long_commands_wait_and_take() -> None:
    world = QuorumTime()
    now_s = 100.0
    queue = EventQueue(Tasks(world), lambda: now_s)

    def long() -> Work[Deferred[None]]:
        nonlocal now_s
        for _ in range(2):
            now_s += 1
            yield TURN_COST
        return Deferred.of(None)

    def quick() -> Deferred[None]:
        return Deferred.of(None)

    queue.submit(quick)
    queue.submit_steps(long)
    queue.submit(quick)
    assert queue.queue_times_ms.count == 2, "one waits"
    world.advance(10)
    assert queue.queue_times_ms.count == queue.processing_times_ms.count == 3
    # It came after the first step of the one before it.
    assert queue.queue_times_ms.ordered() == [0, 0, 1000]
    assert queue.processing_times_ms.ordered() == [0, 0, 2000]

    def fails() -> Deferred[None]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        queue.submit(fails)
    assert queue.processing_times_ms.count == 4
