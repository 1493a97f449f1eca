"""The active controller when something fails: a full disk, a subscriber or a command with a bug. Its own decisions are
made again later, and a partly published image halts the node."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kafkacompat.api.request_context import NotController
from kafkacompat.controller import liveness, replication_control_manager
from kafkacompat.controller._tests.harness import DIRECTORY, HEARD_ON, Harness, registration
from kafkacompat.controller.core import bootstrap_values
from kafkacompat.controller.event_queue import TRY_AGAIN_MS
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.reach import Probed
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.topic_record import TopicRecord
from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest

FULL = ".log"
"""Files that a full disk refuses to write."""


def topics(*names: str, partitions: int = 1, replicas: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
            for name in names
        ]
    )


def with_two_brokers(**properties: str) -> Harness:
    harness = Harness(properties={key.replace("_", "."): value for key, value in properties.items()})
    harness.start().serve()
    harness.serve(broker_id=2, incarnation=9)
    return harness


def run(harness: Harness, for_ms: int) -> None:
    harness.world.advance(for_ms)
    harness.workers.run_all()


def test_a_broker_that_dies_while_the_disk_is_full_leads_no_more_once_there_is_room() -> None:
    harness = with_two_brokers()
    harness.disk.failing = FULL
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    run(harness, 500)
    assert not harness.image.brokers[2].in_controlled_shutdown
    assert harness.controller.is_active
    harness.disk.failing = None
    run(harness, TRY_AGAIN_MS)
    assert harness.image.brokers[2].in_controlled_shutdown
    run(harness, 9_000)
    assert harness.image.brokers[2].fenced
    assert harness.failures == []


def test_a_session_that_expires_while_the_disk_is_full_is_not_forgotten() -> None:
    harness = with_two_brokers()
    epoch = harness.image.brokers[1].epoch
    harness.disk.failing = FULL
    for _ in range(20):
        run(harness, 1_000)
        harness.beat(epoch)
    assert not harness.image.brokers[2].fenced
    harness.disk.failing = None
    run(harness, TRY_AGAIN_MS)
    assert harness.image.brokers[2].fenced
    assert not harness.image.brokers[1].fenced


def test_a_broker_that_cannot_be_fenced_for_a_bug_is_tried_again_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    harness = with_two_brokers()
    epoch = harness.image.brokers[1].epoch
    tried: list[int] = []

    def broken(image: MetadataImage, settings: object, broker_id: int, broker_epoch: int) -> Work[None]:
        tried.append(broker_id)
        raise ZeroDivisionError
        yield TURN_COST

    with monkeypatch.context() as patch:
        patch.setattr(liveness, "handle_broker_fenced", broken)
        for _ in range(20):
            run(harness, 1_000)
            harness.beat(epoch)
    assert len(tried) == len(faults.take()) > 5
    assert set(tried) == {2}
    assert not harness.image.brokers[2].fenced
    run(harness, TRY_AGAIN_MS)
    assert harness.image.brokers[2].fenced
    assert harness.failures == []


def test_a_broker_that_is_heard_before_it_is_left_is_not_left() -> None:
    harness = with_two_brokers()
    epoch = harness.image.brokers[2].epoch
    harness.disk.failing = FULL
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    run(harness, 100)
    harness.beat(epoch, broker_id=2)
    harness.disk.failing = None
    run(harness, TRY_AGAIN_MS)
    assert not harness.image.brokers[2].in_controlled_shutdown


@pytest.mark.parametrize("request_of", ["stop", "unregister", "register"])
def test_a_command_that_cannot_be_written_leaves_the_session_to_expire(request_of: str) -> None:
    harness = with_two_brokers()
    harness.call(harness.controller.create_topics, topics("t", partitions=2, replicas=2))
    epoch = harness.image.brokers[2].epoch
    controller = harness.controller
    requests: dict[str, tuple[Any, Any]] = {
        "stop": (
            controller.broker_heartbeat,
            BrokerHeartbeatRequest(
                broker_id=2, broker_epoch=epoch, current_metadata_offset=99, want_shut_down=True
            ),
        ),
        "unregister": (controller.unregister_broker, UnregisterBrokerRequest(broker_id=2)),
        "register": (controller.broker_registration, registration(-1, 10, 2, [b"\x32" * 16])),
    }
    if request_of == "register":
        harness.liveness.connection_closed(HEARD_ON)
    harness.disk.failing = FULL
    with pytest.raises(OSError, match="full"):
        harness.call(*requests[request_of])
    assert harness.liveness.sessions.controlled_shutdown_offset(2) == -1
    assert harness.liveness.sessions.has_valid_session(2, epoch, harness.world.monotonic_ms())
    harness.disk.failing = None
    own = harness.image.brokers[1].epoch
    for _ in range(10):
        run(harness, 1_000)
        harness.beat(own)
    assert harness.image.brokers[2].fenced


def test_with_other_voters_a_controller_that_cannot_write_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = with_two_brokers()
    resigned: list[int] = []

    def resign(size_bytes: int, error: OSError) -> bool:
        resigned.append(size_bytes)
        harness.machine.leader_changed(harness.driver.epoch, -1)
        return True

    monkeypatch.setattr(harness.driver, "resign_for_room", resign)
    harness.disk.failing = FULL
    with pytest.raises(NotController):
        harness.call(harness.controller.create_topics, topics("t"))
    assert len(resigned) == 1
    assert not harness.controller.is_active
    assert "t" not in harness.machine.core.image.topics
    harness.world.advance(60_000)  # no timer of the former leadership has an effect
    assert len(resigned) == 1


def test_a_new_log_gets_its_first_records_once_there_is_room() -> None:
    harness = Harness()
    segment = f"{DIRECTORY}/{0:020d}.log"

    def full_from_the_third(operation: str, path: str) -> OSError | None:
        if operation == "write" and path == segment and harness.disk.files[segment]:
            return OSError(errno.ENOSPC, "no space left on device")
        return None

    harness.disk.refuse = full_from_the_third
    harness.driver.start(harness.machine)
    harness.workers.run_all()
    assert not harness.controller.is_active
    with pytest.raises(NotController):
        harness.call(harness.controller.create_topics, topics("t"))
    harness.disk.refuse = None
    run(harness, TRY_AGAIN_MS)
    assert harness.controller.is_active
    assert len(harness.messages()) == len(bootstrap_values()) + 3
    harness.serve()


def test_a_subscriber_that_raises_halts_the_node() -> None:
    """Later subscribers have not got an image on which the next one builds."""
    harness = with_two_brokers()
    seen: list[MetadataImage] = []

    def broken(old: MetadataImage, new: MetadataImage) -> None:
        raise KeyError("a bug")

    harness.machine.subscribe(broken)
    harness.machine.subscribe(lambda old, new: seen.append(new))
    answer = harness.controller.create_topics(topics("t"), None)  # type: ignore[arg-type]
    harness.workers.run_all()
    assert [type(each) for each in harness.failures] == [KeyError]
    assert seen == []
    assert not answer.done


def test_records_that_do_not_fit_leave_nothing_in_the_next_ones() -> None:
    harness = with_two_brokers()
    fits = MetadataRecord(TopicRecord(name="ghost", topic_id=b"\7" * 16), 0)
    does_not = MetadataRecord(RemoveTopicRecord(topic_id=b"\10" * 16), 0)
    with pytest.raises(Exception, match="does not exist"):
        harness.machine.append([fits, does_not])
    harness.call(harness.controller.create_topics, topics("t"))
    assert sorted(harness.image.topics) == ["t"]


def imbalanced(harness: Harness, partitions: int) -> None:
    """Every partition prefers broker 2, which has returned, and is led by broker 1."""
    harness.call(harness.controller.create_topics, topics("t", partitions=partitions, replicas=2))
    epoch = harness.image.brokers[2].epoch
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    run(harness, 10)
    harness.beat(epoch, broker_id=2)


def leaders(harness: Harness) -> set[bool]:
    return {each.leader == each.replicas[0] for each in harness.image.topics["t"].partitions.values()}


def joined(harness: Harness) -> None:
    """The ISRs as after replication."""
    from kafkacompat.controller.partition_change_builder import partition_change

    image = harness.machine.core.image
    topic = image.topics["t"]
    settings = harness.machine.core.settings
    records = []
    for index, partition in topic.partitions.items():
        builder = partition_change(image, settings, topic, index)
        builder.target_isr = tuple(sorted(partition.replicas))
        records.append(builder.build())
    harness.machine.append([each for each in records if each is not None])
    harness.workers.run_all()


def test_all_preferred_leaders_are_elected_in_one_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_control_manager, "MAX_ELECTIONS_PER_ROUND", 4)
    harness = with_two_brokers(leader_imbalance_check_interval_seconds="300")
    imbalanced(harness, 30)
    joined(harness)
    assert leaders(harness) == {True, False}
    ends = {1: harness.image.brokers[1].epoch, 2: harness.image.brokers[2].epoch}
    for _ in range(301):
        harness.world.advance(1_000)
        harness.workers.run_all()
        for broker_id, epoch in ends.items():
            harness.beat(epoch, broker_id=broker_id)
    assert leaders(harness) == {True}


def test_a_round_that_fails_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch, faults: Any) -> None:
    rounds: list[int] = []

    def broken(image: MetadataImage, settings: object) -> Work[None]:
        rounds.append(1)
        raise ZeroDivisionError
        yield TURN_COST

    monkeypatch.setattr(replication_control_manager, "maybe_balance_partition_leaders", broken)
    harness = with_two_brokers(leader_imbalance_check_interval_seconds="1")
    run(harness, 3_500)
    assert len(rounds) == 3 == len(faults.take())
    assert harness.failures == []


def test_features_are_raised_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkacompat.controller._tests.harness import context
    from kafkacompat.raft import membership
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

    harness = with_two_brokers()
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2),
            FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1),
        ]
    )
    before = harness.log.log_end_offset
    with monkeypatch.context() as nobody_ready:
        nobody_ready.setattr(membership, "_ready_voters", lambda state, leader: [])
        answer = harness.controller.update_features(request, context(2))
        harness.workers.run_all()
    assert answer.result().error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (harness.log.log_end_offset, harness.image.features["group.version"]) == (before, 1)
    request.validate_only = True
    assert harness.call(harness.controller.update_features, request).error_code == 0
    assert harness.log.log_end_offset == before
    request.validate_only = False
    assert harness.call(harness.controller.update_features, request).error_code == 0
    assert harness.image.features["kraft.version"] == 1
    assert "group.version" not in harness.image.features
