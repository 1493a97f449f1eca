"""The brokers that clients are told of while brokers die and return. No returning broker disappears. The controller id
is never a dead broker's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.controller.image import BrokerRegistration
from kafkacompat.partition._tests.kit import broker_image, partition_image, topic_image
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest

SESSION_MS = 9_000
METADATA_VERSIONS = range(14)


def broker(broker_id: int, epoch: int = 1, **state: bool) -> BrokerRegistration:
    return replace(broker_image(broker_id), epoch=epoch, **state)


class Cluster(Api):
    """Node 1 of three. Images are published as in server/."""

    def __init__(self, *brokers: BrokerRegistration) -> None:
        super().__init__(topic_image("t", {0: partition_image(replicas=(1, 2))}), brokers=brokers)

    def now(self, *brokers: BrokerRegistration) -> None:
        old = self.node.image
        self.publish(replace(old, brokers={each.id: each for each in brokers}))
        self.node.returning.on_image(old, self.node.image, self.node.clock.monotonic_ms(), SESSION_MS)

    def named(self) -> list[int]:
        """Return the broker ids. All APIs and versions must return the same."""
        answers = [
            [each.node_id for each in self.call(MetadataRequest(topics=[]), version).brokers]
            for version in METADATA_VERSIONS
        ]
        for version in range(3):
            response = self.call(DescribeClusterRequest(), version)
            answers.append([each.broker_id for each in response.brokers])
            assert not any(each.is_fenced for each in response.brokers)
        everybody = self.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
        answers.append([each.broker_id for each in everybody.brokers if not each.is_fenced])
        assert all(each == answers[0] for each in answers), answers
        return answers[0]

    def controllers(self) -> set[int]:
        told = {
            self.call(MetadataRequest(topics=[]), version).controller_id for version in METADATA_VERSIONS[1:]
        }
        return told | {self.call(DescribeClusterRequest(), version).controller_id for version in range(3)}


def test_a_broker_that_died_is_named_until_its_session_is_over() -> None:
    api = Cluster(broker(1), broker(2), broker(3))
    api.now(broker(1), broker(2, in_controlled_shutdown=True), broker(3))
    assert api.named() == [1, 2, 3]
    api.now(broker(1), broker(2, in_controlled_shutdown=True, fenced=True), broker(3))
    assert api.named() == [1, 3]


def test_one_that_comes_back_before_is_named_throughout() -> None:
    api = Cluster(broker(1), broker(2, in_controlled_shutdown=True), broker(3))
    for state in (broker(2, epoch=7, fenced=True), broker(2, epoch=7)):
        api.now(broker(1), state, broker(3))
        assert api.named() == [1, 2, 3]


def test_one_that_comes_back_and_is_killed_again_is_named_no_longer_than_a_session() -> None:
    api = Cluster(broker(1), broker(2), broker(3))
    api.now(broker(1), broker(2, epoch=7, fenced=True), broker(3))
    api.world.time.advance(SESSION_MS - 1)
    api.now(broker(1), broker(2, epoch=8, fenced=True), broker(3))
    assert api.named() == [1, 2, 3]
    api.world.time.advance(1)
    assert api.named() == [1, 3]
    api.now(broker(1), broker(2, epoch=8), broker(3))
    assert api.named() == [1, 2, 3]


def test_one_that_stopped_in_order_is_gone_at_once_and_named_when_it_serves_again() -> None:
    api = Cluster(broker(1), broker(2, in_controlled_shutdown=True), broker(3))
    api.now(broker(1), broker(2, in_controlled_shutdown=True, fenced=True), broker(3))
    assert api.named() == [1, 3]
    api.now(broker(1), broker(2, epoch=7, fenced=True), broker(3))
    assert api.named() == [1, 3]
    api.now(broker(1), broker(2, epoch=7), broker(3))
    assert api.named() == [1, 2, 3]


def test_one_that_is_new_or_fenced_in_its_own_life_is_not_named() -> None:
    api = Cluster(broker(1), broker(3))
    api.now(broker(1), broker(2, epoch=5, fenced=True), broker(3))
    assert api.named() == [1, 3]
    api.now(broker(1), broker(2, epoch=5), broker(3))
    api.now(broker(1), broker(2, epoch=5, fenced=True), broker(3))
    assert api.named() == [1, 3]


def test_one_that_is_unregistered_is_forgotten() -> None:
    api = Cluster(broker(1), broker(2), broker(3))
    api.now(broker(1), broker(2, epoch=7, fenced=True), broker(3))
    api.now(broker(1), broker(3))
    assert api.named() == [1, 3]
    api.now(broker(1), broker(2, epoch=7, fenced=True), broker(3))
    assert api.named() == [1, 3]


@pytest.mark.parametrize(
    ("brokers", "controllers"),
    [
        ([broker(1), broker(2), broker(3)], {1}),
        ([broker(1), broker(2, in_controlled_shutdown=True)], {1}),
        ([broker(1, in_controlled_shutdown=True), broker(2)], {2}),
        ([broker(1, in_controlled_shutdown=True), broker(2, in_controlled_shutdown=True), broker(3)], {3}),
        ([broker(1, fenced=True), broker(2, in_controlled_shutdown=True)], {2}),
        ([broker(1, fenced=True)], {-1}),
    ],
)
def test_the_controller_named_is_who_answers_or_one_that_stays(
    brokers: Sequence[BrokerRegistration], controllers: set[int]
) -> None:
    assert Cluster(*brokers).controllers() == controllers


def test_neither_a_leader_nor_a_coordinator_is_named_on_a_broker_that_is_coming_back() -> None:
    offsets = topic_image("__consumer_offsets", {0: partition_image(replicas=(2, 1), isr=(1,), leader=-1)})
    api = Cluster(broker(1), broker(2))
    api.publish(replace(api.node.image, topics={"__consumer_offsets": offsets}))
    api.now(broker(1), broker(2, epoch=7, fenced=True))
    asked: Any = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    (found,) = api.call(asked, 6).coordinators
    assert (found.node_id, found.error_code) == (-1, 15)
    (topic,) = api.call(MetadataRequest(topics=None), 13).topics
    assert [each.leader_id for each in topic.partitions] == [-1]
