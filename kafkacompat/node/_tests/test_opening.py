"""Requests that describe the cluster wait until the broker has joined. Other requests do not wait, and no request
waits for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api._tests.kit import Api, pauseless
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.deferred import Deferred
from kafkacompat.node import opening as module
from kafkacompat.node.opening import ANSWERED_AT_ONCE, Opening
from kafkacompat.partition._tests.kit import LISTENER, broker_image, topic_image
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.tasks import Tasks
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest

EPOCH = 40
BOUND_MS = 9_000
HELD = {"Metadata", "FindCoordinator", "DescribeCluster", "DescribeTopicPartitions"} | {
    "CreateTopics",
    "CreatePartitions",
    "ElectLeaders",
    "AlterPartitionReassignments",
}


class Starting(Api):
    """A node with open listeners. The image shows it as registered and fenced."""

    def __init__(self) -> None:
        fenced = replace(broker_image(1, fenced=True), epoch=EPOCH)
        super().__init__(topic_image("t"), brokers=[fenced])
        self.time = HandTime()
        self.overdue = 0
        self.opening = Opening(1, Tasks(self.time))
        self.opening.begin(EPOCH, BOUND_MS, self._is_overdue)
        self.opening.on_image(self.node.image)
        self.node.opening = self.opening
        self.dispatcher = ApiDispatcher(self.node, pauseless(self.time))
        self.connections = 0

    def _is_overdue(self) -> None:
        self.overdue += 1

    def take_part(self, epoch: int = EPOCH) -> None:
        own = replace(broker_image(1), epoch=epoch)
        self.publish(replace(self.node.image, brokers={1: own}))
        self.opening.on_image(self.node.image)

    def ask(self, request: Any, version: int) -> tuple[Any, ConnectionInfo]:
        """Send the request on a new connection."""
        self.connections += 1
        connection = ConnectionInfo(self.connections, LISTENER, "127.0.0.1", 5)
        frame = memoryview(self.frame(request, version))
        return self.dispatcher.dispatch(connection, frame), connection

    def held_metadata(self) -> Deferred[Any]:
        """Return the reply, which is decoded when it arrives."""
        pending, _ = self.ask(MetadataRequest(topics=None), 12)
        assert isinstance(pending, Pending)
        assert pending.blocks
        return pending.reply.then(lambda parts: self.decoded(parts, 3, 12))


def told(reply: Deferred[Any]) -> tuple[list[int], int]:
    """Return (broker ids, controller id)."""
    response = reply.result()
    return [each.node_id for each in response.brokers], response.controller_id


def test_metadata_waits_until_the_image_shows_the_broker_unfenced() -> None:
    node = Starting()
    reply = node.held_metadata()
    node.opening.on_image(node.node.image)
    assert not reply.done
    node.take_part()
    assert told(reply) == ([1], 1)
    pending, _ = node.ask(MetadataRequest(topics=None), 12)
    assert not isinstance(pending, Pending)


def test_an_earlier_life_that_was_unfenced_does_not_count() -> None:
    node = Starting()
    reply = node.held_metadata()
    node.take_part(epoch=EPOCH - 1)
    assert not reply.done


@pytest.mark.parametrize("entry", BROKER_APIS.entries, ids=lambda each: each.name)
def test_what_rests_on_who_takes_part_is_held_and_nothing_that_other_nodes_need(entry: Any) -> None:
    assert BROKER_APIS.load(entry.key).waits_for_opening == (entry.name in HELD)
    if entry.name in HELD:
        node = Starting()
        pending, _ = node.ask(request_class(entry.key)(), entry.max_version)
        assert isinstance(pending, Pending)
        assert not pending.reply.done
        assert node.controller.calls == []


def test_versions_are_told_at_once() -> None:
    node = Starting()
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    reply, _ = node.ask(request, 4)
    assert not isinstance(reply, Pending)


def test_a_topic_is_asked_for_when_there_are_brokers_and_its_answer_is_the_controllers() -> None:
    node = Starting()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)])
    pending, _ = node.ask(request, 7)
    node.take_part()
    ((name, asked, answer),) = node.controller.calls
    assert (name, asked.topics[0].name) == ("create_topics", "n")
    assert not pending.reply.done
    answer.resolve(CreateTopicsResponse(throttle_time_ms=3))
    assert node.decoded(pending.reply.result(), 19, 7).throttle_time_ms == 3


def test_a_bug_behind_the_wait_is_answered_as_one_and_the_others_are_answered() -> None:
    node = Starting()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)])
    first, _ = node.ask(request, 7)
    reply = node.held_metadata()
    node.node.controller = None  # type: ignore[assignment]
    node.take_part()
    assert node.decoded(first.reply.result(), 19, 7).topics[0].error_code == -1
    assert told(reply) == ([1], 1)


def test_nobody_waits_longer_than_a_session() -> None:
    node = Starting()
    reply = node.held_metadata()
    node.time.advance(BOUND_MS - 1)
    assert not reply.done
    node.time.advance(1)
    assert told(reply) == ([], -1)
    assert node.overdue == 1


def test_a_broker_that_took_part_in_time_is_not_overdue() -> None:
    node = Starting()
    node.take_part()
    node.time.advance(BOUND_MS)
    assert node.overdue == 0


def test_a_node_that_stops_answers_those_who_wait() -> None:
    node = Starting()
    reply = node.held_metadata()
    node.opening.open()
    assert told(reply) == ([], -1)


def test_a_connection_that_ends_is_waited_for_no_more() -> None:
    node = Starting()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)])
    _, connection = node.ask(request, 7)
    node.dispatcher.connection_closed(connection)
    node.take_part()
    assert node.controller.calls == []


def test_many_are_answered_in_steps() -> None:
    node = Starting()
    replies = [node.held_metadata() for _ in range(2 * ANSWERED_AT_ONCE + 1)]
    node.take_part()
    assert sum(reply.done for reply in replies) == ANSWERED_AT_ONCE
    node.time.advance(0)
    assert all(reply.done for reply in replies)


def test_what_is_beyond_the_bound_is_answered_from_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUESTS_HELD_MAX", 1)
    node = Starting()
    held = node.held_metadata()
    pending, _ = node.ask(MetadataRequest(topics=None), 12)
    assert not isinstance(pending, Pending)
    assert not held.done
