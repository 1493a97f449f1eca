"""Which offset of a group's partition counts, for any writer and any outcome of its transaction."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.group.offset_metadata_manager import MOVED_AT_ONCE, NO_PRODUCER_ID
from kafkacompat.group.records import OffsetAndMetadata, OffsetRecord
from kafkacompat.tasks import at_once

FIRST, SECOND = 7, 8


class Log:
    """Records in the order of replay. A committed offset equals the offset of its record."""

    def __init__(self) -> None:
        unused: Any = None
        self.store = GroupMetadataManager(GroupSettings(), unused, unused, unused, unused).offsets
        self.end = 0

    def commit(
        self, producer_id: int = NO_PRODUCER_ID, group: str = "g", topic: str = "t", partition: int = 0
    ) -> int:
        value = OffsetAndMetadata(offset=self.end)
        self._replay(OffsetRecord(group, topic, partition, value), producer_id)
        return self.end - 1

    def take_away(self, topic: str = "t", partition: int = 0) -> None:
        self._replay(OffsetRecord("g", topic, partition, None), NO_PRODUCER_ID)

    def _replay(self, record: OffsetRecord, producer_id: int) -> None:
        self.store.replay(record, self.end, producer_id)
        self.end += 1

    def ended(self, producer_id: int, *, committed: bool = True) -> None:
        at_once(self.store.replay_end_transaction(producer_id, committed))

    @property
    def counts(self) -> int | None:
        found = self.store.get("g", "t", 0)
        return None if found is None else found.offset


def test_a_transactions_offset_counts_from_its_marker_on() -> None:
    log = Log()
    before = log.commit()
    within = log.commit(FIRST)
    assert (log.counts, log.store.is_pending("g", "t", 0)) == (before, True)
    log.ended(FIRST)
    assert (log.counts, log.store.is_pending("g", "t", 0)) == (within, False)
    log.commit(FIRST)
    log.ended(FIRST, committed=False)
    assert log.counts == within


def test_the_offset_written_last_counts_and_not_that_of_the_last_end() -> None:
    log = Log()
    log.commit(FIRST)
    log.commit(SECOND)
    after = log.commit()
    log.ended(SECOND)
    log.ended(FIRST)
    assert log.counts == after


def test_a_tombstone_takes_what_is_pending_as_well() -> None:
    log = Log()
    log.commit()
    log.commit(FIRST)
    log.take_away()
    assert not log.store.is_tracked("g", "t", 0)
    log.ended(FIRST)
    assert log.counts is None


def test_a_tombstone_is_due_for_what_is_only_pending() -> None:
    log = Log()
    log.commit(FIRST)
    assert log.store.is_tracked("g", "t", 0)
    assert not log.store.is_tracked("g", "t", 1)


def test_a_tombstone_takes_one_partitions_offset_and_a_group_without_any_is_gone() -> None:
    log = Log()
    log.take_away()
    places = [("t", 0), ("t", 1), ("u", 0)]
    for topic, partition in places:
        log.commit(topic=topic, partition=partition)
        log.commit(FIRST, topic=topic, partition=partition)
    for at, (topic, partition) in enumerate(places):
        assert log.store.group_ids() == ["g"]
        assert list(log.store.places("g")) == places[at:]
        log.take_away(topic, partition)
        log.take_away(topic, partition)
        assert list(log.store.pending_places("g")) == places[at + 1 :]
    assert (log.store.of_group("g"), log.store.pending_of_topics("g", ["t", "u"])) == ({}, {})
    log.ended(FIRST)
    assert log.store.group_ids() == []


def test_a_small_transaction_ends_at_once_among_many_open_ones() -> None:
    """Operations and readers would wait for a turn of the loop otherwise."""
    log = Log()
    for number in range(3 * MOVED_AT_ONCE):
        log.commit(SECOND, group=f"g{number}")
    log.commit(FIRST)
    assert next(log.store.replay_end_transaction(FIRST, True), None) is None


def test_the_end_of_a_transaction_looks_at_its_own_groups_only() -> None:
    """One request may end hundreds of transactions, and a marker is replayed at each load."""
    looks: list[int] = []

    class Producers(set[int]):
        def __contains__(self, producer_id: object) -> bool:
            looks.append(1)
            return super().__contains__(producer_id)

    log = Log()
    for number in range(50):
        log.commit(SECOND, group=f"g{number}")
    log.commit(FIRST, group="g1")
    log.commit(FIRST, group="g")
    log.store._open_transactions = {
        group: Producers(ids) for group, ids in log.store._open_transactions.items()
    }
    log.ended(FIRST)
    assert len(looks) <= 2
    assert [log.store.has_open_transaction(group) for group in ("g", "g1", "g2")] == [False, True, True]
    log.ended(SECOND)
    assert not any(log.store.has_open_transaction(f"g{number}") for number in range(50))


def test_a_group_is_in_no_transaction_once_all_that_touched_it_have_ended() -> None:
    log = Log()
    log.commit(FIRST)
    log.commit(SECOND)
    log.commit(SECOND, group="other")
    assert log.store.pending_of_topics("g", ["t", "u"]) == {"t": {0}}
    assert log.store.group_ids() == ["g", "other"]
    log.ended(SECOND, committed=False)
    assert (log.store.has_open_transaction("g"), log.store.has_open_transaction("other")) == (True, False)
    log.ended(FIRST, committed=False)
    assert not log.store.has_open_transaction("g")
    assert (log.store.group_ids(), log.store.pending_of_topics("g", ["t", "u"]), log.store.count) == (
        [],
        {},
        0,
    )


@pytest.mark.parametrize("seed", range(20))
def test_offsets_are_counted_as_they_come_and_go(seed: int) -> None:
    chance = random.Random(seed)
    log = Log()
    for _ in range(300):
        topic, partition = chance.choice("tu"), chance.randrange(3)
        act = chance.randrange(4)
        if act == 0:
            log.take_away(topic, partition)
        elif act == 1:
            log.ended(chance.choice((FIRST, SECOND)), committed=chance.random() < 0.7)
        else:
            producer_id = chance.choice((NO_PRODUCER_ID, FIRST, SECOND))
            log.commit(producer_id, chance.choice("gh"), topic, partition)
        assert log.store.count == sum(1 for group in "gh" for _ in log.store.places(group))
    for _ in log.store.take_apart():
        pass
    assert log.store.count == 0
