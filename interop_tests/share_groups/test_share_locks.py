"""Locks of records with stock clients (KIP-932, KIP-1222), on Apache Kafka and on kafkacompat.

Clients fetch ahead. So no test takes for granted which of two clients gets a record, and whoever must do nothing by itself
is no client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from interop_tests.harness.raw_kafka import create_topic, topic_id
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import RELEASE, Hand, Leader, initialize
from interop_tests.share_groups.looking import configure, fill, lag, wait_until_members
from interop_tests.share_groups.workers import FRANZ_GO, JAVA, Delivered, Join

pytestmark = pytest.mark.needs_control

LOCK = "share.record.lock.duration.ms"
LOCK_MS, LONG_LOCK_MS = 3000, 60_000
Unique = Callable[[str], str]
Hands = Callable[[str, str], Hand]


def set_lock(raw: Connection, group: str, hand: Hand, duration_ms: int) -> None:
    """Set how long the group's locks last, and wait until leaders know it. The hand fetches where nothing is available."""
    configure(raw, group, LOCK, str(duration_ms))

    def is_known() -> bool:
        assert hand.fetch(wait_ms=0) == []
        return hand.lock_ms == duration_ms

    wait_until(is_known, f"locks last {duration_ms} ms")


@pytest.fixture
def hands(served: str, raw: Connection, group: str) -> Iterator[Hands]:
    """hands(topic, name): a member of the group that does nothing by itself. Clients fetch ahead."""
    made: list[Hand] = []

    def make(topic: str, name: str) -> Hand:
        made.append(Hand(lambda: Leader(served), group, name, topic_id(raw, topic)))
        return made[-1]

    configure(raw, group, "share.delivery.count.limit", "10")
    configure(raw, group, "share.session.timeout.ms", "60000")
    yield make
    for each in made:
        each.hang_up()


@pytest.mark.parametrize("kind", [JAVA, FRANZ_GO])
def test_renewed_records_stay_with_their_worker(
    served: str,
    raw: Connection,
    group: str,
    topic: str,
    join: Join,
    hands: Hands,
    unique: Unique,
    kind: str,
) -> None:
    """A worker renews the only record of its topic, with a longer lock. When a record of another topic that was taken
    later is delivered again, the first lock has ended, but the worker still holds its record."""
    clock, quiet = unique("clock"), unique("quiet")
    for name in (clock, quiet):
        create_topic(served, name)
        initialize(lambda: served, [group], name)
    worker = join(kind, "worker", records="1", acquire="record_limit")
    wait_until_members(raw, group, worker)
    waiting = hands(quiet, "waiting")
    set_lock(raw, group, waiting, LOCK_MS)
    fill(raw, topic, 1)
    fill(raw, clock, 1)

    def has_renewed() -> Delivered | None:
        """The record, or None if it was renewed too late."""
        set_lock(raw, group, waiting, LOCK_MS)
        (record,) = worker.some()
        wait_until(hands(clock, "lost").fetch, "a record is taken later")
        set_lock(raw, group, waiting, LONG_LOCK_MS)
        worker.acknowledge("renew", [record])
        return record if {*worker.commit().outcome.values()} <= {None} else None

    record = wait_until(has_renewed, "the record is renewed in time", interval_s=0)
    other = hands(clock, "other")
    assert wait_until(other.fetch, "the lock of the later record ends")[0][:2] == (0, 0)
    assert hands(topic, "thief").fetch() == []
    if kind == JAVA:
        # This client gives renewed records out once more.
        assert worker.some() == [record]
    worker.acknowledge("accept", [record])
    assert {*worker.commit().outcome.values()} <= {None}
    assert other.acknowledge(0, 0) == 0
    assert lag(raw, group, topic) == 0


def test_late_acknowledgements_are_refused(
    served: str,
    raw: Connection,
    group: str,
    topic: str,
    join: Join,
    hands: Hands,
    unique: Unique,
) -> None:
    """A worker stands still until its lock has ended and another member holds the record."""
    quiet = unique("quiet")
    create_topic(served, quiet)
    initialize(lambda: served, [group], quiet)
    late = join(JAVA, "late", records="1", acquire="record_limit")
    wait_until_members(raw, group, late)
    waiting, other = hands(quiet, "waiting"), hands(topic, "other")
    set_lock(raw, group, waiting, LOCK_MS)
    fill(raw, topic, 1)
    (record,) = late.some()
    late.pause()
    ((first, last, count),) = wait_until(other.fetch, "the lock ends")
    assert (first, last) == (0, 0)
    assert count > record.count
    set_lock(raw, group, waiting, LONG_LOCK_MS)
    # If this lock has ended, the record is free as well: nobody else is awake.
    other.acknowledge(0, 0, RELEASE)
    assert wait_until(other.fetch, "the record is delivered with a long lock") == [(0, 0, count + 1)]
    late.resume()
    late.acknowledge("accept", [record])
    assert late.commit().outcome == {f"{topic}-0": "InvalidRecordStateException"}
    assert lag(raw, group, topic) == 1
    assert other.acknowledge(0, 0) == 0
    assert lag(raw, group, topic) == 0
