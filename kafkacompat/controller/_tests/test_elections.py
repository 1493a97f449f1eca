"""ElectLeaders over several brokers, with the codes and texts of Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.controller._tests.clusters import after, broker, cluster, partition, settings
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.replication_control_manager import elect_leaders
from kafkacompat.tasks import at_once
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1


def elect(image: MetadataImage, kind: int, *indexes: int) -> tuple[Any, list[tuple[int, int]]]:
    """(result, (partition, error) of each partition in the answer). No index means every partition."""
    named = [TopicPartitions(topic="t", partitions=list(indexes))] if indexes else None
    result = at_once(
        elect_leaders(image, settings(), ElectLeadersRequest(election_type=kind, topic_partitions=named))
    )
    assert result.response.error_code == 0
    (topic,) = result.response.replica_election_results
    return result, [(each.partition_id, each.error_code) for each in topic.partition_result]


def test_the_preferred_leader_takes_over_in_a_new_epoch() -> None:
    image = cluster(partition(1, 2, 3, leader=2), partition(2, 3, 1))
    result, answer = elect(image, PREFERRED, 0, 1)
    assert answer == [(0, 0), (1, 84)]
    assert len(result.records) == 1
    new = after(image, result).topics["t"].partitions[0]
    assert (new.leader, new.leader_epoch, new.partition_epoch, new.isr) == (1, 6, 10, (1, 2, 3))


@pytest.mark.parametrize(
    "brokers", [(broker(1, fenced=True), 2, 3), (2, 3)], ids=["fenced", "not-registered"]
)
def test_a_preferred_leader_that_is_away_is_not_elected(brokers: Any) -> None:
    image = cluster(partition(1, 2, 3, isr=(2, 3)), brokers=brokers)
    result, answer = elect(image, PREFERRED, 0)
    assert (answer, result.records) == ([(0, 80)], ())


def test_a_preferred_leader_out_of_sync_is_not_elected() -> None:
    result, answer = elect(cluster(partition(1, 2, 3, isr=(2, 3))), PREFERRED, 0)
    assert (answer, result.records) == ([(0, 80)], ())


def test_all_partitions_without_those_that_need_none() -> None:
    image = cluster(partition(1, 2), partition(2, 1, leader=1), partition(3, 4, isr=(4,)))
    result, answer = elect(image, PREFERRED)
    assert answer == [(1, 0), (2, 80)]
    assert after(image, result).topics["t"].partitions[1].leader == 2


def test_an_unclean_election_takes_the_first_live_replica_and_marks_it_recovering() -> None:
    gone = partition(1, 2, 3, isr=(1,), leader=-1)
    image = cluster(gone, partition(2, 3), brokers=(broker(1, fenced=True), 2, 3))
    result, answer = elect(image, UNCLEAN, 0, 1)
    assert answer == [(0, 0), (1, 84)]
    new = after(image, result).topics["t"].partitions[0]
    assert (new.leader, new.isr, new.leader_recovering, new.leader_epoch) == (2, (2,), True, 6)


def test_an_unclean_election_prefers_an_eligible_leader_and_loses_nothing() -> None:
    gone = partition(1, 2, 3, isr=(), leader=-1, eligible_leader_replicas=(1, 3))
    image = cluster(gone, brokers=(broker(1, fenced=True), 2, 3))
    result, answer = elect(image, UNCLEAN, 0)
    assert answer == [(0, 0)]
    new = after(image, result).topics["t"].partitions[0]
    assert (new.leader, new.isr, new.leader_recovering) == (3, (3,), False)


def test_an_unclean_election_without_a_live_replica_fails() -> None:
    gone = partition(1, 2, isr=(1,), leader=-1)
    result, answer = elect(cluster(gone, brokers=(3, 4)), UNCLEAN, 0)
    assert (answer, result.records) == ([(0, 83)], ())


def test_a_partition_named_twice_is_elected_once() -> None:
    image = cluster(partition(1, 2, leader=2))
    result, answer = elect(image, PREFERRED, 0, 0)
    assert (answer, len(result.records)) == ([(0, 0), (0, 0)], 1)


def test_what_is_not_there_and_what_is_not_a_kind_of_election() -> None:
    image = cluster(partition(1))
    request = ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=[
            TopicPartitions(topic="t", partitions=[7]),
            TopicPartitions(topic="nope", partitions=[0]),
        ],
    )
    texts = [
        (each.error_code, each.error_message)
        for topic in at_once(elect_leaders(image, settings(), request)).response.replica_election_results
        for each in topic.partition_result
    ]
    assert texts == [(3, "No such partition as t-7"), (3, "No such topic as nope")]
    request.election_type = 5
    nothing = at_once(
        elect_leaders(image, settings(), ElectLeadersRequest(election_type=5, topic_partitions=[]))
    )
    assert nothing.response.error_code == 0
    refused = at_once(elect_leaders(image, settings(), request)).response
    assert refused.error_code == 42
    assert [
        (each.error_code, each.error_message)
        for topic in refused.replica_election_results
        for each in topic.partition_result
    ] == [(42, "Unknown election type 5")] * 2


@pytest.mark.parametrize("with_request_error", [True, False])
def test_more_elections_than_one_operation_may_write_are_refused_whole(with_request_error: bool) -> None:
    image = cluster(*[partition(1, 2, leader=2)] * 10_001)
    request = ElectLeadersRequest(topic_partitions=None)
    result = at_once(elect_leaders(image, settings(), request, with_request_error=with_request_error))
    assert result.records == ()
    assert result.response.error_code == (44 if with_request_error else 0)
