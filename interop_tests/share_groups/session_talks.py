"""Scripted talks about share sessions: their epochs, their number, and what becomes of records when they end."""

from __future__ import annotations

from interop_tests.consumer_groups.asking import ANY
from interop_tests.share_groups.asking import (
    ACCEPT,
    FINAL,
    RECORDS,
    REJECT,
    RELEASE,
    SOON_MS,
    ShareAsking,
)
from interop_tests.share_groups.scenarios import EARLIEST, own_topic, ready
from interop_tests.share_groups.sides import SESSION_LIMIT_REACHED, SESSION_NOT_FOUND, SESSIONS_MAX


def bad_sessions(talk: ShareAsking) -> None:
    """What is refused before a partition is looked at."""
    topic = ready(talk, 1, 2)
    place = topic, 0
    m = talk.member("m")
    for version in (1, 2):
        for epoch in (1, 5, FINAL, -2, 1 << 30):
            m.fetch(place, epoch=epoch, expect=ANY, version=version)
            m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=epoch, expect=ANY, version=version)
        m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=0, expect=ANY, version=version)
        m.fetch(acks={place: [(0, 0, ACCEPT)]}, epoch=0, expect=ANY, version=version)
        for name in (None, "", " ", "x" * 37):
            m.fetch(place, expect=ANY, version=version, MemberId=name)
            m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=1, expect=ANY, version=version, MemberId=name)
        # A blank is a name. Apache Kafka ends only the last session that a connection has opened.
        m.acknowledge({}, epoch=FINAL, version=version, MemberId=" ")
        m.fetch(place, expect=ANY, version=version, GroupId=None)
        m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=1, expect=ANY, version=version, GroupId=None)
    for more in ({"records": 1}, {"max_bytes": 1}, {"min_bytes": 1}, {"wait": 1}, {}):
        m.fetch(
            place, renew=True, expect=ANY, **{"records": 0, "max_bytes": 0, "min_bytes": 0, "wait": 0} | more
        )
        m.epoch = 0
    m.fetch(place)
    m.fetch(place, epoch=5, expect=ANY)
    m.fetch(place, epoch=2, expect=ANY)
    m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=2, expect=ANY)
    m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=0, expect=ANY)
    m.fetch(acks={place: [(0, 0, ACCEPT)]}, epoch=0, expect=ANY)
    m.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=1)
    m.fetch(place, wait=SOON_MS, epoch=2)
    m.fetch((topic, 9), wait=SOON_MS)
    m.fetch(wait=SOON_MS)
    m.fetch(forget=[("nothing", 0), (topic, 9)], wait=SOON_MS)
    m.fetch(forget=[place], wait=SOON_MS)
    m.fetch(wait=SOON_MS)
    m.acknowledge({("nothing", 0): [(0, 0, ACCEPT)], (topic, 9): [(0, 0, ACCEPT)], place: []})
    m.close(releases=0)
    m.fetch(epoch=1, expect=ANY)
    m.acknowledge({}, epoch=FINAL, expect=ANY)


def a_group_that_is_not_there(talk: ShareAsking) -> None:
    """Partitions without a first state."""
    topic = own_topic(talk)
    talk.produce(topic, 3)
    m = talk.member("m")
    m.fetch((topic, 0), wait=1500)
    m.fetch(wait=SOON_MS)
    m.acknowledge({(topic, 0): [(0, 0, ACCEPT)]})
    m.close()
    m.hang_up()
    talk.configure(*EARLIEST)
    m = talk.member("n")
    m.fetch((topic, 0), wait=1500)
    m.acknowledge({(topic, 0): [(0, 0, ACCEPT)]})
    m.hang_up()


def sessions_of_two(talk: ShareAsking) -> None:
    """Records go to one of two members; what one leaves behind goes to the other."""
    topic = ready(talk, 1, 3, 3)
    place = topic, 0
    a, b = talk.member("a"), talk.member("b")
    a.fetch(place, records=3)
    b.fetch(place, records=3)
    a.fetch(wait=SOON_MS)
    b.acknowledge({place: [(0, 2, ACCEPT)]})
    a.acknowledge({place: [(3, 5, ACCEPT)]})
    a.acknowledge({place: [(0, 0, ACCEPT)]})
    a.close(releases=1)
    b.fetch()
    b.acknowledge({place: [(1, 1, REJECT), (2, 2, RELEASE)]})
    b.hang_up(releases=1)
    a.fetch(place)
    a.acknowledge({place: [(2, 5, ACCEPT)]})
    talk.share_offsets()
    a.acknowledge({}, epoch=FINAL)


def session_again(talk: ShareAsking) -> None:
    """A session that is opened again while records are held, on the same and on another connection."""
    topic = ready(talk, 1, 4)
    place = topic, 0
    a = talk.member("a")
    a.fetch(place)
    a.epoch = 0
    a.fetch(place, wait=SOON_MS)
    a.acknowledge({place: [(0, 0, ACCEPT)]})
    again = talk.member("a")
    again_id = f"{talk.group}/other"
    talk.pair.ask(
        "ShareFetch",
        2,
        again._body(0, {place: []})
        | {"MaxWaitMs": SOON_MS, "MinBytes": 1, "MaxRecords": 10, "BatchSize": 10},
        again_id,
    )
    talk.pair.change("the old connection ends", lambda side: side.hang_up(a.client_id))
    body = again._body(1, {place: [(1, 1, ACCEPT)]})
    talk.pair.ask("ShareAcknowledge", 2, body, again_id)
    before = talk.pair.states_of(talk.group)
    talk.pair.change("the new connection ends", lambda side: side.hang_up(again_id))
    talk.pair.wait_for_states(talk.group, before, 1)
    b = talk.member("b")
    b.fetch(place)
    b.acknowledge({place: [(2, 3, ACCEPT)]}, epoch=FINAL)


def final_acknowledgements(talk: ShareAsking) -> None:
    """The last request of a session acknowledges, and the rest is released."""
    topic = ready(talk, 1, 10)
    place = topic, 0
    for member in "ab":
        m = talk.member(member)
        m.fetch(place)
        first = m.held[place][0][0]
        before = talk.pair.states_of(talk.group)
        if member == "a":
            m.acknowledge({place: [(first, first + 1, ACCEPT)]}, epoch=FINAL)
        else:
            m.fetch(acks={place: [(first, first + 1, ACCEPT)]}, epoch=FINAL, wait=0)
        talk.pair.wait_for_states(talk.group, before, 2)
        talk.share_offsets()


def limit_of_sessions(talk: ShareAsking) -> None:
    """No more sessions are open at once than the broker allows. Who opens one more is told so when its wait is over."""
    topic = ready(talk, 1, 20)
    place = topic, 0
    members = [talk.member(f"m{number}") for number in range(SESSIONS_MAX)]
    for m in members:
        m.fetch(place, records=1, mode=RECORDS)
    late, later = talk.member("late"), talk.member("later")
    for version in (1, 2):
        for wait in (0, SOON_MS):
            late.fetch(place, wait=wait, version=version, expect=SESSION_LIMIT_REACHED)
    late.acknowledge({place: [(0, 0, ACCEPT)]}, epoch=1, expect=SESSION_NOT_FOUND)
    late.fetch(place, epoch=1, wait=0, expect=SESSION_NOT_FOUND)
    # A member's new session takes the place of its old one.
    members[0].epoch = 0
    members[0].fetch(place, wait=SOON_MS)
    members[1].acknowledge({place: [(1, 1, ACCEPT)]}, epoch=FINAL)
    late.fetch(place, records=1, mode=RECORDS)
    later.fetch(place, wait=SOON_MS, expect=SESSION_LIMIT_REACHED)
    members[2].hang_up(releases=1)
    later.fetch(place, records=1, mode=RECORDS)
    # The sessions of other groups count as well.
    other = ShareAsking(talk.pair, f"{talk.group}-other").member("m")
    other.fetch(wait=SOON_MS, expect=SESSION_LIMIT_REACHED)
    members[3].close(releases=1)
    other.fetch(wait=SOON_MS)
    talk.share_offsets()


SESSIONS = (
    bad_sessions,
    a_group_that_is_not_there,
    sessions_of_two,
    session_again,
    final_acknowledgements,
    limit_of_sessions,
)
