"""The numbers of share-partitions: what members hold, since when, what they were given, and what was archived."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.metrics import shares as module
from kafkacompat.metrics.families import Labels
from kafkacompat.metrics.shares import share_families
from kafkacompat.share._tests.kit import ACCEPT, GROUP, REJECT, RELEASE, RENEW, ShareLeader
from kafkacompat.share.dead_letter_queue import GroupLetterMeter

LABELS = {"group": GROUP, "topic": "t", "partition": "0"}
OWN = "kafkacompat_share_partition_"


class DeadLetters:
    """DeadLetterQueue, as much of it as is used."""

    def __init__(self) -> None:
        self.meters: dict[str, GroupLetterMeter] = {}
        self.given_up = 2


def scraped(world: ShareLeader, letters: DeadLetters | None = None) -> dict[str, list[tuple[Labels, float]]]:
    families: Any = share_families(world.shares, letters or DeadLetters(), world.time.monotonic_ms())  # type: ignore[arg-type]
    return {
        family.name: [sample for sample in family.samples if sample is not None]
        for family in families
        if family is not None
    }


def told(world: ShareLeader) -> dict[str, float]:
    """The numbers of the only share-partition."""
    found = {}
    for name, samples in scraped(world).items():
        if name.startswith(OWN) and samples:
            ((labels, value),) = samples
            assert labels == LABELS
            found[name.removeprefix(OWN)] = value
    return found


def world_with(records: int, **overrides: str) -> ShareLeader:
    world = ShareLeader(**overrides)
    world.produce("t", 0, *[b"v"] * records)
    return world


def test_records_that_members_hold_are_shown_with_their_age() -> None:
    world = world_with(5)
    world.fetched(epoch=0, partitions=[0])
    world.time.advance(2_500)
    assert told(world) == {
        "held_records": 5,
        "oldest_lock_seconds": 2.5,
        "delivered_records": 5,
        "archived_records": 0,
    }
    world.acknowledged("m", 1, {0: [(0, 1, ACCEPT), (2, 2, REJECT)]})
    world.acknowledged("m", 2, {0: [(3, 3, RENEW)]}, is_renew=True)
    world.time.advance(1_000)
    now = told(world)
    assert (now["held_records"], now["oldest_lock_seconds"], now["archived_records"]) == (2, 3.5, 1)
    world.acknowledged("m", 3, {0: [(4, 4, ACCEPT)]})
    assert told(world)["oldest_lock_seconds"] == 1
    world.acknowledged("m", 4, {0: [(3, 3, ACCEPT)]})
    assert told(world) == {"delivered_records": 5, "archived_records": 1}


def test_records_delivered_again_and_too_often_are_counted() -> None:
    world = world_with(1, share_delivery_count_limit="2")
    world.fetched(epoch=0, partitions=[0])
    world.fetched(epoch=1, partitions={0: [(0, 0, RELEASE)]})
    assert (told(world)["delivered_records"], told(world)["archived_records"]) == (2, 0)
    world.time.advance(30_000)
    assert (told(world)["delivered_records"], told(world)["archived_records"]) == (2, 1)


def test_labels_are_plain_in_our_own_names_and_quoted_in_those_of_kafka() -> None:
    world = world_with(1)
    world.configure("g 1:2", share_auto_offset_reset="earliest")
    world.fetched(epoch=0, partitions=[0], group="g 1:2")
    families = scraped(world)
    ((labels, _),) = families[f"{OWN}held_records"]
    assert labels["group"] == "g 1:2"
    ((labels, _),) = families["kafka_server_sharepartitionmetrics_inflightmessagecount"]
    assert labels["group"] == '"g 1:2"'


def test_dead_letters_are_counted_by_group() -> None:
    letters, meter = DeadLetters(), GroupLetterMeter()
    meter.written, meter.requests = 7, 3
    letters.meters["g 1:2"] = meter
    families = scraped(ShareLeader(), letters)
    quoted = {"group": '"g 1:2"'}
    name = "kafka_server_sharegroupmetrics_deadletterqueue"
    assert families[f"{name}recordcount_count"] == [(quoted, 7)]
    assert families[f"{name}totalproducerequests"] == [(quoted, 3)]
    assert families[f"{name}failedproducerequests"] == [], "Kafka has no series without anything to count"
    assert families["kafkacompat_share_dead_letters_given_up"] == [({}, 2)]


def test_no_more_share_partitions_are_shown_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the ids of groups."""
    monkeypatch.setattr(module, "SHOWN", 2)
    world = ShareLeader()
    world.fetched(epoch=0, partitions=[0, 1, 2], max_wait_ms=0)
    per_partition = {
        name: samples
        for name, samples in scraped(world).items()
        if "share_partition" in name or "sharepartitionmetrics" in name
    }
    assert len(per_partition) == 7
    assert {len(samples) for samples in per_partition.values()} == {0, 2}


def test_records_in_flight_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTED_A_STEP", 3)
    monkeypatch.setattr(module, "RECORDS_A_UNIT", 1)
    world = ShareLeader()
    for partition in range(3):
        world.produce("t", partition, *[b"v"] * 5)
    world.fetched(epoch=0, partitions=[0, 1, 2])
    families: Any = share_families(world.shares, DeadLetters(), 0)  # type: ignore[arg-type]
    names = [family and family.name for family in families]
    between = names[names.index("kafkacompat_share_dead_letters_given_up") + 1 :]
    pauses = between[: between.index("kafka_server_sharepartitionmetrics_acquisitionlocktimeout")]
    assert pauses == [None] * (2 + 3), "one for each partition, besides two"


def test_groups_with_endless_names_are_not_shown() -> None:
    """A hundred series with a name of 32 KiB each are rendered in one step."""
    world = world_with(1)
    for group in ("g" * 300, "g" * 301):
        world.configure(group, share_auto_offset_reset="earliest")
        world.fetched(group, epoch=0, partitions=[0], group=group)
    found = scraped(world)
    shown = {labels["group"] for samples in found.values() for labels, _ in samples if "group" in labels}
    assert shown == {"g" * 300}
