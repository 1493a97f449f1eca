"""Automatic elections."""

from __future__ import annotations

from typing import Any

from kafkacompat.controller._tests.clusters import after, broker, cluster, partition, settings
from kafkacompat.controller.configuration_control_manager import allows_unclean_elections
from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.partition_change_builder import partition_change
from kafkacompat.controller.periodic_task_control_manager import balance_interval_ms, unclean_interval_ms
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.replication_control_manager import (
    MAX_ELECTIONS_PER_ROUND,
    alter_partition_reassignments,
    maybe_balance_partition_leaders,
    maybe_elect_unclean_leaders,
)
from kafkacompat.tasks import at_once
from kafkacompat.wire.messages import alter_partition_reassignments_request as reassigning
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.config_record import ConfigRecord

UNCLEAN = "unclean.leader.election.enable"


def test_how_often_and_whether_at_all() -> None:
    assert balance_interval_ms(settings()) == 300_000
    assert balance_interval_ms(settings(leader_imbalance_check_interval_seconds="7")) == 7000
    assert balance_interval_ms(settings(auto_leader_rebalance_enable="false")) is None
    assert unclean_interval_ms(settings()) == 300_000


def test_preferred_leaders_come_back_where_they_are_in_sync_and_alive() -> None:
    image = cluster(
        partition(1, 2, leader=2),
        partition(1, 2, isr=(2,)),
        partition(3, 2, leader=2),
        partition(2, 1),
        brokers=(1, 2, broker(3, fenced=True)),
    )
    result = at_once(maybe_balance_partition_leaders(image, settings()))
    assert result.response is False
    leaders = [each.leader for each in after(image, result).topics["t"].partitions.values()]
    assert leaders == [1, 2, 2, 2]
    assert len(result.records) == 1


def test_a_round_is_bounded_and_says_that_there_is_more() -> None:
    image = cluster(*[partition(1, 2, leader=2) for _ in range(MAX_ELECTIONS_PER_ROUND + 5)])
    first = at_once(maybe_balance_partition_leaders(image, settings()))
    assert (len(first.records), first.response) == (MAX_ELECTIONS_PER_ROUND, True)
    second = at_once(maybe_balance_partition_leaders(after(image, first), settings()))
    assert (len(second.records), second.response) == (5, False)


def test_unclean_elections_only_where_the_topic_allows_them() -> None:
    gone = partition(1, 2, isr=(), leader=-1)
    brokers = (broker(1, fenced=True), 2)
    refused = cluster(gone, brokers=brokers)
    assert at_once(maybe_elect_unclean_leaders(refused, settings())).records == ()
    allowed = cluster(gone, partition(2, 1), brokers=brokers, configs={(2, "t"): {UNCLEAN: "true"}})
    result = at_once(maybe_elect_unclean_leaders(allowed, settings()))
    new = after(allowed, result).topics["t"].partitions
    assert (new[0].leader, new[0].isr, new[0].leader_recovering) == (2, (2,), True)
    assert new[1] == allowed.topics["t"].partitions[1]
    assert result.response is False


def test_a_setting_that_allows_unclean_elections_makes_them_due() -> None:
    def record(name: str, value: str | None) -> MetadataRecord:
        return MetadataRecord(ConfigRecord(resource_type=2, resource_name="t", name=name, value=value), 0)

    assert allows_unclean_elections([record("retention.ms", "true"), record(UNCLEAN, "true")])
    assert not allows_unclean_elections([record(UNCLEAN, "false"), record(UNCLEAN, None)])
    assert not allows_unclean_elections([])


def test_clearing_eligible_leaders_is_a_change_of_those_partitions_that_had_some() -> None:
    """As in Apache Kafka, where an earlier AlterPartition is answered with the newer partition epoch."""
    image = cluster(
        partition(1, 2, isr=(1,), eligible_leader_replicas=(2,)),
        partition(1, 2, isr=(), leader=-1, last_known_elr=(1,)),
        partition(1, 2),
    )
    cleared = after(image, ControllerResult((MetadataRecord(ClearElrRecord(topic_name="t"), 0),), None))
    found = cleared.topics["t"].partitions.values()
    assert [each.partition_epoch for each in found] == [10, 10, 9]
    assert not any(each.eligible_leader_replicas or each.last_known_elr for each in found)


def test_the_last_known_leader_is_noted_when_the_partition_loses_its_leader_whatever_its_isr_says() -> None:
    """A cancelled move may list a fenced replica as in sync and still have no leader, as observed in Apache Kafka
    4.3.0."""
    moving = partition(3, 4, isr=(3,), adding_replicas=(3,), leader=3)
    configs = {(2, "t"): {UNCLEAN: "true"}}
    image = cluster(moving, brokers=(broker(3), broker(4, fenced=True)), configs=configs)
    topic = reassigning.ReassignableTopic(
        name="t", partitions=[reassigning.ReassignablePartition(partition_index=0, replicas=None)]
    )
    request = reassigning.AlterPartitionReassignmentsRequest(topics=[topic])
    new = (
        after(image, at_once(alter_partition_reassignments(image, settings(), request)))
        .topics["t"]
        .partitions[0]
    )
    assert (new.replicas, new.isr, new.leader, new.last_known_elr) == ((4,), (4,), -1, (3,))


def test_a_last_known_leader_that_was_moved_away_does_not_lead_again() -> None:
    """The move ended with the change that cost the partition its leader, and the new replica has failed since."""
    configs = {(2, "t"): {UNCLEAN: "false"}}
    for replicas, leader in (((1, 2), -1), ((1, 3), 3)):
        lost = partition(*replicas, isr=(), leader=-1, last_known_elr=(3,))
        image = cluster(lost, brokers=(broker(1, fenced=True), broker(2), broker(3)), configs=configs)
        change: Any = partition_change(image, settings(), image.topics["t"], 0).build()
        elected = -1 if change is None else change.message.leader
        assert elected == leader
