"""Share coordinators prune __share_group_state with DeleteRecords, and write states again that have not changed for long, so
that they do not hold the pruning up: Apache Kafka and kafkacompat end with the same states and the same kinds of records.

How often a state is written again depends on time. So the test waits until both coordinators have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from interop_tests.consumer_groups.talk import Body
from interop_tests.harness.raw_kafka import fetch, list_offset
from interop_tests.harness.records import decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.share_groups.administration import batch, written
from interop_tests.share_groups.asking import Place
from interop_tests.share_groups.compare import started_with
from interop_tests.share_groups.sides import STATE_TOPIC, ShareSide
from kafkacompat.wire.apis import share_record_classes
from kafkacompat.wire.codec import decode

pytestmark = pytest.mark.needs_control

UPDATES_PER_SNAPSHOT = 4
SMALL = {
    "share.coordinator.state.topic.prune.interval.ms": "300",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1500",
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
}
GROUP = "upkeep"
BUSY, IDLE, DELETED = ("t1", 0), ("t3", 0), ("t3", 1)
EARLIEST = -2


class Kept(NamedTuple):
    """A record of a share coordinator that is still in the log."""

    offset: int
    kind: str
    key: Any
    value: Any
    """With names in place of ids. None for a tombstone."""
    is_cold: bool
    """A snapshot that was written again, later than it was made."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ShareSide]]:
    with started_with(tmp_path_factory.mktemp("upkeep"), SMALL) as made:
        yield made


def asked(side: ShareSide, what: str, places: dict[Place, Body], version: int = 0) -> Any:
    topics = [
        {"TopicId": topic, "Partitions": [{"Partition": partition} | fields]}
        for (topic, partition), fields in places.items()
    ]
    body = side.resolved({"GroupId": GROUP, "Topics": topics})
    answer = side.names.canonical(side.connection.call(f"{what}ShareGroupState", version, body))
    codes = [each["ErrorCode"] for topic in answer["Results"] for each in topic["Partitions"]]
    assert codes == [0] * len(places), answer
    return answer


def kept(side: ShareSide) -> list[Kept] | None:
    """All records from the start of the log. None if the log was pruned meanwhile."""
    position = list_offset(side.connection, STATE_TOPIC, 0, EARLIEST)[1]
    found: list[Kept] = []
    while True:
        result = fetch(side.connection, STATE_TOPIC, position, MaxWaitMs=0)
        if result["ErrorCode"] != 0:
            return None
        batches = decode_batches(result["Records"])
        if not batches:
            return found
        for each in batches:
            found += [read(side, record) for record in each.records if record.offset >= position]
            position = each.last_offset + 1


def read(side: ShareSide, record: Any) -> Kept:
    key_class, value_class = share_record_classes(int.from_bytes(record.key[:2], "big"))
    kind = key_class.__name__.removesuffix("Key")
    key = side.names.canonical(decode(key_class, 0, record.key, 2))
    if record.value is None:
        return Kept(record.offset, kind, key, None, False)
    value: Any = decode(value_class, 0, record.value, 2)
    is_cold = kind == "ShareSnapshot" and value.create_timestamp != value.write_timestamp
    return Kept(record.offset, kind, key, side.names.canonical(value), is_cold)


def settled(side: ShareSide) -> dict[Place, Kept]:
    """The last record of each state when all states have been written again and the log begins with the oldest of them."""
    last: dict[Place, Kept] = {}

    def has_settled() -> bool:
        found = kept(side)
        if found is None:
            return False
        last.clear()
        for each in found:
            last[each.key["topic_id"].partition("#")[0], each.key["partition"]] = each
        alive = {place: each for place, each in last.items() if each.value is not None}
        return bool(
            alive
            and all(each.is_cold for each in alive.values())
            and found[0].offset == min(each.offset for each in alive.values())
        )

    wait_until(has_settled, f"{side.kind} has nothing left to write or to prune")
    return {place: each for place, each in last.items() if each.value is not None}


def states(last: dict[Place, Kept]) -> dict[Place, Any]:
    """What the records say, but for how often it was written."""
    return {
        place: {name: value for name, value in each.value.items() if name != "snapshot_epoch"}
        for place, each in last.items()
    }


def test_cold_states_are_written_again_and_the_log_is_pruned(sides: list[ShareSide]) -> None:
    before: list[int] = []
    for side in sides:
        asked(side, "Initialize", {place: {"StateEpoch": 1, "StartOffset": 0} for place in (BUSY, IDLE)})
        asked(side, "Initialize", {DELETED: {"StateEpoch": 1, "StartOffset": 0}})
        asked(side, "Write", {IDLE: written(0, batch(0, 4, 0, 1), batch(7, 9, 2, 2), state_epoch=1)}, 1)
        asked(side, "Write", {DELETED: written(0, batch(0, 4, 2, 1), state_epoch=1)}, 1)
        for number in range(2 * UPDATES_PER_SNAPSHOT + 3):
            asked(side, "Write", {BUSY: written(number, batch(number, number + 3, 0, 1), state_epoch=1)}, 1)
        asked(side, "Delete", {DELETED: {}})
    first = [settled(side) for side in sides]
    assert states(first[1]) == states(first[0])
    assert {*first[0]} == {BUSY, IDLE}
    for side, last in zip(sides, first, strict=True):
        # Nothing is written any more while all states are cold.
        assert (kept(side) or [])[-1].offset == max(each.offset for each in last.values()), side.kind
        before.append(min(each.offset for each in last.values()))
        # Updates alone wake no coordinator up: it looks at snapshots only.
        for number in range(30, 31 + UPDATES_PER_SNAPSHOT):
            asked(
                side, "Write", {BUSY: written(number, batch(number + 1, number + 3, 4, 2), state_epoch=1)}, 1
            )
    second = [settled(side) for side in sides]
    assert states(second[1]) == states(second[0])
    for side, start, old, new in zip(sides, before, first, second, strict=True):
        assert min(each.offset for each in new.values()) > start, side.kind
        for place in (BUSY, IDLE):
            # A state that did not change was written again as well: it held the pruning up.
            assert new[place].value["snapshot_epoch"] > old[place].value["snapshot_epoch"], (side.kind, place)
    answers = [asked(side, "Read", {place: {"LeaderEpoch": 0} for place in (BUSY, IDLE)}) for side in sides]
    assert answers[1] == answers[0]
