"""Scripted talks with one share group each: members, acquisition, and acknowledgement.

Topics: t1 with one partition, t3 with 3, both without records at the start of a talk that makes its own.
"""

from __future__ import annotations

from interop_tests.consumer_groups.asking import ANY
from interop_tests.share_groups.asking import (
    ACCEPT,
    BATCHES,
    COMES_MS,
    GAP,
    RECORDS,
    REJECT,
    RELEASE,
    RENEW,
    SOON_MS,
    Batch,
    ShareAsking,
)

EARLIEST = ("share.auto.offset.reset", "earliest")
LOCK = "share.record.lock.duration.ms"


def own_topic(talk: ShareAsking, partitions: int = 1, name: str = "") -> str:
    """A topic of this talk, whose records the group reads from the first one."""
    topic = f"{talk.group}{name}"
    talk.pair.change(f"create {topic}", lambda side: side.create_topic(topic, partitions))
    return topic


def ready(talk: ShareAsking, partitions: int = 1, *batches: int) -> str:
    """A topic of this talk with these batches in each partition, which the group reads from the start."""
    topic = own_topic(talk, partitions)
    talk.configure(*EARLIEST)
    talk.subscribe(topic)
    for partition in range(partitions):
        for count in batches:
            talk.produce(topic, count, partition)
    return topic


# members


def bad_heartbeats(talk: ShareAsking) -> None:
    nowhere = ShareAsking(talk.pair, "")
    blank = ShareAsking(talk.pair, " ")
    for group in (nowhere, blank):
        for epoch in (0, 5, -1):
            group.share_beat("m", epoch, ANY, ["t3"])
    for epoch in (0, 5, -1, -2, -3, -(1 << 31)):
        for names in (None, [], ["t3"]):
            for member in ("", " ", "x" * 37):
                talk.share_beat(member, epoch, ANY, names)
    for epoch in (5, -1, -2, -3, -(1 << 31)):
        talk.share_beat("m", epoch, ANY)
        talk.share_beat("m", epoch, ANY, ["t3"])
    talk.share_beat("m", 0, ANY)
    talk.share_beat("m", 0, ANY, [])
    talk.share_beat("m", 0, ANY, ["t3"], rack="")
    talk.share_beat("m", 0, ANY, ["t3"], rack=" ")
    talk.share_describe(ANY)
    talk.describe(ANY)
    talk.describe_classic(ANY)
    nowhere.share_describe(ANY)
    talk.share_offsets(None, ANY)
    talk.delete(ANY)


def one_member(talk: ShareAsking) -> None:
    epoch = talk.share_beat("m", 0, names=["t3"], rack="r1")["MemberEpoch"]
    talk.share_describe()
    talk.describe(ANY)
    talk.describe_classic(ANY)
    epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    talk.share_beat("m", epoch)
    talk.share_describe(authorized=True)
    talk.share_beat("m", epoch - 1, ANY)
    talk.share_beat("m", epoch - 2, ANY)
    talk.share_beat("m", epoch + 1, ANY)
    talk.share_beat("m", 1 << 30, ANY)
    talk.share_beat("other", epoch, ANY)
    talk.share_beat("other", -1, ANY)
    talk.share_beat("m", -2, ANY)
    talk.share_beat("m", epoch, rack="r2")
    talk.share_beat("m", epoch, client_id="another")
    epoch = talk.share_beat("m", epoch, names=["t3", "t1"])["MemberEpoch"]
    epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    epoch = talk.share_beat("m", epoch, names=["t1", "t3"])["MemberEpoch"]
    epoch = talk.share_beat("m", epoch, names=["t1", "nothing"])["MemberEpoch"]
    talk.share_describe()
    epoch = talk.share_beat("m", epoch, ANY, names=[])["MemberEpoch"]
    talk.share_describe()
    talk.share_beat("m", 0, names=["t3"])
    talk.share_beat("m", 0, names=["t3"])
    talk.share_describe()
    talk.list()
    talk.list(["Stable"], ["Share"])
    talk.list(["stable"], ["share", "consumer"])
    talk.list(["Empty"], ["share"])
    talk.list([], ["classic"])
    talk.list([], ["nonsense"])
    talk.list(["Stable"], version=4)
    talk.list(version=3)
    talk.delete(ANY)
    talk.share_beat("m", -1)
    talk.share_beat("m", -1, ANY)
    talk.share_describe()
    talk.list()
    talk.share_offsets()
    talk.delete()
    talk.share_describe(ANY)
    talk.share_offsets(None, ANY)


def several_members(talk: ShareAsking) -> None:
    """Members share a partition, and each change moves all to one epoch.

    Who gets which of several partitions is decided by the id of their topic.
    """
    epochs = {}
    for member in "abcd":
        epochs[member] = talk.share_beat(member, 0, names=["t1"])["MemberEpoch"]
        talk.share_describe()
    talk.share_beat("e", 0, ANY, names=["t1"])
    for _ in range(2):
        for member in "abcd":
            epochs[member] = talk.share_beat(member, epochs[member])["MemberEpoch"]
    talk.share_describe()
    talk.share_beat("a", epochs["a"], ANY, names=["t3"])
    talk.share_describe()
    for member in "abcd":
        talk.share_beat(member, epochs[member] - 1, ANY)
        talk.share_beat(member, epochs[member], ANY)
    talk.share_describe()
    for member in "dcba":
        talk.share_beat(member, -1)
        talk.share_describe()


def other_kinds(talk: ShareAsking) -> None:
    """A group id that is used by groups of other kinds, and the other way round."""
    shared = ShareAsking(talk.pair, talk.group + "-share")
    consumer = ShareAsking(talk.pair, talk.group + "-consumer")
    classic = ShareAsking(talk.pair, talk.group + "-classic")
    shared.share_beat("m", 0, names=["t3"])
    consumer.beat("c", 0, names=["t3"], timeout=1000, owned={})
    classic.commit("", -1, {"t3": {0: 1}})
    for group in (consumer, classic):
        group.share_beat("m", 0, ANY, names=["t3"])
        group.share_beat("m", 1, ANY)
        group.share_beat("m", -1, ANY)
        group.share_describe(ANY)
        group.share_offsets(None, ANY)
        group.share_offsets({"t3": [0]}, ANY)
        group.alter_share_offsets({"t3": {0: 1}}, ANY)
        group.delete_share_offsets("t3", expect=ANY)
    shared.beat("c", 0, ANY, names=["t3"], timeout=1000, owned={})
    shared.beat("c", 1, ANY)
    shared.commit("", -1, {"t3": {0: 1}}, ANY)
    shared.fetch(None, -1, {"t3": [0]}, ANY)
    shared.delete_offsets("t3", [0], ANY)
    shared.classic_join("", ["t3"], ANY)
    shared.describe(ANY)
    shared.describe_classic(ANY)
    shared.describe_classic(ANY, 5)
    consumer.beat("c", -1)
    for group in (consumer, classic):
        group.share_beat("m", 0, ANY, names=["t3"])
        group.delete(ANY)
        group.share_beat("m", 0, ANY, names=["t3"])
        group.share_beat("m", -1, ANY)
    shared.share_beat("m", -1, ANY)
    shared.beat("c", 0, ANY, names=["t3"], timeout=1000, owned={})
    shared.delete(ANY)
    shared.beat("c", -1, ANY)


def topics_change(talk: ShareAsking) -> None:
    """Topics that appear, grow and disappear under a member."""
    topic = f"{talk.group}-new"
    epoch = talk.share_beat("m", 0, names=[topic, "t3"])["MemberEpoch"]
    talk.pair.change("create", lambda side: side.create_topic(topic, 2))
    for _ in range(3):
        epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    talk.share_offsets()
    talk.pair.change("grow", lambda side: side.grow_topic(topic, 4))
    for _ in range(3):
        epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    talk.share_describe()
    talk.share_offsets()
    talk.pair.change("delete", lambda side: side.delete_topic(topic))
    talk.share_describe()
    talk.share_offsets()
    for _ in range(3):
        epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    talk.share_offsets()
    talk.pair.change("create again", lambda side: side.create_topic(topic, 1))
    for _ in range(3):
        epoch = talk.share_beat("m", epoch)["MemberEpoch"]
    talk.share_offsets()
    talk.share_beat("m", -1)
    talk.delete()


# acquiring


def by_batches(talk: ShareAsking) -> None:
    """Whole batches are acquired, more than were asked for if need be."""
    topic = ready(talk, 1, 5, 1, 7, 3)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place, records=1)
    m.fetch(records=6)
    m.fetch(records=100)
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(0, 15, RELEASE)]})
    m.fetch(records=2)
    m.acknowledge({place: [(0, 4, RELEASE)]})
    m.fetch(batch=2)
    m.close(releases=1)


def by_record_limit(talk: ShareAsking) -> None:
    """No more records are acquired than were asked for."""
    topic = ready(talk, 1, 5, 1, 7, 3)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place, records=1, mode=RECORDS)
    m.fetch(records=3, mode=RECORDS)
    m.fetch(records=4, batch=2, mode=RECORDS)
    m.fetch(records=1, mode=BATCHES)
    m.fetch(records=100, mode=RECORDS)
    m.acknowledge({place: [(0, 3, RELEASE), (6, 7, RELEASE)]})
    m.fetch(records=3, mode=RECORDS)
    m.fetch(records=3, mode=RECORDS)
    m.fetch(records=3, mode=RECORDS, wait=SOON_MS)
    m.fetch(records=3, mode=2, wait=SOON_MS, expect=ANY)
    m.fetch(records=0, mode=RECORDS, wait=SOON_MS, expect=ANY)
    m.fetch(records=-1, mode=RECORDS, wait=SOON_MS, expect=ANY)
    m.fetch(records=-1, wait=SOON_MS, expect=ANY)
    m.fetch(batch=0, wait=SOON_MS, expect=ANY)
    m.close(releases=1)


def sizes_of_batches(talk: ShareAsking) -> None:
    """Acquired batches are cut to the size that was asked for, at the borders of the record batches."""
    topic = ready(talk, 1, 3, 3, 3, 10, 1)
    place = topic, 0
    for size in (1, 2, 4, 6, 9, 100):
        m = talk.member(f"m{size}")
        m.fetch(place, batch=size)
        last = m.held[place][-1][1]
        m.acknowledge({place: [(0, last, RELEASE)]})
        m.close()


def by_bytes(talk: ShareAsking) -> None:
    topic = ready(talk, 1, 5, 5, 5)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place, max_bytes=1)
    m.fetch(max_bytes=0, wait=SOON_MS)
    m.fetch(min_bytes=10_000, wait=SOON_MS)
    m.fetch(min_bytes=10_000, max_bytes=50, wait=SOON_MS)
    m.close(releases=1)


def several_partitions(talk: ShareAsking) -> None:
    """Partitions that come to a session and go. Under a limit of records, topic ids decide which of them come first."""
    topic = ready(talk, 3, 4, 4)
    places = [(topic, number) for number in range(3)]
    m = talk.member("m")
    m.fetch(places[0])
    m.fetch(places[1])
    m.fetch(places[2])
    m.fetch(wait=SOON_MS)
    m.acknowledge({place: [(0, 7, [ACCEPT, RELEASE] * 4)] for place in places})
    m.fetch(forget=places[:2], records=3, mode=RECORDS)
    m.fetch(forget=[places[2]], records=3, mode=RECORDS, wait=SOON_MS)
    m.fetch(*places, wait=COMES_MS)
    talk.share_offsets({topic: [0, 1, 2]})
    m.close(releases=3)
    talk.share_offsets({topic: [0, 1, 2]})


# acknowledging


def kinds_of_acknowledgement(talk: ShareAsking) -> None:
    topic = ready(talk, 1, 12)
    place = topic, 0
    m = talk.member("m")
    m.fetch(place)
    for first, kind in enumerate((ACCEPT, RELEASE, REJECT, GAP)):
        m.acknowledge({place: [(first, first, kind)]})
        m.acknowledge({place: [(first, first, kind)]})
        talk.share_offsets()
    m.acknowledge({place: [(4, 7, [ACCEPT, RELEASE, REJECT, GAP])]})
    m.acknowledge({place: [(8, 8, ACCEPT), (9, 11, RELEASE)]}, version=1)
    m.fetch()
    m.fetch(acks={place: [(1, 1, ACCEPT)]}, wait=SOON_MS)
    m.fetch(acks={place: [(5, 5, REJECT), (9, 9, ACCEPT)]}, wait=SOON_MS, version=1)
    talk.share_offsets()
    m.close(releases=1)
    m.fetch(place)
    m.close(releases=1)


def bad_acknowledgements(talk: ShareAsking) -> None:
    """What is wrong with the batches, and with the records that they name."""
    topic = ready(talk, 1, 5, 5)
    place = topic, 0
    m, other = talk.member("m"), talk.member("other")
    m.fetch(place)
    other.fetch(place, wait=SOON_MS)
    bad = (
        [(1, 0, ACCEPT)],
        [(0, 0, [])],
        [(0, 1, [ACCEPT] * 3)],
        [(0, 2, [ACCEPT] * 2)],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(0, 0, RENEW)],
        [(0, 1, [ACCEPT, RENEW])],
        [(0, 1, [ACCEPT, 9])],
        [(2, 3, ACCEPT), (0, 1, ACCEPT)],
        [(0, 3, ACCEPT), (2, 4, ACCEPT)],
        [(0, 3, ACCEPT), (3, 4, ACCEPT)],
        [(0, 20, ACCEPT)],
        [(9, 10, ACCEPT)],
        [(50, 60, ACCEPT)],
        [(-5, -1, ACCEPT)],
        [(-5, 2, ACCEPT)],
        [(0, 0, ACCEPT), (30, 30, ACCEPT)],
    )
    for batches in bad:
        m.acknowledge({place: batches})
        m.acknowledge({place: batches}, version=1)
        m.acknowledge({place: batches}, renew=True)
        m.fetch(acks={place: batches}, wait=SOON_MS)
        other.acknowledge({place: batches})
    talk.share_offsets()
    m.close(releases=1)


def acknowledged_together(talk: ShareAsking) -> None:
    """If one of the batches of a request cannot be acknowledged, none is."""
    topic = ready(talk, 2, 6)
    place, next_place = (topic, 0), (topic, 1)
    m = talk.member("m")
    m.fetch(place)
    m.fetch(next_place)
    m.acknowledge({place: [(2, 2, ACCEPT)]})
    m.acknowledge({place: [(0, 0, ACCEPT), (2, 2, ACCEPT)], next_place: [(0, 0, ACCEPT)]})
    m.acknowledge({place: [(0, 3, ACCEPT)]})
    m.acknowledge({place: [(0, 1, REJECT), (3, 5, [ACCEPT, RELEASE, GAP])]})
    talk.share_offsets()
    m.fetch(wait=SOON_MS, acks={next_place: [(0, 0, ACCEPT)]})
    m.fetch(wait=SOON_MS, acks={next_place: [(1, 5, ACCEPT)], place: [(4, 4, ACCEPT)]})
    talk.share_offsets()
    m.close()


def ones(first: int, *types: int) -> list[Batch]:
    """A batch for each offset."""
    return [(offset, offset, kind) for offset, kind in enumerate(types, first)]


def one_by_one(talk: ShareAsking) -> None:
    """Batches of one offset each: in a row, with gaps, and with some that cannot be acknowledged."""
    topic = ready(talk, 1, 8, 8, 8)
    place = topic, 0
    m, other = talk.member("m"), talk.member("other")
    m.fetch(place, records=5)
    other.fetch(place, records=5, wait=SOON_MS)
    m.fetch(records=5)
    bad = (
        ones(6, *[ACCEPT] * 4),
        ones(14, *[ACCEPT] * 4),
        ones(22, *[ACCEPT] * 4),
        ones(-2, *[ACCEPT] * 4),
        ones(40, *[ACCEPT] * 4),
        [*ones(4, *[ACCEPT] * 4), *ones(0, *[ACCEPT] * 4)],
        [*ones(0, *[ACCEPT] * 4), *ones(3, *[ACCEPT] * 4)],
        [*ones(0, *[ACCEPT] * 4), *ones(24, *[ACCEPT] * 4)],
        ones(0, ACCEPT, ACCEPT, RENEW, ACCEPT),
        ones(0, ACCEPT, ACCEPT, 5, ACCEPT),
        ones(0, ACCEPT, ACCEPT, -1, ACCEPT),
    )
    for batches in bad:
        m.acknowledge({place: batches})
        other.acknowledge({place: batches}, version=1)
        m.fetch(acks={place: batches}, wait=SOON_MS)
    m.acknowledge({place: ones(0, ACCEPT, ACCEPT, REJECT, RELEASE, GAP, ACCEPT)})
    m.acknowledge({place: ones(2, *[ACCEPT] * 5)})
    other.acknowledge({place: [batch for offset in (8, 10, 12, 14) for batch in ones(offset, ACCEPT)]})
    other.acknowledge({place: ones(12, *[ACCEPT] * 4)})
    other.acknowledge({place: [batch for offset in (9, 11, 13, 15) for batch in ones(offset, RELEASE)]})
    m.acknowledge({place: ones(16, RENEW, ACCEPT, RENEW, RELEASE, ACCEPT)}, renew=True)
    m.acknowledge({place: ones(16, *[ACCEPT] * 4)})
    talk.share_offsets()
    m.fetch(acks={place: [*ones(6, ACCEPT, ACCEPT), *ones(21, ACCEPT, GAP, REJECT)]})
    m.fetch(wait=SOON_MS)
    talk.share_offsets()
    m.acknowledge({place: [*ones(3, ACCEPT), *ones(9, RELEASE), *ones(11, ACCEPT), *ones(13, ACCEPT)]})
    other.fetch(wait=SOON_MS)
    other.acknowledge({place: ones(9, ACCEPT)})
    talk.share_offsets()
    m.close(releases=1)
    other.close()


def renewing(talk: ShareAsking) -> None:
    topic = ready(talk, 1, 5)
    place = topic, 0
    nothing = {"records": 0, "max_bytes": 0, "min_bytes": 0, "wait": 0}
    m = talk.member("m")
    m.fetch(place)
    m.acknowledge({place: [(0, 4, RENEW)]}, renew=True)
    m.acknowledge({place: [(0, 4, [RENEW, ACCEPT, RELEASE, REJECT, RENEW])]}, renew=True)
    m.acknowledge({place: [(0, 1, RENEW)]}, renew=True)
    m.acknowledge({place: [(0, 0, RENEW)]}, renew=False)
    m.fetch(acks={place: [(0, 0, RENEW)]}, renew=True, **nothing)
    m.fetch(acks={place: [(4, 4, RENEW), (0, 0, RENEW)]}, renew=True, **nothing)
    m.fetch(acks={place: [(0, 0, ACCEPT)]}, renew=True, **nothing)
    m.fetch(renew=True, **nothing)
    talk.configure("share.renew.acknowledge.enable", "false")
    m.acknowledge({place: [(4, 4, RENEW)]}, renew=True)
    m.fetch(acks={place: [(4, 4, RENEW)]}, renew=True, **nothing)
    m.acknowledge({place: [(4, 4, ACCEPT)]}, renew=True)
    m.close()


SCENARIOS = (
    bad_heartbeats,
    one_member,
    several_members,
    other_kinds,
    topics_change,
    by_batches,
    by_record_limit,
    sizes_of_batches,
    by_bytes,
    several_partitions,
    kinds_of_acknowledgement,
    bad_acknowledgements,
    acknowledged_together,
    one_by_one,
    renewing,
)
