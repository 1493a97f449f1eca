"""The carried-out life of a broker: requests at their due times, resolved Deferreds, and other requests to the controller."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import EndPoint
from kafkacompat.controller.image import CONTROLLERS, BrokerRegistration, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ConnectionLost
from kafkacompat.node._tests.fakes import HandChannels, Sent
from kafkacompat.node.broker_lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    LifecycleSettings,
)
from kafkacompat.node.broker_lifecycle_manager import (
    BrokerLifecycleManager,
    DirectoryFailureUntold,
    RegistrationFailed,
)
from kafkacompat.node.controller_registration_manager import ControllerIdentity, ControllerRegistrationManager
from kafkacompat.node.node_to_controller_channel_manager import NodeToControllerChannelManager
from kafkacompat.node.rpc_producer_id_manager import RPCProducerIdManager, allocate_block
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
from kafkacompat.wire.messages.broker_registration_response import BrokerRegistrationResponse
from kafkacompat.wire.messages.controller_registration_response import ControllerRegistrationResponse
from kafkacompat.wire.messages.register_controller_record import RegisterControllerRecord

LISTENERS = (EndPoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
INCARNATION = b"\x01" * 16
DIRECTORY = b"\x02" * 16
IDENTITY = BrokerIdentity(1, "c", INCARNATION, LISTENERS, (DIRECTORY,), None, -1)


class LivingBroker:
    def __init__(self) -> None:
        self.time = HandTime()
        self.channels = HandChannels()
        self.failures: list[Exception] = []
        self.channel = NodeToControllerChannelManager(
            1,
            "heartbeat",
            self.channels,
            self.time,
            Tasks(self.time),
            lambda: (3, "c", 1),  # type: ignore[arg-type]
        )
        self.image = MetadataImage(offset=5, features={"metadata.version": 33})
        self.lifecycle = BrokerLifecycleManager(
            1,
            LifecycleSettings(),
            self.time,
            Tasks(self.time),
            self.failures.append,
        )

    def start(self) -> Deferred[int]:
        return self.lifecycle.start(IDENTITY, self.channel, lambda: self.image)

    @property
    def last(self) -> Sent:
        return self.channels.sent[-1]

    def answer(self, response: Any) -> None:
        self.last.answer.resolve(response)

    def run(self) -> None:
        self.start()
        self.answer(BrokerRegistrationResponse(broker_epoch=13))
        self.answer(BrokerHeartbeatResponse(is_caught_up=True))
        self.lifecycle.ready_to_unfence()
        self.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))


def test_a_caller_that_waits_for_a_step_of_the_lifecycle_is_told() -> None:
    w = LivingBroker()
    registered = w.start()
    assert isinstance(w.last.message, BrokerRegistrationRequest)
    assert w.last.timeout_ms == 4_500
    assert not registered.done
    w.answer(BrokerRegistrationResponse(broker_epoch=13))
    assert registered.result() == 13
    assert w.lifecycle.broker_epoch == 13
    beat: Any = w.last.message
    assert beat.current_metadata_offset == 5
    w.answer(BrokerHeartbeatResponse(is_caught_up=False))
    assert not w.lifecycle.caught_up.done
    w.image = replace(w.image, offset=9)
    w.time.advance(10)
    beat = w.last.message
    assert beat.current_metadata_offset == 9
    w.answer(BrokerHeartbeatResponse(is_caught_up=True))
    assert w.lifecycle.caught_up.done
    unfenced = w.lifecycle.ready_to_unfence()
    assert not unfenced.done
    w.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    assert unfenced.done
    count = len(w.channels.sent)
    w.time.advance(2_000)
    assert len(w.channels.sent) == count + 1
    w.answer(BrokerHeartbeatResponse(is_fenced=False))
    stopped = w.lifecycle.shut_down()
    assert w.last.message.want_shut_down
    assert not stopped.done
    w.answer(BrokerHeartbeatResponse(should_shut_down=True))
    assert stopped.done
    assert w.lifecycle.state is BrokerState.SHUTTING_DOWN
    count = len(w.channels.sent)
    w.time.advance(1_000_000)
    assert len(w.channels.sent) == count


def test_a_controller_of_a_release_without_cordoned_directories_is_not_told_of_them() -> None:
    """A request that its version of the API cannot carry would never be sent, and the broker would stay fenced."""
    w = LivingBroker()
    w.image = MetadataImage(offset=5, features={"metadata.version": 29})
    w.run()
    w.lifecycle.cordon((DIRECTORY,))
    assert w.last.message.cordoned_log_dirs is None
    w.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    w.image = MetadataImage(offset=6, features={"metadata.version": 30})
    w.time.advance(2_000)
    assert w.last.message.cordoned_log_dirs == [DIRECTORY]


def test_a_session_is_over_when_nobody_has_answered_for_its_length() -> None:
    w = LivingBroker()
    w.run()
    w.time.advance(8_999)
    assert not w.lifecycle.session_is_over
    w.time.advance(1)
    assert w.lifecycle.session_is_over
    assert w.lifecycle.state is BrokerState.RUNNING
    w.answer(BrokerHeartbeatResponse(is_fenced=True))
    assert not w.lifecycle.session_is_over


def test_a_start_that_nobody_registers_fails_and_says_why() -> None:
    w = LivingBroker()
    registered = w.start()
    for _ in range(200):
        if registered.done:
            break
        if not w.last.answer.done:
            w.answer(BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        w.time.advance(500)
    with pytest.raises(RegistrationFailed, match=r"60000 ms .* INCONSISTENT_CLUSTER_ID"):
        registered.result()
    assert w.lifecycle.stopped.done


def test_a_broker_without_a_controller_goes_on_asking(caplog: pytest.LogCaptureFixture) -> None:
    w = LivingBroker()
    w.run()
    w.time.advance(2_000)
    w.last.answer.fail(ConnectionLost("gone"))
    w.time.advance(50)
    w.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert "BrokerHeartbeatRequest with STALE_BROKER_EPOCH" in caplog.text
    w.time.advance(100)
    assert isinstance(w.last.message, BrokerHeartbeatRequest)
    assert not w.last.answer.done
    assert w.lifecycle.state is BrokerState.RUNNING


def test_a_shutdown_ends_without_a_controller() -> None:
    """The session is over, so the broker is fenced, or nobody is there who could fence it."""
    w = LivingBroker()
    w.run()
    stopped = w.lifecycle.shut_down()
    for _ in range(100):
        if not w.last.answer.done:
            w.last.answer.fail(ConnectionLost("gone"))
        w.time.advance(1_000)
    assert stopped.done


def test_a_controller_without_room_is_told_of_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The controller is this node's own. The broker repeats its request as long as the disk is full."""
    w = LivingBroker()
    w.run()
    w.time.advance(2_000)
    w.last.answer.fail(OSError(errno.ENOSPC, "no room"))
    w.time.advance(2_000)
    assert [each.exc_info for each in caplog.records if "no room" in each.getMessage()] == [None]
    assert not w.last.answer.done


def test_a_bug_in_a_request_is_reported_and_the_broker_goes_on_asking(faults: Faults) -> None:
    w = LivingBroker()
    w.run()
    w.time.advance(2_000)
    bug = KeyError("a bug")
    w.last.answer.fail(bug)
    assert faults.take() == [bug]
    w.time.advance(2_000)
    assert not w.last.answer.done


@pytest.mark.parametrize("step", ["next_request", "_heartbeat", "answered", "_after_heartbeat"])
def test_a_heartbeat_for_which_there_is_no_memory_is_followed_by_the_next(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stops asking stays fenced for good."""
    w = LivingBroker()
    w.run()
    lacking: list[str] = []
    former = getattr(BrokerLifecycle, step)

    def lacks_once(*arguments: Any) -> Any:
        if not lacking:
            lacking.append(step)
            raise MemoryError
        return former(*arguments)

    monkeypatch.setattr(BrokerLifecycle, step, lacks_once)
    for _ in range(3):
        w.time.advance(2_000)
        if not w.last.answer.done:
            w.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    count = len(w.channels.sent)
    w.time.advance(2_000)
    assert lacking
    assert len(w.channels.sent) > count
    stopped = w.lifecycle.shut_down()
    for _ in range(2):
        if not w.last.answer.done:
            w.answer(BrokerHeartbeatResponse(should_shut_down=True))
    assert stopped.done


def test_a_failed_directory_is_told_at_once_or_the_broker_stops() -> None:
    w = LivingBroker()
    w.run()
    w.lifecycle.directory_failed(DIRECTORY)
    assert w.last.message.offline_log_dirs == [DIRECTORY]
    w.answer(BrokerHeartbeatResponse(is_fenced=False))
    w.time.advance(1_000)
    assert w.failures == []
    other = LivingBroker()
    other.run()
    other.lifecycle.directory_failed(DIRECTORY)
    other.time.advance(29_999)
    assert other.failures == []
    other.time.advance(1)
    assert [type(each) for each in other.failures] == [DirectoryFailureUntold]


def test_a_registration_without_directories_is_repeated_when_the_cluster_knows_them() -> None:
    w = LivingBroker()
    w.run()
    own = BrokerRegistration(1, 13, INCARNATION, {}, {}, None, False, False, ())
    old = MetadataImage(features={"metadata.version": 16}, brokers={1: own})
    w.lifecycle.on_image(MetadataImage(), old)
    assert isinstance(w.last.message, BrokerHeartbeatRequest)
    new = replace(old, features={"metadata.version": 17})
    w.lifecycle.on_image(old, new)
    assert isinstance(w.last.message, BrokerRegistrationRequest)
    count = len(w.channels.sent)
    w.lifecycle.on_image(new, replace(new, offset=7))
    assert len(w.channels.sent) == count


def test_a_broker_whose_place_another_incarnation_has_taken_registers_again() -> None:
    """For example when a request of its killed predecessor arrives after its own. The simulation found this."""
    w = LivingBroker()
    w.run()
    own = BrokerRegistration(1, 13, INCARNATION, {}, {}, None, False, False, (DIRECTORY,))
    first = MetadataImage(features={"metadata.version": 17}, brokers={1: own})
    w.lifecycle.on_image(MetadataImage(), first)
    older = replace(own, epoch=9, incarnation_id=b"\x09" * 16)
    w.lifecycle.on_image(first, replace(first, brokers={1: older}))
    assert isinstance(w.last.message, BrokerHeartbeatRequest)
    taken = replace(own, epoch=20, incarnation_id=b"\x09" * 16)
    w.lifecycle.on_image(first, replace(first, brokers={1: taken}))
    w.time.advance(2_000)
    assert isinstance(w.last.message, BrokerRegistrationRequest)
    assert w.last.message.incarnation_id == INCARNATION
    w.answer(BrokerRegistrationResponse(broker_epoch=21))
    assert w.lifecycle.broker_epoch == 21
    assert isinstance(w.last.message, BrokerHeartbeatRequest)
    assert (w.last.message.broker_epoch, w.last.message.want_fence) == (21, False)


def test_others_tell_at_once_that_they_have_heard_of_a_broker_that_stops() -> None:
    w = LivingBroker()
    w.run()
    own = BrokerRegistration(1, 13, INCARNATION, {}, {}, None, False, False, ())
    other = BrokerRegistration(2, 14, b"\x08" * 16, {}, {}, None, False, False, ())
    running = MetadataImage(brokers={1: own, 2: other})
    w.lifecycle.on_image(MetadataImage(), running)
    count = len(w.channels.sent)
    stopping = replace(running, brokers={1: own, 2: replace(other, in_controlled_shutdown=True)})
    w.lifecycle.on_image(running, stopping)
    assert len(w.channels.sent) == count + 1
    assert isinstance(w.last.message, BrokerHeartbeatRequest)
    w.lifecycle.on_image(stopping, replace(stopping, offset=9))
    assert len(w.channels.sent) == count + 1


def registered(incarnation: bytes, level: int = 30) -> MetadataImage:
    record = RegisterControllerRecord(controller_id=1, incarnation_id=incarnation)
    return MetadataImage(features={"metadata.version": level}, opaque={CONTROLLERS: {1: record}})


def test_a_controller_registers_until_the_log_shows_this_incarnation(faults: Faults) -> None:
    w = LivingBroker()
    registration = ControllerRegistrationManager(
        ControllerIdentity(1, INCARNATION, LISTENERS), w.channel, Tasks(w.time)
    )
    empty = MetadataImage()
    early = MetadataImage(features={"metadata.version": 14})
    registration.on_image(empty, early)
    assert w.channels.sent == []
    first = registered(b"\x09" * 16)
    registration.on_image(early, first)
    request = w.last.message
    assert (request.controller_id, request.incarnation_id) == (1, INCARNATION)
    assert [(each.name, each.port) for each in request.listeners] == [("PLAINTEXT", 9092)]
    assert len(request.features) == 7
    w.answer(ControllerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    w.time.advance(100)
    assert len(w.channels.sent) == 2
    bug = ZeroDivisionError()
    w.last.answer.fail(bug)
    assert faults.take() == [bug]
    w.time.advance(199)
    assert len(w.channels.sent) == 2
    w.time.advance(1)
    assert len(w.channels.sent) == 3
    w.answer(ControllerRegistrationResponse())
    assert not registration.is_registered
    done = registered(INCARNATION)
    registration.on_image(first, done)
    assert registration.is_registered
    registration.on_image(done, registered(b"\x09" * 16))
    assert len(w.channels.sent) == 4
    w.answer(ControllerRegistrationResponse())
    registration.on_image(registered(b"\x09" * 16), done)
    # Somebody unregisters a controller that runs.
    registration.on_image(done, MetadataImage(features=done.features))
    assert len(w.channels.sent) == 5


def test_producer_ids_come_from_the_controller_and_a_refusal_is_asked_again() -> None:
    w = LivingBroker()
    ids = RPCProducerIdManager(partial(allocate_block, w.channel, 1, lambda: 13), Tasks(w.time))
    assert ids.next_producer_id() is None
    assert (w.last.message.broker_id, w.last.message.broker_epoch) == (1, 13)
    w.answer(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert ids.next_producer_id() is None
    assert len(w.channels.sent) == 2
    w.answer(AllocateProducerIdsResponse(producer_id_start=3_000, producer_id_len=1_000))
    assert [ids.next_producer_id() for _ in range(2)] == [3_000, 3_001]
