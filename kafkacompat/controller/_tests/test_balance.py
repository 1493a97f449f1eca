"""Elections that nobody asks for."""

from __future__ import annotations

from kafkacompat.controller._tests.clusters import after, broker, cluster, partition, settings
from kafkacompat.controller.balance import (
    MAX_ELECTIONS_PER_ROUND,
    allows_unclean_elections,
    balance_interval_ms,
    preferred_elections,
    unclean_elections,
    unclean_interval_ms,
)
from kafkacompat.controller.records import MetadataRecord
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
    result = preferred_elections(image, settings())
    assert result.response is False
    leaders = [each.leader for each in after(image, result).topics["t"].partitions.values()]
    assert leaders == [1, 2, 2, 2]
    assert len(result.records) == 1


def test_a_round_is_bounded_and_says_that_there_is_more() -> None:
    image = cluster(*[partition(1, 2, leader=2) for _ in range(MAX_ELECTIONS_PER_ROUND + 5)])
    first = preferred_elections(image, settings())
    assert (len(first.records), first.response) == (MAX_ELECTIONS_PER_ROUND, True)
    second = preferred_elections(after(image, first), settings())
    assert (len(second.records), second.response) == (5, False)


def test_unclean_elections_only_where_the_topic_allows_them() -> None:
    gone = partition(1, 2, isr=(), leader=-1)
    brokers = (broker(1, fenced=True), 2)
    refused = cluster(gone, brokers=brokers)
    assert unclean_elections(refused, settings()).records == ()
    allowed = cluster(gone, partition(2, 1), brokers=brokers, configs={(2, "t"): {UNCLEAN: "true"}})
    result = unclean_elections(allowed, settings())
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
