"""Requests of brokers and controllers to the controller besides heartbeats and ISR changes, and their refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.controller._tests.clusters import (
    TOPIC_ID,
    after,
    broker,
    cluster,
    directory,
    partition,
    settings,
)
from kafkacompat.controller._tests.harness import registration
from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.cluster_control_manager import (
    broker_registration,
    handle_broker_unfenced,
    register_controller,
    unregister_broker,
    unregister_controller,
)
from kafkacompat.controller.controller_result import BrokerRefused, ControllerResult, refused_response
from kafkacompat.controller.image import CONTROLLERS, MetadataImage
from kafkacompat.controller.producer_id_control_manager import MAX_PRODUCER_ID, allocate_producer_ids
from kafkacompat.controller.replication_control_manager import assign_replicas_to_dirs
from kafkacompat.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkacompat.wire.messages.alter_partition_request import AlterPartitionRequest
from kafkacompat.wire.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
from kafkacompat.wire.messages.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkacompat.wire.messages.unregister_controller_request import UnregisterControllerRequest

# Registration.


def register(
    image: MetadataImage,
    sessions: BrokerHeartbeatManager,
    now_ms: int,
    incarnation: int,
    previous_epoch: int = -1,
) -> ControllerResult[Any, Any]:
    request = registration(previous_epoch, incarnation, broker_id=2, directories=[directory(2)])
    request.cluster_id = "cluster"
    return at_once(
        broker_registration(
            image,
            settings(),
            sessions,
            request,
            60,
            lambda broker: sessions.has_valid_session(broker.id, broker.epoch, now_ms),
        )
    )


def test_another_process_of_the_same_id_waits_until_the_session_is_over() -> None:
    image = cluster(partition(1, 2))
    sessions = BrokerHeartbeatManager(9000)
    sessions.reset(image, 0)
    with pytest.raises(BrokerRefused) as caught:
        register(image, sessions, 9000, incarnation=77)
    assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert sessions.has_valid_session(2, 102, 9000)
    result = register(image, sessions, 9001, incarnation=77)
    assert result.response.broker_epoch == 60
    new = after(image, result)
    assert (new.brokers[2].epoch, new.brokers[2].fenced) == (60, True)
    assert new.topics["t"].partitions[0].isr == (1,)
    assert sessions.registration_offset(2) == 60 + len(result.records) - 1 == 61


def test_a_process_known_to_be_gone_makes_room_at_once() -> None:
    image = cluster(partition(1, 2))
    sessions = BrokerHeartbeatManager(9000)
    sessions.reset(image, 0)
    sessions.take_for_gone(2)
    assert register(image, sessions, 1, incarnation=77).response.broker_epoch == 60
    assert sessions.expired(1) == []


def test_the_same_process_may_register_again_and_keeps_its_epoch_and_session() -> None:
    image = cluster(partition(1, 2))
    sessions = BrokerHeartbeatManager(9000)
    sessions.reset(image, 0)
    result = register(image, sessions, 1, incarnation=2)
    assert result.response.broker_epoch == 102
    new = after(image, result)
    assert not new.brokers[2].fenced
    assert new.topics["t"].partitions[0].isr == (1, 2)
    assert sessions.has_valid_session(2, 102, 2)


def test_a_broker_after_an_unclean_shutdown_leaves_the_eligible_leaders_also_when_the_feature_is_off() -> (
    None
):
    gone = partition(1, 2, isr=(), leader=-1, eligible_leader_replicas=(1, 2), last_known_elr=(1,))
    members = (broker(1, fenced=True), broker(2, fenced=True))
    image = cluster(gone, brokers=members, features={"metadata.version": 30})
    new = after(image, register(image, BrokerHeartbeatManager(9000), 0, incarnation=77))
    assert new.topics["t"].partitions[0].eligible_leader_replicas == (1,)


@pytest.mark.parametrize("is_fenced", [True, False])
def test_the_last_of_an_isr_that_comes_back_without_goodbye_stays_in_it_when_the_feature_is_off(
    is_fenced: bool,
) -> None:
    """No other broker is known to have every record: without it the partition would have no leader."""
    last = partition(1, 2, isr=(2,), leader=-1 if is_fenced else 2)
    members = (broker(1), broker(2, fenced=is_fenced))
    image = cluster(last, brokers=members, features={"metadata.version": 30})
    sessions = BrokerHeartbeatManager(9000)
    sessions.reset(image, 0)
    sessions.take_for_gone(2)
    new = after(image, register(image, sessions, 1, incarnation=77))
    assert new.topics["t"].partitions[0].isr == (2,)


def test_the_last_of_an_isr_without_a_leader_that_comes_back_without_goodbye_is_the_last_known() -> None:
    """Such an ISR dates from when the feature was off. Apache Kafka 4.3.0 does not record its member, and no replica
    leads any more."""
    last = partition(1, 2, isr=(2,), leader=-1)
    image = cluster(last, brokers=(broker(1), broker(2, fenced=True)))
    new = after(image, register(image, BrokerHeartbeatManager(9000), 0, incarnation=77))
    found = new.topics["t"].partitions[0]
    assert (found.isr, found.leader, found.last_known_elr) == ((), -1, (2,))
    back = replace(new, brokers={**new.brokers, 2: broker(2)})
    records = at_once(handle_broker_unfenced(back, settings(), 2))
    found = after(back, ControllerResult(tuple(records), None)).topics["t"].partitions[0]
    assert (found.isr, found.leader, found.last_known_elr) == ((2,), 2, ())


def test_a_broker_after_an_unclean_shutdown_leaves_the_eligible_leaders_too() -> None:
    gone = partition(1, 2, isr=(1,), eligible_leader_replicas=(2,))
    image = cluster(
        gone, brokers=(1, broker(2, fenced=True)), configs={(2, "t"): {"min.insync.replicas": "2"}}
    )
    sessions = BrokerHeartbeatManager(9000)
    unclean = after(image, register(image, sessions, 0, incarnation=77))
    assert unclean.topics["t"].partitions[0].eligible_leader_replicas == ()
    clean = after(image, register(image, sessions, 0, incarnation=77, previous_epoch=102))
    assert clean.topics["t"].partitions[0].eligible_leader_replicas == (2,)


# Unregistration.


def test_an_unregistered_broker_leaves_the_isr_and_stays_in_assignments() -> None:
    image = cluster(partition(2, 1), partition(1, 3))
    result = at_once(unregister_broker(image, settings(), UnregisterBrokerRequest(broker_id=2)))
    assert result.response.error_code == 0
    new = after(image, result)
    assert 2 not in new.brokers
    first = new.topics["t"].partitions[0]
    assert (first.replicas, first.isr, first.leader) == ((2, 1), (1,), 1)
    assert new.topics["t"].partitions[1] == image.topics["t"].partitions[1]


def test_an_unknown_broker_is_not_unregistered() -> None:
    with pytest.raises(BrokerRefused, match="Broker ID 9 is not currently registered") as caught:
        at_once(unregister_broker(cluster(partition(1)), settings(), UnregisterBrokerRequest(broker_id=9)))
    assert caught.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


# Directories.

FIRST, SECOND = directory(1), directory(51)


def assign(
    image: MetadataImage, *wanted: tuple[bytes, bytes, int], epoch: int = 101
) -> ControllerResult[Any, Any]:
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=epoch,
        directories=[
            DirectoryData(
                id=directory_id,
                topics=[TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=index)])],
            )
            for directory_id, topic_id, index in wanted
        ],
    )
    return at_once(assign_replicas_to_dirs(image, settings(), request))


def two_directories(*partitions: Any, **fields: Any) -> MetadataImage:
    return cluster(*partitions, brokers=(broker(1, directories=(FIRST, SECOND)), 2, 3), **fields)


def codes(result: ControllerResult[Any, Any]) -> list[int]:
    return [
        each.error_code
        for found in result.response.directories
        for topic in found.topics
        for each in topic.partitions
    ]


def test_a_replicas_directory_is_written_and_nothing_else_changes() -> None:
    image = two_directories(partition(2, 1, directories=(directory(2), DIRECTORY_UNASSIGNED)))
    result = assign(image, (SECOND, TOPIC_ID, 0))
    assert codes(result) == [0]
    new = after(image, result).topics["t"].partitions[0]
    assert new.directories == (directory(2), SECOND)
    assert (new.isr, new.leader, new.leader_epoch, new.partition_epoch) == ((2, 1), 2, 5, 10)
    again = assign(after(image, result), (SECOND, TOPIC_ID, 0))
    assert (codes(again), again.records) == ([0], ())


@pytest.mark.parametrize("lost", [directory(99), DIRECTORY_LOST])
def test_a_replica_in_a_directory_that_is_not_online_is_lost(lost: bytes) -> None:
    image = two_directories(partition(1, 2), partition(1, 2))
    new = after(image, assign(image, (lost, TOPIC_ID, 0))).topics["t"].partitions
    assert new[0].directories == (lost, directory(2))
    assert (new[0].isr, new[0].leader) == ((2,), 2)
    assert new[1] == image.topics["t"].partitions[1]


def test_each_replica_is_judged_by_itself() -> None:
    image = two_directories(partition(1, 2), partition(2, 3))
    result = assign(
        image, (FIRST, b"u" * 16, 0), (FIRST, TOPIC_ID, 8), (FIRST, TOPIC_ID, 1), (SECOND, TOPIC_ID, 0)
    )
    assert codes(result) == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        0,
    ]
    assert len(result.records) == 1
    assert [each.id for each in result.response.directories] == [FIRST, FIRST, FIRST, SECOND]


def test_of_two_directories_for_one_replica_the_last_counts() -> None:
    image = two_directories(partition(1, 2))
    new = after(image, assign(image, (directory(99), TOPIC_ID, 0), (SECOND, TOPIC_ID, 0)))
    assert new.topics["t"].partitions[0].directories == (SECOND, directory(2))
    assert new.topics["t"].partitions[0].isr == (1, 2)


def test_a_replica_that_has_a_directory_again_may_lead_again() -> None:
    gone = partition(1, isr=(), leader=-1, eligible_leader_replicas=(1,), directories=(DIRECTORY_LOST,))
    new = after(two_directories(gone), assign(two_directories(gone), (FIRST, TOPIC_ID, 0)))
    found = new.topics["t"].partitions[0]
    assert (found.leader, found.isr, found.directories) == (1, (1,), (FIRST,))


def test_assigning_a_directory_keeps_eligible_leaders() -> None:
    image = two_directories(
        partition(1, 2, isr=(1,), eligible_leader_replicas=(2,)),
        configs={(2, "t"): {"min.insync.replicas": "2"}},
    )
    new = after(image, assign(image, (SECOND, TOPIC_ID, 0))).topics["t"].partitions[0]
    assert new.eligible_leader_replicas == (2,)


def test_directories_need_the_brokers_epoch_and_their_metadata_version() -> None:
    with pytest.raises(BrokerRefused) as caught:
        assign(two_directories(partition(1, 2)), epoch=100)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(BrokerRefused) as caught:
        assign(cluster(partition(1, 2), features={"metadata.version": 16}))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


# Producer ids.


def test_blocks_of_producer_ids_do_not_overlap() -> None:
    image = cluster(partition(1))
    first = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=101))
    second = allocate_producer_ids(
        after(image, first), AllocateProducerIdsRequest(broker_id=2, broker_epoch=102)
    )
    blocks = [(each.response.producer_id_start, each.response.producer_id_len) for each in (first, second)]
    assert blocks == [(0, 1000), (1000, 1000)]
    assert (second.records[0].message.broker_id, second.records[0].message.broker_epoch) == (2, 102)  # type: ignore[attr-defined]


def test_producer_ids_are_refused_to_a_stale_broker_and_when_they_run_out() -> None:
    image = cluster(partition(1))
    with pytest.raises(BrokerRefused) as caught:
        allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    from dataclasses import replace

    last = replace(image, next_producer_id=MAX_PRODUCER_ID - 1000)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=101)
    full = after(last, allocate_producer_ids(last, request))
    with pytest.raises(BrokerRefused) as caught:
        allocate_producer_ids(full, request)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


# Controllers.


def controller_request() -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=b"i" * 16,
        listeners=[Listener(name="CONTROLLER", host="10.0.0.1", port=9093, security_protocol=0)],
        features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
    )


def test_a_controller_is_registered_with_its_listeners_and_features() -> None:
    image = cluster(partition(1))
    result = register_controller(image, controller_request())
    assert result.response.error_code == 0
    record: Any = after(image, result).opaque[CONTROLLERS][7]
    assert [(each.name, each.host, each.port) for each in record.end_points] == [
        ("CONTROLLER", "10.0.0.1", 9093)
    ]
    assert [(each.name, each.max_supported_version) for each in record.features] == [("metadata.version", 30)]


def test_controllers_register_from_metadata_version_15_on() -> None:
    image = cluster(partition(1), features={"metadata.version": 14})
    with pytest.raises(BrokerRefused) as caught:
        register_controller(image, controller_request())
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_controller_is_unregistered_by_another_one_from_metadata_version_33_on() -> None:
    """In the order of Apache Kafka 4.4.0's refusals, and in its words."""
    image = cluster(partition(1), features={"metadata.version": 33})
    image = after(image, register_controller(image, controller_request()))
    old = cluster(partition(1), features={"metadata.version": 32})

    def told(controller_id: int, active_id: int = 1, of: Any = image) -> tuple[int, str]:
        with pytest.raises(BrokerRefused) as caught:
            unregister_controller(of, active_id, UnregisterControllerRequest(controller_id=controller_id))
        return caught.value.code, caught.value.message

    itself = "Controller cannot unregister itself while it is active."
    assert told(7, active_id=7) == told(7, 7, old) == (ErrorCode.INVALID_REQUEST, itself)
    too_old = "The current MetadataVersion is too old to support controller unregistration."
    assert told(9, of=old) == (ErrorCode.UNSUPPORTED_VERSION, too_old)
    for absent in (9, -1):
        text = f"Controller ID {absent} is not currently registered."
        assert told(absent) == (ErrorCode.CONTROLLER_ID_NOT_REGISTERED, text)
    result = unregister_controller(image, 1, UnregisterControllerRequest(controller_id=7))
    assert (result.response.error_code, result.response.error_message) == (0, "")
    assert 7 not in after(image, result).controllers


# Refusals.


@pytest.mark.parametrize(
    "request_type",
    [
        AlterPartitionRequest,
        BrokerRegistrationRequest,
        BrokerHeartbeatRequest,
        UnregisterBrokerRequest,
        AllocateProducerIdsRequest,
        ControllerRegistrationRequest,
        AssignReplicasToDirsRequest,
        UnregisterControllerRequest,
    ],
)
def test_every_request_can_be_refused_as_a_whole(request_type: Any) -> None:
    response: Any = refused_response(request_type(), ErrorCode.NOT_CONTROLLER, "not here")
    assert response.API_KEY == request_type.API_KEY
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    if request_type in (ControllerRegistrationRequest, UnregisterControllerRequest):
        assert response.error_message == "not here"


def test_a_refused_heartbeat_does_not_unfence_i7() -> None:
    response: Any = refused_response(BrokerHeartbeatRequest(), ErrorCode.STALE_BROKER_EPOCH)
    assert (response.is_fenced, response.is_caught_up, response.should_shut_down) == (True, False, False)
