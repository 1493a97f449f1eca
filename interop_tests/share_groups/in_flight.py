"""Scripted talks about what becomes of records in flight, and about the offsets where groups start."""

from __future__ import annotations

import time

from interop_tests.consumer_groups.asking import ANY
from interop_tests.harness.records import NOW_MS
from interop_tests.share_groups.asking import (
    ACCEPT,
    FINAL,
    RECORDS,
    REJECT,
    RELEASE,
    RENEW,
    SOON_MS,
    ShareAsking,
    ShareMember,
)
from interop_tests.share_groups.scenarios import LOCK, own_topic, ready
from interop_tests.share_groups.sides import LONG_LOCK_MS, SHORT_LOCK_MS

RESET = "share.auto.offset.reset"
LIMIT = "share.delivery.count.limit"
LOCKS = "share.partition.max.record.locks"
ISOLATION = "share.isolation.level"
FIRST_FETCH_MS = 1500
"""Longer than a partition takes to read its state and to find where it starts, though nothing is read."""


def released_by_time(talk: ShareAsking, topic: str, m: ShareMember, *offsets: int) -> None:
    """A member fetches these records with short locks, which end."""
    talk.configure(LOCK, str(SHORT_LOCK_MS))
    m.fetch((topic, 0))
    talk.pair.wait_until_released(talk.group, (topic, 0), {*offsets})
    talk.configure(LOCK, str(LONG_LOCK_MS))


# time


def locks_end(talk: ShareAsking) -> None:
    """Records whose locks have ended go to another member, and their former owner cannot acknowledge them."""
    topic = ready(talk, 1, 5)
    place = topic, 0
    a, b = talk.member("a"), talk.member("b")
    released_by_time(talk, topic, a, 0, 1, 2, 3, 4)
    a.acknowledge({place: [(0, 0, ACCEPT)]})
    talk.share_offsets()
    b.fetch(place)
    a.acknowledge({place: [(0, 0, ACCEPT)]})
    b.acknowledge({place: [(0, 1, ACCEPT), (2, 2, RELEASE)]})
    released_by_time(talk, topic, a, 2)
    b.acknowledge({place: [(3, 4, REJECT)]})
    a.fetch()
    a.acknowledge({place: [(2, 2, ACCEPT)]})
    talk.share_offsets()


def lock_of_a_part(talk: ShareAsking) -> None:
    """Part of a batch is acknowledged when its lock ends."""
    topic = ready(talk, 1, 6)
    place = topic, 0
    m = talk.member("m")
    talk.configure(LOCK, "3000")
    m.fetch(place)
    m.acknowledge({place: [(1, 1, ACCEPT), (3, 3, RELEASE), (5, 5, REJECT)]})
    talk.pair.wait_until_released(talk.group, place, {0, 2, 4})
    talk.configure(LOCK, str(LONG_LOCK_MS))
    talk.share_offsets()
    m.fetch()
    m.close(releases=1)


def locks_are_renewed(talk: ShareAsking) -> None:
    """Records that are renewed outlast their first lock, and the others do not."""
    topic = ready(talk, 1, 4)
    place = topic, 0
    m = talk.member("m")
    talk.configure(LOCK, "3000")
    m.fetch(place)
    talk.configure(LOCK, str(LONG_LOCK_MS))
    m.acknowledge({place: [(0, 1, RENEW)]}, renew=True)
    talk.pair.wait_until_released(talk.group, place, {2, 3})
    m.acknowledge({place: [(0, 1, ACCEPT)]})
    m.acknowledge({place: [(2, 3, ACCEPT)]})
    m.fetch()
    m.acknowledge({place: [(2, 3, ACCEPT)]})
    talk.share_offsets()


# counts


def delivery_limit(talk: ShareAsking) -> None:
    """Records are delivered so often, and then archived."""
    topic = ready(talk, 1, 4, 1)
    place = topic, 0
    talk.configure(LIMIT, "2")
    m = talk.member("m")
    m.fetch(place)
    m.acknowledge({place: [(0, 3, RELEASE), (4, 4, ACCEPT)]})
    m.fetch()
    m.acknowledge({place: [(1, 1, ACCEPT), (2, 2, RELEASE)]})
    talk.share_offsets()
    m.fetch(wait=SOON_MS)
    m.close(releases=1)
    talk.share_offsets()
    m.fetch(place, wait=SOON_MS)


def fewer_of_bad_records(talk: ShareAsking) -> None:
    """Records that were delivered often are delivered in smaller numbers, at last alone."""
    topic = ready(talk, 1, 10)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place)
    for _ in range(24):
        held = m.held.get(place, [])
        m.held = {}
        if not held:
            break
        m.acknowledge({place: [(first, last, RELEASE) for first, last in held]})
        m.fetch(wait=SOON_MS)
    talk.share_offsets()


def fewer_with_other_limits(talk: ShareAsking) -> None:
    for limit in (2, 3, 10):
        group = ShareAsking(talk.pair, f"{talk.group}-{limit}")
        group.configure(LIMIT, str(limit))
        topic = ready(group, 1, 7, 2)
        place = topic, 0
        m = group.member("m")
        m.fetch(place)
        for _ in range(3 * limit):
            held, m.held = m.held.get(place, []), {}
            if not held:
                break
            m.acknowledge({place: [(first, last, RELEASE) for first, last in held]})
            m.fetch(wait=SOON_MS, mode=RECORDS)
        group.share_offsets()


def limit_of_locks(talk: ShareAsking) -> None:
    """No more records are in flight than the group allows."""
    topic = ready(talk, 1, 60, 60, 60)
    place = topic, 0
    talk.configure(LOCKS, "100")
    m = talk.member("m")
    m.fetch(place)
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(5, 9, ACCEPT)]})
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(0, 4, ACCEPT)]})
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(10, 59, ACCEPT)]})
    m.fetch()
    m.fetch(wait=SOON_MS)
    talk.share_offsets()
    m.close(releases=1)


# transactions


def uncommitted_is_read(talk: ShareAsking) -> None:
    """The default reads the records of transactions that are open or aborted, too."""
    topic = ready(talk, 1, 2)
    place = topic, 0
    talk.transaction(topic, 2, False)
    talk.transaction(topic, 2, True)
    talk.transaction(topic, 2, None)
    m = talk.member("m")
    m.fetch(place)
    m.acknowledge({place: [(0, 1, ACCEPT)]})
    m.acknowledge({place: [(2, 3, ACCEPT), (5, 6, ACCEPT), (8, 9, ACCEPT)]})
    talk.share_offsets()
    m.fetch(wait=SOON_MS)
    m.close()


def committed_is_read(talk: ShareAsking) -> None:
    topic = ready(talk, 1, 2)
    place = topic, 0
    talk.configure(ISOLATION, "read_committed")
    talk.transaction(topic, 2, False)
    talk.produce(topic, 1)
    talk.transaction(topic, 3, True)
    talk.transaction(topic, 2, None)
    talk.produce(topic, 3)
    m = talk.member("m")
    m.fetch(place)
    talk.share_offsets()
    m.acknowledge({place: [(0, 1, ACCEPT)]})
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(2, 3, ACCEPT)]})
    m.acknowledge({place: [(5, 5, RELEASE)]})
    m.fetch(wait=SOON_MS)
    talk.pair.change("abort", lambda side: side.end_transaction(topic, 0, False, 14))
    m.fetch()
    talk.share_offsets()
    m.acknowledge({place: [(5, 8, ACCEPT)]})
    m.fetch(wait=SOON_MS)
    talk.transaction(topic, 2, False)
    m.fetch(wait=SOON_MS)
    m.close(releases=1)
    talk.share_offsets()
    m.fetch(place, wait=SOON_MS)
    m.close()


def isolation_changes(talk: ShareAsking) -> None:
    topic = ready(talk, 1, 1)
    place = topic, 0
    talk.transaction(topic, 2, False)
    talk.transaction(topic, 2, None)
    m = talk.member("m")
    talk.configure(ISOLATION, "read_committed")
    m.fetch(place)
    talk.configure(ISOLATION, "read_uncommitted")
    m.fetch()
    m.acknowledge({place: [(0, 0, RELEASE)]})
    m.close(releases=1)
    talk.configure(ISOLATION, "read_committed")
    m.fetch(place, wait=SOON_MS)
    m.close(releases=1)


# where a group starts


def starts(talk: ShareAsking) -> None:
    """latest, earliest and a duration, each in a group of its own, with records of different ages."""
    topic = own_topic(talk)
    now = time.time_ns() // 1_000_000
    for at_ms in (NOW_MS, now - 7_200_000, now - 60_000):
        talk.produce(topic, 2, at_ms=at_ms)
    for number, value in enumerate(
        ("latest", "earliest", "by_duration:PT1H", "by_duration:P1D", "by_duration:PT1S", None)
    ):
        group = ShareAsking(talk.pair, f"{talk.group}-{number}")
        if value:
            group.configure(RESET, value)
        group.subscribe(topic)
        group.share_offsets()
        m = group.member("m")
        m.fetch((topic, 0), wait=FIRST_FETCH_MS)
        m.close(releases=int(bool(m.held)))
        group.share_offsets()
    talk.produce(topic, 1, at_ms=now)
    for number in (0, 4, 5):
        group = ShareAsking(talk.pair, f"{talk.group}-{number}")
        m = group.member("n")
        m.fetch((topic, 0), wait=FIRST_FETCH_MS)
        if m.held:
            m.acknowledge({(topic, 0): [(6, 6, ACCEPT)]})
        group.share_offsets()
        m.close()


def latest_goes_on(talk: ShareAsking) -> None:
    """A group that starts at the end gets what is written later."""
    topic = own_topic(talk)
    talk.produce(topic, 5)
    talk.subscribe(topic)
    m = talk.member("m")
    m.fetch((topic, 0), wait=FIRST_FETCH_MS)
    talk.produce(topic, 3)
    m.fetch()
    m.acknowledge({(topic, 0): [(5, 6, ACCEPT)]})
    talk.share_offsets()
    m.acknowledge({(topic, 0): [(7, 7, ACCEPT)]}, epoch=FINAL)
    talk.share_offsets()


def starts_where_nothing_is_young(talk: ShareAsking) -> None:
    """Nothing was written in the duration where a group should start, until a transaction writes."""
    topic = own_topic(talk)
    place = topic, 0
    talk.configure(RESET, "by_duration:PT1H")
    talk.produce(topic, 2)
    talk.subscribe(topic)
    m = talk.member("m")
    m.fetch(place)
    m.fetch()
    talk.transaction(topic, 2, None)
    m.fetch()
    talk.pair.change("abort", lambda side: side.end_transaction(topic, 0, False, 4))
    talk.share_offsets()
    m.fetch()
    talk.produce(topic, 1)
    m.fetch()
    talk.share_offsets()
    m.close(releases=1)
    talk.share_offsets()


def deleted_records(talk: ShareAsking) -> None:
    """The log's start moves past records that are available, held and acknowledged."""
    topic = ready(talk, 1, 4, 4, 4)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place, records=4)
    m.acknowledge({place: [(1, 1, ACCEPT), (2, 2, RELEASE)]})
    talk.delete_records(topic, 3)
    talk.share_offsets()
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(0, 0, ACCEPT)]})
    m.acknowledge({place: [(3, 3, RELEASE)]})
    talk.share_offsets()
    m.fetch(wait=SOON_MS)
    talk.delete_records(topic, 10)
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(4, 11, ACCEPT)]})
    talk.share_offsets()
    m.acknowledge({place: [(10, 11, ACCEPT)]})
    talk.share_offsets()
    talk.delete_records(topic, -1)
    m.fetch(wait=SOON_MS)
    talk.produce(topic, 2)
    m.fetch()
    m.acknowledge({place: [(12, 13, ACCEPT)]})
    talk.share_offsets()


def deleted_before_the_start(talk: ShareAsking) -> None:
    """The log starts behind the offset where the group starts."""
    topic = ready(talk, 1, 4, 4)
    talk.alter_share_offsets({topic: {0: 1}})
    talk.delete_records(topic, 3)
    talk.share_offsets()
    m = talk.member("m")
    # The first one finds that the log does not have the offset.
    m.fetch((topic, 0), wait=FIRST_FETCH_MS)
    m.fetch()
    m.acknowledge({(topic, 0): [(3, 4, ACCEPT)]})
    talk.share_offsets()
    m.close(releases=1)


def a_topic_goes(talk: ShareAsking) -> None:
    """A topic is deleted and created again under a session."""
    topic = ready(talk, 1, 3)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place)
    talk.pair.change("delete", lambda side: side.delete_topic(topic))
    m.acknowledge({(f"{topic}#1", 0): [(0, 0, ACCEPT)]}, expect=ANY)
    talk.share_offsets(None, ANY)
    talk.pair.change("create", lambda side: side.create_topic(topic, 1))
    talk.produce(topic, 2)
    talk.subscribe(topic)
    again = talk.member("again")
    again.fetch(place)
    again.acknowledge({place: [(0, 1, ACCEPT)]})
    talk.share_offsets()


IN_FLIGHT = (
    locks_end,
    lock_of_a_part,
    locks_are_renewed,
    delivery_limit,
    fewer_of_bad_records,
    fewer_with_other_limits,
    limit_of_locks,
    uncommitted_is_read,
    committed_is_read,
    isolation_changes,
    starts,
    latest_goes_on,
    starts_where_nothing_is_young,
    deleted_records,
    deleted_before_the_start,
    a_topic_goes,
)
