"""BrokerHeartbeat: every transition between fenced, unfenced, controlled shutdown and stopped, and failing
directories."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.controller._tests.clusters import after, broker, cluster, directory, partition, settings
from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.cluster_control_manager import (
    BrokerControlState,
    broker_heartbeat,
    current_broker_state,
)
from kafkacompat.controller.controller_result import BrokerRefused
from kafkacompat.controller.image import MetadataImage
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest

NEXT_OFFSET = 60


class Controller:
    """An image and sessions, changed by heartbeats."""

    def __init__(self, image: MetadataImage, **properties: str) -> None:
        self.image = image
        self.settings = settings(**properties)
        self.sessions = BrokerHeartbeatManager(9000)
        self.sessions.reset(image, 0)
        self.offset = NEXT_OFFSET
        self.records: tuple[Any, ...] = ()

    def beat(self, broker_id: int, offset: int = 1000, **fields: Any) -> tuple[bool, bool, bool]:
        """(caught up, fenced, should shut down)."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=100 + broker_id, current_metadata_offset=offset, **fields
        )
        result = at_once(broker_heartbeat(self.image, self.settings, self.sessions, request, self.offset, 1))
        self.records = result.records
        self.image = after(self.image, result)
        self.offset += len(result.records)
        answer = result.response
        assert answer.error_code == 0
        return answer.is_caught_up, answer.is_fenced, answer.should_shut_down

    def partition(self, index: int = 0) -> Any:
        return self.image.topics["t"].partitions[index]


def test_a_broker_is_unfenced_once_it_has_read_its_registration() -> None:
    gone = partition(1, 2, isr=(2,), leader=-1)
    controller = Controller(cluster(gone, brokers=(1, broker(2, fenced=True))))
    assert controller.beat(2, offset=101) == (False, True, False)
    assert controller.beat(2, offset=102) == (True, False, False)
    assert [type(each.message).__name__ for each in controller.records] == [
        "BrokerRegistrationChangeRecord",
        "PartitionChangeRecord",
    ]
    assert not controller.image.brokers[2].fenced
    assert controller.partition().leader == 2


def test_what_must_be_read_is_the_offset_of_the_record_not_the_epoch_i6() -> None:
    controller = Controller(cluster(partition(1), brokers=(1, broker(2, fenced=True))))
    controller.sessions.register(2, 102, 110)
    assert controller.beat(2, offset=109) == (False, True, False)
    assert controller.beat(2, offset=110) == (True, False, False)


def test_a_broker_that_wants_to_stay_fenced_stays() -> None:
    controller = Controller(cluster(partition(1), brokers=(1, broker(2, fenced=True))))
    assert controller.beat(2, want_fence=True) == (True, True, False)
    assert controller.records == ()


def test_a_fenced_broker_may_stop_at_once() -> None:
    controller = Controller(cluster(partition(1), brokers=(1, broker(2, fenced=True))))
    assert controller.beat(2, want_shut_down=True) == (True, True, True)
    assert controller.records == ()
    assert not controller.sessions.has_valid_session(2, 102, 1)


def test_an_unfenced_broker_may_ask_to_be_fenced() -> None:
    controller = Controller(cluster(partition(1, 2)))
    assert controller.beat(1, want_fence=True) == (True, True, False)
    assert controller.image.brokers[1].fenced
    assert (controller.partition().leader, controller.partition().isr) == (2, (2,))
    assert controller.sessions.has_valid_session(1, 101, 1)


def test_to_be_fenced_and_to_stop_needs_no_wait() -> None:
    controller = Controller(cluster(partition(1, 2)))
    assert controller.beat(1, want_fence=True, want_shut_down=True) == (True, True, True)
    assert controller.image.brokers[1].fenced


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    controller = Controller(cluster(partition(2, 1)))
    assert controller.beat(1, want_shut_down=True) == (True, True, True)
    assert controller.image.brokers[1].fenced
    assert controller.partition().isr == (2,)


def test_controlled_shutdown_waits_until_the_others_know_the_new_leaders() -> None:
    controller = Controller(cluster(partition(1, 2, 3), brokers=(1, 2, 3)))
    for broker_id in (1, 2, 3):
        controller.beat(broker_id, offset=59)
    assert controller.beat(1, offset=59, want_shut_down=True) == (False, False, False)
    change, moved = controller.records
    assert (change.message.in_controlled_shutdown, change.version) == (1, 1)
    assert (controller.partition().leader, controller.partition().isr) == (2, (2, 3))
    assert controller.image.brokers[1].in_controlled_shutdown
    assert not controller.image.brokers[1].fenced
    assert controller.sessions.controlled_shutdown_offset(1) == 61
    assert moved.message.leader == 2
    # No broker has read offset 61 yet; then one has; then both.
    assert controller.beat(1, offset=61, want_shut_down=True) == (False, False, False)
    assert controller.records == ()
    controller.beat(2, offset=61)
    assert controller.beat(1, offset=61, want_shut_down=True) == (False, False, False)
    controller.beat(3, offset=61)
    assert controller.beat(1, offset=61, want_shut_down=True) == (False, True, True)
    assert controller.image.brokers[1].fenced
    assert not controller.sessions.has_valid_session(1, 101, 1)


def test_controlled_shutdown_of_the_only_broker_waits_for_nobody() -> None:
    controller = Controller(cluster(partition(1), brokers=(1,)))
    assert controller.beat(1, want_shut_down=True) == (True, False, False)
    assert controller.partition().leader == -1
    assert controller.beat(1, want_shut_down=True) == (True, True, True)


def test_a_new_controller_takes_up_a_controlled_shutdown_where_it_finds_it() -> None:
    leaving = broker(1, in_controlled_shutdown=True)
    controller = Controller(cluster(partition(1, 2, leader=1), brokers=(leaving, 2)))
    controller.beat(1, want_shut_down=True)
    assert [type(each.message).__name__ for each in controller.records] == ["PartitionChangeRecord"]
    assert current_broker_state(controller.sessions, controller.image.brokers[1]) is (
        BrokerControlState.CONTROLLED_SHUTDOWN
    )


def test_a_broker_without_caught_up_offset_is_told_so_but_stays_unfenced() -> None:
    controller = Controller(cluster(partition(1, 2)))
    assert controller.beat(1, offset=5) == (False, False, False)
    assert controller.records == ()


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 100), (1, 102), (9, 109), (1, -1)])
def test_a_stale_epoch_is_refused_and_is_no_sign_of_life(broker_id: int, epoch: int) -> None:
    image = cluster(partition(1, 2))
    sessions = BrokerHeartbeatManager(9000)
    request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=999)
    with pytest.raises(BrokerRefused) as caught:
        at_once(broker_heartbeat(image, settings(), sessions, request, NEXT_OFFSET, 1))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert sessions.next_expiry_ms() is None


def two_directories(broker_id: int) -> Any:
    return broker(broker_id, directories=(directory(broker_id), directory(50 + broker_id)))


def test_replicas_of_a_failed_directory_lose_their_leadership_and_the_others_stay() -> None:
    there = (directory(1), directory(2))
    elsewhere = (directory(51), directory(2))
    controller = Controller(
        cluster(
            partition(1, 2, directories=there),
            partition(1, 2, directories=elsewhere),
            partition(2, 1, directories=there[::-1]),
            brokers=(two_directories(1), 2),
        )
    )
    assert controller.beat(1, offline_log_dirs=[directory(1)]) == (True, False, False)
    assert (controller.partition(0).leader, controller.partition(0).isr) == (2, (2,))
    assert (controller.partition(1).leader, controller.partition(1).isr) == (1, (1, 2))
    assert (controller.partition(2).leader, controller.partition(2).isr) == (2, (2,))
    assert controller.image.brokers[1].directories == (directory(51),)
    assert controller.records[-1].version == 2
    controller.beat(1, offline_log_dirs=[directory(1)])
    assert controller.records == ()


def test_a_failed_directory_gets_no_leader_even_when_its_broker_comes_back_with_it_failed() -> None:
    only_there = partition(2, isr=(2,), leader=-1, directories=(directory(2),))
    fenced = broker(2, fenced=True, directories=(directory(2), directory(52)))
    controller = Controller(cluster(only_there, brokers=(1, fenced)))
    controller.beat(2, offline_log_dirs=[directory(2)])
    assert controller.partition().leader == -1
    assert not controller.image.brokers[2].fenced


def test_before_directories_were_known_failed_ones_are_passed_over() -> None:
    controller = Controller(cluster(partition(1, 2), features={"metadata.version": 14}))
    controller.beat(1, offline_log_dirs=[directory(1)])
    assert controller.records == ()


def test_cordoned_directories_are_stated_once_and_again_when_they_change() -> None:
    controller = Controller(cluster(partition(1, 2)))
    controller.beat(1)
    assert controller.records == ()
    controller.beat(1, cordoned_log_dirs=[])
    assert [each.version for each in controller.records] == [3]
    assert controller.image.brokers[1].cordoned_directories == ()
    controller.beat(1, cordoned_log_dirs=[])
    assert controller.records == ()
    controller.beat(1, cordoned_log_dirs=[directory(1)])
    assert controller.image.brokers[1].cordoned_directories == (directory(1),)


def test_cordoned_directories_need_their_metadata_version() -> None:
    controller = Controller(cluster(partition(1, 2), features={"metadata.version": 29}))
    controller.beat(1, cordoned_log_dirs=[directory(1)])
    assert controller.records == ()
