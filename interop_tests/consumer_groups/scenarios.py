"""Scripted talks with one group each: every check of ConsumerGroupHeartbeat, reconciliation, and the lists of groups.

Topics: t1 with one partition, t3 with 3, t7 with 7. The codes are those of Apache Kafka.
"""

from __future__ import annotations

from interop_tests.consumer_groups.asking import ANY, Asking, owned_in
from interop_tests.harness.raw_kafka import ErrorCode

INVALID = ErrorCode.INVALID_REQUEST
UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
FENCED_INSTANCE = ErrorCode.FENCED_INSTANCE_ID
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
GROUP_MAX_SIZE, FENCED_EPOCH, UNRELEASED_INSTANCE, UNSUPPORTED_ASSIGNOR, STALE_EPOCH = 81, 110, 111, 112, 113
INVALID_REGEX = 128
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def bad_requests(talk: Asking) -> None:
    """What is refused before the group is looked at."""
    everything = {"names": ["t3"], "timeout": 1000, "owned": {}}
    nowhere = Asking(talk.pair, "")
    blank = Asking(talk.pair, "  ")
    for version in (0, 1):
        for group in (nowhere, blank):
            group.beat("m", 0, INVALID, version, **everything)
            group.beat("m", 5, INVALID, version)
        for epoch in (5, LEAVE):
            talk.beat("", epoch, INVALID, version)
        talk.beat("", LEAVE_FOR_A_WHILE, ANY, version, instance="i")
        talk.beat("", LEAVE_FOR_A_WHILE, INVALID, version)
        for epoch in (0, 5, LEAVE):
            talk.beat("m", epoch, INVALID, version, **everything | {"instance": ""})
            talk.beat("m", epoch, INVALID, version, **everything | {"instance": " "})
            talk.beat("m", epoch, INVALID, version, **everything | {"rack": ""})
            talk.beat("m", epoch, INVALID, version, **everything | {"rack": "  "})
            talk.beat("m", epoch, UNSUPPORTED_ASSIGNOR, version, **everything | {"assignor": "sticky"})
            talk.beat("m", epoch, UNSUPPORTED_ASSIGNOR, version, **everything | {"assignor": ""})
        talk.beat("m", 0, INVALID, version, **everything | {"timeout": -1})
        talk.beat("m", 0, INVALID, version, names=["t3"], timeout=1000)
        talk.beat("m", 0, INVALID, version, **everything | {"owned": {"t3": [0]}})
        talk.beat("m", 0, INVALID, version, timeout=1000, owned={})
        talk.beat("m", LEAVE_FOR_A_WHILE, INVALID, version)
        for epoch in (-3, -(1 << 31)):
            talk.beat("m", epoch, INVALID, version)
            talk.beat("m", epoch, INVALID, version, instance="i")
    talk.beat("", 0, INVALID, 1, **everything)
    talk.describe(NOT_FOUND)


def absent_group(talk: Asking) -> None:
    """A group that does not exist."""
    for version in (0, 1):
        talk.beat("m", 5, NOT_FOUND, version)
        talk.beat("m", LEAVE, NOT_FOUND, version)
        talk.beat("m", LEAVE_FOR_A_WHILE, NOT_FOUND, version, instance="i")
        talk.describe(NOT_FOUND, version)
    talk.describe_classic(NOT_FOUND)
    talk.describe_classic(0, 5)
    talk.delete(NOT_FOUND)
    talk.delete_offsets("t3", [0], NOT_FOUND)
    talk.commit("m", 5, {"t3": {0: 1}}, NOT_FOUND)
    talk.commit("m", 5, {"t3": {0: 1}}, NOT_FOUND, 9)
    talk.commit("m", 5, {"t3": {0: 1}}, ErrorCode.ILLEGAL_GENERATION, 8)
    talk.fetch("m", 5, {"t3": [0]}, ANY)
    talk.fetch("m", 5, {"t3": [0]}, ANY, stable=True)
    talk.fetch(None, -1, {"t3": [0]})
    talk.list()


def invalid_group_ids(talk: Asking) -> None:
    """DeleteGroups and the descriptions of a group without a name."""
    nowhere = Asking(talk.pair, "")
    nowhere.describe(ANY)
    nowhere.describe_classic(ANY)
    nowhere.delete(ANY)
    nowhere.commit("", -1, {"t3": {0: 1}}, ANY)
    nowhere.fetch(None, -1, {"t3": [0]}, ANY)
    nowhere.delete(ANY)


def one_member(talk: Asking) -> None:
    """The life of one member, and every wrong epoch."""
    joined = talk.join("m", ["t3"])
    epoch = joined["MemberEpoch"]
    owned = owned_in(joined["Assignment"])
    talk.describe()
    talk.beat("m", epoch)
    talk.beat("m", epoch, owned=owned)
    talk.beat("m", epoch, owned=owned, names=["t3"], timeout=600_000)
    talk.beat("m", epoch, names=["t3"], timeout=600_000)
    talk.beat("m", epoch + 1, FENCED_EPOCH)
    talk.beat("m", 1 << 30, FENCED_EPOCH)
    talk.beat("other", epoch, UNKNOWN_MEMBER)
    talk.beat("other", LEAVE, UNKNOWN_MEMBER)
    talk.beat("m", LEAVE_FOR_A_WHILE, ANY, instance="i")
    talk.beat("m", epoch, ANY, instance="i")
    talk.beat("m", epoch - 1, ANY)
    talk.join("m", ["t3"])
    talk.beat("m", epoch, names=["t3", "t1"], owned=owned)
    talk.beat("m", epoch, ANY, owned=owned)
    talk.beat("m", epoch, ANY)
    talk.beat("m", epoch, ANY, owned={"t3": [0]})
    talk.beat("m", epoch, ANY, owned={"t3": [0, 1, 2], "t7": [0]})
    talk.beat("m", epoch - 1, FENCED_EPOCH, owned=owned)
    talk.describe()
    talk.delete(NON_EMPTY)
    talk.beat("m", LEAVE)
    talk.beat("m", LEAVE, UNKNOWN_MEMBER)
    talk.beat("m", epoch, UNKNOWN_MEMBER)
    talk.describe()
    talk.join("m", ["t3"])
    talk.beat("m", LEAVE)
    talk.delete()
    talk.describe(NOT_FOUND)


def made_member_id(talk: Asking) -> None:
    """Version 0 with a member id that the coordinator makes."""
    joined = talk.join("", ["t3"], version=0, made="made")
    assert joined["MemberId"] == "made"
    talk.beat("made", joined["MemberEpoch"], version=0)
    talk.describe(version=0)
    talk.beat("made", LEAVE, version=0)
    talk.join("chosen", ["t3"], version=0)
    talk.beat("chosen", LEAVE, version=0)
    talk.delete()


def fields_of_a_member(talk: Asking) -> None:
    """What changes a member's record, and what moves the group's epoch."""
    epoch = talk.join("m", ["t3"], rack="r1", client_id="one")["MemberEpoch"]
    talk.beat("m", epoch, client_id="two")
    talk.beat("m", epoch, rack="r2")
    talk.beat("m", epoch, timeout=5000)
    talk.beat("m", epoch, timeout=0)
    talk.beat("m", epoch, timeout=600_000)
    # Kafka 4.4 assigns anew when the group prefers another assignor.
    epoch = talk.beat("m", epoch, assignor="range")["MemberEpoch"]
    epoch = talk.beat("m", epoch, assignor="uniform")["MemberEpoch"]
    talk.describe()
    epoch = talk.beat("m", epoch, names=["t3", "t1"])["MemberEpoch"]
    epoch = talk.beat("m", epoch, names=["t1", "t3"])["MemberEpoch"]
    epoch = talk.beat("m", epoch, names=["t1", "t3", "t1"])["MemberEpoch"]
    epoch = talk.beat("m", epoch, names=["t1", "t3", "nothing"])["MemberEpoch"]
    epoch = talk.beat("m", epoch, names=["nothing"], owned={"t1": [0], "t3": [0, 1, 2]})["MemberEpoch"]
    epoch = talk.beat("m", epoch, owned={})["MemberEpoch"]
    epoch = talk.beat("m", epoch, names=[])["MemberEpoch"]
    epoch = talk.beat("m", epoch, names=["t3"])["MemberEpoch"]
    talk.beat("m", epoch, names=["t3"], owned={}, timeout=3000)
    talk.describe()
    talk.beat("m", LEAVE)


def assignors_in_a_tie(talk: Asking) -> None:
    """As many members prefer one assignor as prefer the other."""
    for first, second in (("range", "uniform"), ("uniform", "range")):
        talk.join("a", ["t3"], assignor=first)
        talk.join("b", [], assignor=second)
        talk.describe()
        talk.join("c", [])
        talk.describe()
        for member in "abc":
            talk.beat(member, LEAVE)


def joins_again(talk: Asking) -> None:
    """A member that joins again while the group knows it, in the middle of a revocation too."""
    talk.join("m", ["t3", "t1"], assignor="range")
    talk.join("m", ["t3", "t1"], assignor="range")
    talk.join("m", ["t3"])
    talk.join("m", [])
    epoch = talk.join("m", ["t3", "t7"])["MemberEpoch"]
    talk.beat("m", epoch, names=["t7"])
    talk.describe()
    talk.join("m", ["t7"])
    talk.beat("m", LEAVE)
    talk.join("m", None, ErrorCode.INVALID_REQUEST)
    talk.join("m", [], ANY)
    talk.describe()
    talk.beat("m", LEAVE)


def lost_answers(talk: Asking) -> None:
    """A heartbeat with the previous epoch is taken if it owns no more than was assigned."""
    epoch = talk.join("a", ["t7"], assignor="range")["MemberEpoch"]
    talk.join("b", ["t7"], assignor="range")
    whole = {"t7": [0, 1, 2, 3, 4, 5, 6]}
    talk.beat("a", epoch, owned=whole)
    talk.describe()
    now = talk.beat("a", epoch, owned={"t7": [0, 1, 2, 3]})["MemberEpoch"]
    assert now == epoch + 1
    for owned in ({"t7": [0, 1, 2, 3]}, {"t7": [3]}, {}, {"t7": [0, 0]}):
        talk.beat("a", epoch, 0, owned=owned)
    for owned in ({"t7": [4]}, {"t7": [0, 1, 2, 3, 4]}, {"t1": [0]}, {"gone": [0]}, None):
        talk.beat("a", epoch, FENCED_EPOCH, owned=owned)
    talk.beat("a", now, owned={"t7": [0, 1, 2, 3]})
    talk.beat("b", epoch, ANY, owned={})
    talk.describe()
    talk.beat("a", LEAVE)
    talk.beat("b", LEAVE)


def two_members(talk: Asking) -> None:
    """Partitions move from one to the other, and each says what it has not given up yet."""
    first = talk.join("a", ["t3", "t7"], assignor="range")["MemberEpoch"]
    second = talk.join("b", ["t3", "t7"], assignor="range")["MemberEpoch"]
    talk.describe()
    talk.list(["Reconciling", "stable"], ["Consumer"])
    talk.beat("b", second, owned={})
    answer = talk.beat("a", first)
    assert answer["MemberEpoch"] == first
    talk.describe()
    talk.beat("a", first, owned={"t3": [0, 1, 2], "t7": [0, 1, 2, 3, 4, 5, 6]})
    talk.beat("a", first, owned={"t3": [0, 1], "t7": [0, 1, 2, 3, 6]})
    talk.beat("a", second, FENCED_EPOCH)
    talk.beat("b", second)
    talk.beat("a", first, owned={"t3": [0, 1], "t7": [0, 1, 2, 3]})
    talk.beat("b", second, owned={})
    talk.describe()
    # A third one, while the second one is gone without a word.
    third = talk.join("c", ["t7"], assignor="range")["MemberEpoch"]
    talk.beat("c", third)
    talk.beat("b", LEAVE)
    talk.beat("a", second, owned={"t3": [0, 1], "t7": [0, 1, 2, 3]})
    talk.beat("c", third, owned={})
    talk.beat("a", known_epoch(talk, "a"), owned={"t3": [0, 1, 2], "t7": [0, 1, 2, 3]})
    talk.beat("c", known_epoch(talk, "c"), owned={})
    talk.describe()
    talk.beat("a", LEAVE)
    talk.beat("c", LEAVE)
    talk.describe()


def known_epoch(talk: Asking, member: str) -> int:
    """The epoch that the group knows of a member."""
    (group,) = talk.describe()["Groups"]
    return next(each["MemberEpoch"] for each in group["Members"] if each["MemberId"] == member)


def different_subscriptions(talk: Asking) -> None:
    """Members that subscribe to different topics, and a subscription that changes during a revocation."""
    talk.join("a", ["t3", "t7"], assignor="range")
    talk.join("b", ["t7", "t1"], assignor="range")
    talk.join("c", ["t1", "t3"], assignor="range")
    for _ in range(3):
        for member, owned in (
            ("a", {"t3": [0, 1], "t7": [0, 1, 2, 3]}),
            ("b", {"t7": [4, 5, 6], "t1": [0]}),
            ("c", {"t3": [2]}),
        ):
            talk.beat(member, known_epoch(talk, member), ANY, owned=owned)
    talk.beat("b", known_epoch(talk, "b"), names=["t3"], owned={"t7": [4, 5, 6], "t1": [0]})
    talk.beat("b", known_epoch(talk, "b"), names=["t1"], owned={"t7": [5], "t1": [0]})
    talk.beat("b", known_epoch(talk, "b"), owned={"t1": [0]})
    for _ in range(2):
        for member in ("a", "b", "c"):
            talk.beat(member, known_epoch(talk, member), ANY, owned={})
    talk.describe()
    for member in ("a", "b", "c"):
        talk.beat(member, LEAVE)


def full_group(talk: Asking) -> None:
    """group.consumer.max.size is 4."""
    for member in "abcd":
        talk.join(member, ["t7"], assignor="range")
    talk.join("e", ["t7"], GROUP_MAX_SIZE)
    talk.join("e", ["t7"], GROUP_MAX_SIZE, instance="i")
    talk.join("d", ["t7"], assignor="range")
    talk.beat("e", 3, ANY)
    talk.beat("e", 3, ANY, instance="i")
    talk.beat("e", LEAVE, UNKNOWN_MEMBER)
    talk.classic_join("e", ["t7"], GROUP_MAX_SIZE)
    talk.classic_join("", ["t7"], GROUP_MAX_SIZE)
    talk.beat("a", LEAVE)
    talk.join("e", ["t7"], assignor="range")
    for member in "bcde":
        talk.beat(member, LEAVE)


def static_members(talk: Asking) -> None:
    """Instances: held, released, taken over, and fenced."""
    epoch = talk.join("a", ["t3"], instance="i", assignor="range")["MemberEpoch"]
    talk.join("b", ["t3"], UNRELEASED_INSTANCE, instance="i")
    talk.beat("b", epoch, FENCED_INSTANCE, instance="i")
    talk.beat("b", LEAVE, FENCED_INSTANCE, instance="i")
    talk.beat("b", LEAVE_FOR_A_WHILE, FENCED_INSTANCE, instance="i")
    talk.beat("a", epoch, UNKNOWN_MEMBER, instance="j")
    talk.beat("a", LEAVE, UNKNOWN_MEMBER, instance="j")
    talk.beat("a", epoch, ANY)
    talk.beat("a", epoch, instance="i", owned={"t3": [0, 1, 2]})
    talk.beat("a", epoch + 1, FENCED_EPOCH, instance="i")
    talk.join("a", ["t3"], ANY, instance="i")
    talk.beat("a", LEAVE_FOR_A_WHILE, instance="i")
    talk.describe()
    talk.beat("a", epoch, ANY, instance="i")
    talk.beat("a", LEAVE_FOR_A_WHILE, instance="i")
    talk.beat("b", epoch, FENCED_INSTANCE, instance="i")
    talk.commit("a", epoch, {"t3": {0: 1}}, ANY)
    talk.commit("a", -2, {"t3": {0: 1}}, ANY)
    taken = talk.join("b", ["t3"], instance="i", assignor="range")
    talk.describe()
    talk.beat("a", epoch, FENCED_INSTANCE, instance="i")
    talk.beat("a", epoch, UNKNOWN_MEMBER)
    talk.beat("b", taken["MemberEpoch"], instance="i", owned={"t3": [0, 1, 2]})
    talk.beat("b", LEAVE_FOR_A_WHILE, instance="i")
    talk.join("c", ["t3", "t1"], instance="i", assignor="range")
    talk.join("d", ["t3"], assignor="range")
    talk.beat("c", LEAVE_FOR_A_WHILE, instance="i")
    talk.join("d", ["t1"], assignor="range")
    talk.describe()
    talk.join("e", ["t3", "t1"], instance="i", assignor="uniform", rack="r")
    talk.describe()
    talk.beat("e", LEAVE, instance="i")
    talk.join("f", ["t3"], instance="i")
    talk.beat("f", LEAVE)
    talk.beat("d", LEAVE)
    talk.describe()


def same_id_taken_over(talk: Asking) -> None:
    """A static member that comes back under its own id, and one that is known without an instance."""
    talk.join("a", ["t3"], instance="i", assignor="range")
    talk.beat("a", LEAVE_FOR_A_WHILE, instance="i")
    talk.join("a", ["t3"], ANY, instance="i", assignor="range")
    talk.describe()
    talk.join("b", ["t3"], assignor="range")
    talk.join("b", ["t3"], ANY, instance="j", assignor="range")
    talk.describe()
    talk.join("a", ["t3"], ANY, assignor="range")
    talk.describe()
    talk.beat("b", LEAVE, ANY, instance="j")
    talk.beat("b", LEAVE, ANY)
    talk.beat("a", LEAVE, ANY, instance="i")


def changing_topics(talk: Asking) -> None:
    """Topics that appear, grow, and disappear under a member."""
    epoch = talk.join("m", ["new", "t3"])["MemberEpoch"]
    talk.pair.change("create new", lambda side: side.create_topic("new", 2))
    epoch = talk.beat("m", epoch)["MemberEpoch"]
    talk.commit("m", epoch, {"new": {0: 1, 1: 2}})
    talk.pair.change("grow new", lambda side: side.grow_topic("new", 4))
    epoch = talk.beat("m", epoch)["MemberEpoch"]
    talk.describe()
    talk.pair.change("delete new", lambda side: side.delete_topic("new"))
    talk.describe()
    talk.fetch("m", epoch, {"new#1": [0]}, ANY)
    talk.fetch("m", epoch, {"new": [0]}, ANY, 9)
    epoch = talk.beat("m", epoch)["MemberEpoch"]
    talk.describe()
    talk.beat("m", epoch, ANY, owned={"new#1": [0, 1, 2, 3], "t3": [0, 1, 2]})
    epoch = talk.beat("m", epoch, ANY, owned={"t3": [0, 1, 2]})["MemberEpoch"]
    talk.pair.change("create new again", lambda side: side.create_topic("new", 2))
    epoch = talk.beat("m", epoch)["MemberEpoch"]
    talk.describe()
    talk.commit("m", epoch, {"new#1": {0: 1}}, ErrorCode.UNKNOWN_TOPIC_ID)
    talk.commit("m", epoch, {"new": {0: 1}})
    talk.beat("m", LEAVE)
    talk.pair.change("delete new at last", lambda side: side.delete_topic("new"))


SCENARIOS = (
    bad_requests,
    absent_group,
    invalid_group_ids,
    one_member,
    made_member_id,
    fields_of_a_member,
    assignors_in_a_tie,
    joins_again,
    lost_answers,
    two_members,
    different_subscriptions,
    full_group,
    static_members,
    same_id_taken_over,
    changing_topics,
)
