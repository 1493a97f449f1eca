"""What the remote log manager counts, and the metrics that are made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.metrics.families import Family
from kafkacompat.metrics.partitions import LOG, LOGS, TRAFFIC
from kafkacompat.metrics.remote import remote_families
from kafkacompat.ports import LogRefused
from kafkacompat.remote._tests.manager_kit import TIERED, Tier
from kafkacompat.remote._tests.test_manager import failing, read, run, tiered
from kafkacompat.remote.ports import RemoteStorageException, RetriableRemoteStorageException
from kafkacompat.remote.traffic import RemoteTraffic


def shown(tier: Tier) -> dict[str, float]:
    """The series of a scrape that are not 0, without the beginning of their names."""
    found = {}
    for family in remote_families(tier.manager.traffic, tier.manager.states()):
        if isinstance(family, Family):
            for sample in family.samples:
                if sample is not None and sample[1]:
                    label = sample[0].get("topic")
                    name = family.name.removeprefix(TRAFFIC)
                    found[name if label is None else f"{name} {label}"] = sample[1]
    return found


def of(tier: Tier, *names: str) -> list[float]:
    """The values of the topic, which are those of the sums too."""
    found = shown(tier)
    values = [found.get(f"{name} t", 0) for name in names]
    assert [found.get(name, 0) for name in names] == values
    return values


def test_copies_are_counted_and_how_much_is_left() -> None:
    tier = Tier()
    tier.fill()
    tier.storage.fail = failing("copy", RetriableRemoteStorageException)
    tier.lead()
    closed = [each.size for each in tier.log.segments[:3]]
    assert of(tier, "remotecopyrequests", "remotecopyerrors", "remotecopybytes") == [1, 0, 0]
    assert of(tier, "remotecopylagsegments", "remotecopylagbytes") == [3, sum(closed)]
    tier.storage.fail = failing("copy", RemoteStorageException)
    tier.pass_on()
    assert of(tier, "remotecopyrequests", "remotecopyerrors") == [2, 1]
    tier.pass_on()
    assert of(tier, "remotecopyrequests", "remotecopyerrors", "remotecopybytes") == [5, 1, sum(closed)]
    assert of(tier, "remotecopylagsegments", "remotecopylagbytes") == [0, 0]
    tier.pass_on()
    unfinished = 1  # of the failure that may pass: the deletion of the other one was made
    assert of(tier, "remotelogmetadatacount", "remotelogsizebytes") == [3 + unfinished, sum(closed)]


def test_a_log_that_is_copied_no_more_is_not_behind() -> None:
    tier = Tier()
    tier.fill()
    tier.storage.fail = failing("copy", RetriableRemoteStorageException)
    tier.lead()
    lag = "remotecopylagsegments", "remotecopylagbytes"
    assert all(of(tier, *lag))
    tier.log.config = replace(TIERED, remote_log_copy_disable=True, local_retention_bytes=-2)
    tier.manager.role_taken(tier.core)
    tier.pass_on()
    assert of(tier, *lag) == [0, 0]


def test_the_local_part_of_a_tiered_log_is_no_share_of_its_retention() -> None:
    """As in Kafka, which has other series for what is kept in both parts together."""
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    size = tier.log.size_bytes()

    def percent(config: LogConfig) -> float:
        tier.log.config = config
        found = {family.name: family for family in LOGS.of([({}, tier.log)]) if family is not None}
        ((_, value),) = [each for each in found[f"{LOG}retentionsizeinpercent"].samples if each is not None]
        return value

    assert percent(replace(TIERED, retention_bytes=2 * size)) == 0
    assert percent(replace(TIERED, retention_bytes=2 * size, remote_log_copy_disable=True)) == 50
    assert percent(replace(TIERED, retention_bytes=2 * size, remote_storage_enable=False)) == 50


def test_deletions_are_counted_and_how_many_are_left() -> None:
    tier = Tier(replace(TIERED, retention_bytes=1))
    tier.fill()
    sizes = [each.size for each in tier.log.segments[:3]]
    tier.storage.fail = failing("delete", RemoteStorageException)
    tier.lead()
    tier.pass_on()
    assert of(tier, "remotedeleterequests", "remotedeleteerrors") == [3, 1]  # the others do not wait for it
    assert of(tier, "remotedeletelagsegments", "remotedeletelagbytes") == [1, sizes[0]]
    tier.pass_on()
    assert of(tier, "remotedeleterequests", "remotedeleteerrors") == [4, 1]
    assert of(tier, "remotedeletelagsegments", "remotedeletelagbytes") == [0, 0]
    tier = tiered()
    tier.log.increment_log_start_offset(20)
    tier.storage.fail = failing("delete", RetriableRemoteStorageException)
    tier.pass_on()
    assert of(tier, "remotedeleterequests", "remotedeleteerrors") == [1, 0]
    assert of(tier, "remotedeletelagsegments", "remotedeletelagbytes") == [2, sum(sizes[:2])]


def test_reads_are_counted() -> None:
    tier = tiered()
    records = read(tier, 0).records
    with pytest.raises(LogRefused):
        read(tier, 90)
    tier.storage.fail = failing("fetch", RemoteStorageException)
    with pytest.raises(RemoteStorageException):
        read(tier, 0)
    names = "remotefetchrequests", "remotefetchbytes", "remotefetcherrors"
    assert of(tier, *names) == [3, len(records), 1]


def test_what_followers_begin_with_is_counted() -> None:
    tier = tiered()
    for offset in (29, 99):
        run(tier, tier.manager.follower_state(tier.core, 0, offset, 40))
    assert of(tier, "buildremotelogauxstaterequests", "buildremotelogauxstateerrors") == [2, 1]


def test_a_follower_has_no_lag() -> None:
    tier = Tier()
    tier.fill()
    tier.core.is_leader = False
    tier.lead()
    assert tier.manager.states() == {}
    assert shown(tier) == {}


@pytest.mark.parametrize("replaced", [True, False])
def test_the_sums_keep_the_counts_of_a_topic_that_is_gone(replaced: bool) -> None:
    tier = tiered()
    if replaced:  # another epoch is no other partition
        tier.core.leader_epoch = 1
        tier.lead()
    before = shown(tier)
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.settle()
    found = shown(tier)
    assert not [name for name in found if name.endswith(" t")]
    assert found["remotecopybytes"] == before["remotecopybytes"]
    assert found["remotedeleterequests"] == 3


def test_a_topic_is_counted_until_its_last_partition_goes() -> None:
    traffic: Any = RemoteTraffic()
    for _ in range(2):
        traffic.begin("t")
    traffic.of("t").copies += 1
    traffic.end("t")
    traffic.of("t").copies += 1
    assert [(name, each.copies) for name, each in traffic.topics()] == [("t", 2)]
    traffic.end("t")
    traffic.of("t").copies += 1
    assert traffic.topics() == []
    assert sum(each.copies for each in traffic.sums()) == 3
