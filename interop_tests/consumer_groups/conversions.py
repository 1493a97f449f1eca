"""Scripted talks in which classic members and members of KIP-848 share a group, which is converted either way."""

from __future__ import annotations

import struct

from interop_tests.consumer_groups.asking import ANY, Asking
from interop_tests.consumer_groups.scenarios import (
    FENCED_EPOCH,
    FENCED_INSTANCE,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    NOT_FOUND,
    STALE_EPOCH,
    UNKNOWN_MEMBER,
    UNRELEASED_INSTANCE,
    known_epoch,
)
from interop_tests.consumer_groups.talk import WAITS
from interop_tests.harness.groups import subscription
from interop_tests.harness.raw_kafka import ErrorCode

INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION


def plan(owned: dict[str, list[int]], user_data: bytes | None = None, version: int = 1) -> bytes:
    """A consumer's assignment, as the leader of a classic group writes it."""
    out = struct.pack(">hi", version, len(owned))
    for topic, numbers in owned.items():
        out += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(numbers))
        out += b"".join(struct.pack(">i", number) for number in numbers)
    return out + (
        struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    )


def stable_classic(talk: Asking, member: str, owned: dict[str, list[int]], **more: object) -> int:
    """One classic member that has got its assignment. Returns the generation."""
    if more.get("GroupInstanceId"):
        joined = talk.classic_join("", list(owned), made=member, **more)
    else:
        talk.classic_join("", list(owned), ID_REQUIRED, made=member, **more)
        joined = talk.classic_join(member, list(owned), **more)
    generation = int(joined["GenerationId"])
    instance = more.get("GroupInstanceId")
    talk.classic_sync(member, generation, {member: plan(owned)}, GroupInstanceId=instance)
    return generation


def empty_classic_group(talk: Asking) -> None:
    """A classic group without members becomes a consumer group, and the other way round."""
    generation = stable_classic(talk, "old", {"t3": [0, 1, 2]})
    talk.commit("old", generation, {"t3": {0: 3}}, version=9)
    talk.classic_leave(("old", None))
    talk.describe_classic()
    epoch = talk.join("m", ["t3"])["MemberEpoch"]
    talk.fetch("m", epoch, {"t3": [0]})
    talk.beat("m", LEAVE)
    talk.describe()
    generation = stable_classic(talk, "older", {"t3": [0, 1, 2]})
    talk.describe_classic()
    talk.describe(NOT_FOUND)
    talk.fetch(None, -1, None)
    talk.list(types=["classic"])
    talk.classic_leave(("older", None))
    talk.delete()


def upgraded_and_downgraded(talk: Asking) -> None:
    """A member of KIP-848 joins a classic group with one member, and leaves it again."""
    generation = stable_classic(talk, "old", {"t3": [0, 1, 2]})
    talk.describe_classic()
    joined = talk.join("new", ["t3"], assignor="range")
    epoch = joined["MemberEpoch"]
    talk.describe()
    talk.describe(version=0)
    talk.describe_classic(ANY)
    talk.list()
    talk.classic_sync("old", generation, expect=ANY)
    talk.classic_beat("old", generation, REBALANCE)
    talk.classic_beat("old", generation + 1, ILLEGAL_GENERATION)
    talk.classic_beat("other", generation, UNKNOWN_MEMBER)
    talk.classic_beat("new", epoch, UNKNOWN_MEMBER)
    talk.commit("old", generation, {"t3": {0: 1}}, version=9)
    talk.commit("old", generation, {"t3": {0: 1}}, version=8)
    talk.commit("old", generation + 1, {"t3": {0: 1}}, ILLEGAL_GENERATION, 8)
    talk.commit("old", generation + 9, {"t3": {0: 1}}, ANY, 10)
    talk.fetch("old", generation, {"t3": [0]}, ANY)
    talk.fetch("old", generation + 1, {"t3": [0]}, ANY)
    joined = talk.classic_join("old", ["t3"])
    now = joined["GenerationId"]
    talk.classic_sync("old", now + 1, expect=ILLEGAL_GENERATION)
    talk.classic_sync("other", now, expect=UNKNOWN_MEMBER)
    talk.classic_sync("new", now, expect=UNKNOWN_MEMBER)
    talk.classic_sync("old", now, expect=INCONSISTENT, ProtocolName="nothing")
    talk.classic_sync("old", now, expect=INCONSISTENT, ProtocolType="nothing")
    talk.classic_sync("old", now, expect=ANY, version=4)
    talk.classic_sync("old", now, expect=ANY)
    talk.classic_beat("old", now, ANY)
    # Told by the next JoinGroup that the partitions are given up.
    owned = [{"Name": "range", "Metadata": owning({"t3": [0, 1]}, ["t3"])}]
    joined = talk.classic_join("old", ["t3"], Protocols=owned)
    talk.classic_sync("old", joined["GenerationId"], expect=ANY)
    talk.classic_beat("old", joined["GenerationId"], ANY)
    talk.beat("new", epoch, ANY, owned={})
    talk.describe()
    talk.beat("new", LEAVE)
    talk.describe_classic()
    talk.describe(NOT_FOUND)
    group = talk.describe_classic()["Groups"][0]
    assert group["GroupState"] == "PreparingRebalance", group
    talk.classic_beat("old", joined["GenerationId"], ANY)
    talk.classic_beat("old", joined["GenerationId"] + 1, ANY)
    generation = talk.classic_join("old", ["t3"])["GenerationId"]
    talk.classic_sync("old", generation, {"old": plan({"t3": [0]})})
    talk.classic_leave(("old", None))
    talk.delete()


def owning(owned: dict[str, list[int]], topics: list[str], version: int = 1) -> bytes:
    """A consumer's metadata with the partitions that it owns."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    out = struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)
    out += struct.pack(">i", len(owned))
    for topic, numbers in owned.items():
        out += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(numbers))
        out += b"".join(struct.pack(">i", number) for number in numbers)
    if version >= 2:
        out += struct.pack(">i", -1)
    if version >= 3:
        out += struct.pack(">h", 2) + b"r1"
    return out


def not_upgraded(talk: Asking) -> None:
    """Groups that a member of KIP-848 cannot join."""
    other = Asking(talk.pair, "not_upgraded_connect")
    protocols = [{"Name": "range", "Metadata": b"any"}]
    other.classic_join("", [], ID_REQUIRED, made="worker", ProtocolType="connect", Protocols=protocols)
    joined = other.classic_join("worker", [], ProtocolType="connect", Protocols=protocols)
    other.join("new", ["t3"], NOT_FOUND)
    other.classic_sync("worker", joined["GenerationId"], {"worker": b"x"}, ProtocolType="connect")
    other.join("new", ["t3"], NOT_FOUND)
    other.beat("new", 3, NOT_FOUND)
    other.beat("new", LEAVE, NOT_FOUND)
    other.describe(NOT_FOUND)
    other.classic_leave(("worker", None))
    other.join("new", ["t3"])
    other.beat("new", LEAVE)
    custom = Asking(talk.pair, "not_upgraded_user_data")
    custom.classic_join("", ["t3"], ID_REQUIRED, made="own")
    generation = custom.classic_join("own", ["t3"])["GenerationId"]
    custom.classic_sync("own", generation, {"own": plan({"t3": [0]}, b"data")})
    custom.join("new", ["t3"], NOT_FOUND)
    custom.classic_leave(("own", None))
    empty = Asking(talk.pair, "not_upgraded_empty_user_data")
    empty.classic_join("", ["t3"], ID_REQUIRED, made="emp")
    generation = empty.classic_join("emp", ["t3"])["GenerationId"]
    empty.classic_sync("emp", generation, {"emp": plan({"t3": [0]}, b"")})
    empty.join("new", ["t3"], ANY, assignor="range")
    empty.beat("new", LEAVE, ANY)
    empty.classic_leave(("emp", None))


def malformed_assignments(talk: Asking) -> None:
    """What the leader gave the members is no assignment, or none that can be read."""
    for number, assignment in enumerate(MALFORMED):
        bad = Asking(talk.pair, f"malformed_assignment{number}")
        bad.classic_join("", ["t3"], ID_REQUIRED, made="bad")
        generation = bad.classic_join("bad", ["t3"])["GenerationId"]
        bad.classic_sync("bad", generation, {"bad": assignment})
        bad.join("new", ["t3"], ANY, assignor="range")
        bad.describe(ANY)
        bad.beat("new", LEAVE, ANY)
        bad.classic_leave(("bad", None), expect=ANY)


MALFORMED = (
    b"",
    b"\0",
    b"\0\1",
    b"\0\1\0\0\0\0",
    b"\0\1\0\0\0\1\0\2t3\0\0\0\1\0\0\0\x20\xff\xff\xff\xff",
    b"\0\1\0\0\0\1\0\4gone\0\0\0\1\0\0\0\0\xff\xff\xff\xff",
    b"\0\x09" + plan({"t3": [0]})[2:],
    b"\xff\xff" + plan({"t3": [0]})[2:],
    plan({"t3": [0]}) + b"more",
)
"""None has a list that is longer than the bytes: Kafka fails the request for it (UNKNOWN_SERVER_ERROR), which is an
accident. Ours refuses it as it refuses the others."""


def waiting_when_upgraded(talk: Asking) -> None:
    """Members that wait in a rebalance of a classic group when a member of KIP-848 joins."""
    generation = stable_classic(talk, "k1", {"t3": [0, 1, 2]}, client_id="k1")
    talk.classic_join("", ["t3"], ID_REQUIRED, made="k2", client_id="k2")
    talk.classic_join("k2", ["t3"], WAITS, client_id="k2")
    talk.describe_classic()
    talk.join("new", ["t3"], ANY, assignor="range")
    talk.pair.settle()
    talk.describe(ANY)
    talk.classic_beat("k1", generation, ANY)
    talk.classic_beat("k2", generation, ANY)
    talk.classic_join("k2", ["t3"], ANY, client_id="k2")
    talk.classic_join("k1", ["t3"], ANY, client_id="k1")
    talk.describe()
    talk.classic_leave(("k2", None), ("nobody", None), expect=ANY)
    talk.classic_leave(("k1", None), ("new", None), expect=ANY)
    talk.describe(ANY)
    talk.beat("new", LEAVE, ANY)


def waiting_for_the_leader(talk: Asking) -> None:
    """A follower waits in SyncGroup when a member of KIP-848 joins."""
    stable_classic(talk, "k1", {"t3": [0, 1, 2]}, client_id="k1")
    talk.classic_join("", ["t3"], ID_REQUIRED, made="k2", client_id="k2")
    talk.classic_join("k2", ["t3"], WAITS, client_id="k2")
    body = talk.classic_body("k1", ["t3"])
    talk.pair.send("k1", "JoinGroup", 9, body, "k1")
    answers = talk.pair.settle()
    assert set(answers) == {"k1", "k2"}, answers
    generation = answers["k1"]["GenerationId"]
    talk.classic_sync("k2", generation, expect=WAITS)
    talk.join("new", ["t3"], assignor="range")
    talk.pair.settle()
    talk.describe()
    talk.classic_sync("k2", generation, expect=ANY)
    talk.classic_sync("k1", generation, expect=ANY)
    talk.classic_leave(("k2", None))
    talk.classic_leave(("k1", None))
    talk.beat("new", LEAVE)
    talk.describe()


def classic_joins_consumer_group(talk: Asking) -> None:
    """JoinGroup in each form to a group of KIP-848."""
    epoch = talk.join("new", ["t3"], assignor="range")["MemberEpoch"]
    talk.classic_join("", ["t3"], ID_REQUIRED, made="required")
    talk.classic_join("k", ["t3"], INCONSISTENT, ProtocolType="connect")
    talk.classic_join("k", ["t3"], INCONSISTENT, ProtocolType="")
    talk.classic_join("k", ["t3"], INCONSISTENT, Protocols=[])
    talk.classic_join("k", ["t3"], ErrorCode.INVALID_SESSION_TIMEOUT, SessionTimeoutMs=100)
    malformed = [{"Name": "range", "Metadata": b"\0"}]
    talk.classic_join("k", ["t3"], ANY, Protocols=malformed)
    talk.classic_join("k", ["t3"], ANY, GroupInstanceId="i")
    joined = talk.classic_join("k", ["t3", "t1"])
    talk.describe()
    talk.classic_beat("k", joined["GenerationId"], ANY)
    talk.classic_sync("k", joined["GenerationId"], expect=ANY)
    both = [{"Name": name, "Metadata": subscription("t3")} for name in ("roundrobin", "range")]
    joined = talk.classic_join("k", ["t3"], ANY, Protocols=both)
    talk.classic_sync("k", joined["GenerationId"], expect=ANY)
    talk.classic_sync("k", joined["GenerationId"], expect=ANY, ProtocolName="roundrobin")
    only = [{"Name": "sticky", "Metadata": subscription("t3")}]
    talk.classic_join("l", ["t3"], INCONSISTENT, Protocols=only)
    talk.classic_join("k", ["t3"], ANY, Protocols=only)
    talk.classic_join("l", ["t3"], ANY)
    talk.beat("new", epoch, owned={"t3": [0, 1, 2]})
    talk.beat("new", epoch, ANY, owned={"t3": [0, 1]})
    joined = talk.classic_join("k", ["t3"], ANY, Protocols=only)
    talk.classic_sync("k", joined["GenerationId"], expect=ANY, ProtocolName="sticky")
    talk.describe()
    # Versions of the metadata, and of JoinGroup without the handshake.
    for version in (0, 2, 3):
        metadata = owning({"t3": [2]}, ["t3"], version) if version else b"\0\0" + subscription("t3")[2:-4]
        joined = talk.classic_join("k", ["t3"], ANY, Protocols=[{"Name": "range", "Metadata": metadata}])
        talk.classic_sync("k", joined["GenerationId"], expect=ANY)
    talk.describe()
    # Its id may be before or after the others', so it has a topic of its own.
    talk.classic_join("", ["t1"], 0, 3, made="early")
    talk.describe()
    talk.beat("k", LEAVE, ANY)
    talk.classic_leave(("k", None), expect=ANY)
    talk.classic_leave(("early", None), ("early", None), ("", None), ("", "i"), expect=ANY)
    talk.classic_leave(("new", None), expect=ANY)
    talk.beat("new", LEAVE, ANY)
    talk.describe(ANY)


def classic_member_heartbeats(talk: Asking) -> None:
    """The heartbeat of KIP-848 by a classic member makes it one of KIP-848."""
    generation = stable_classic(talk, "old", {"t3": [0, 1, 2]})
    talk.beat("old", generation, NOT_FOUND)
    talk.beat("old", LEAVE, NOT_FOUND)
    talk.join("new", ["t3"], assignor="range")
    talk.beat("old", generation, ANY)
    talk.describe()
    talk.classic_beat("old", generation, ANY)
    talk.classic_sync("old", generation, expect=ANY)
    talk.commit("old", generation, {"t3": {0: 1}}, ErrorCode.UNSUPPORTED_VERSION, 8)
    talk.beat("new", LEAVE)
    talk.describe()
    talk.beat("old", LEAVE)


def member_becomes_classic(talk: Asking) -> None:
    """A member of KIP-848 joins under the same id as a classic member, and comes back."""
    talk.join("a", ["t3"], assignor="range")
    talk.join("b", ["t3"], assignor="range")
    talk.classic_join("b", ["t3"], ANY)
    talk.describe()
    talk.beat("b", known_epoch(talk, "b"), ANY, owned={})
    talk.join("b", ["t3"], ANY, assignor="range")
    talk.describe()
    talk.classic_join("b", ["t3"], ANY)
    talk.join("a", [], ANY)
    talk.beat("a", LEAVE)
    talk.describe(ANY)
    talk.describe_classic(ANY)
    talk.classic_leave(("b", None), expect=ANY)


def static_across_protocols(talk: Asking) -> None:
    """An instance goes from one protocol to the other."""
    generation = stable_classic(talk, "old", {"t3": [0, 1, 2]}, GroupInstanceId="i")
    talk.classic_beat("old", generation, 0, "i")
    epoch = talk.join("new", ["t3"], instance="i", assignor="range")["MemberEpoch"]
    talk.describe(ANY)
    talk.classic_beat("old", generation, FENCED_INSTANCE, "i")
    talk.classic_beat("old", generation, UNKNOWN_MEMBER)
    talk.beat("new", epoch, ANY, instance="i", owned={"t3": [0, 1, 2]})
    joined = talk.classic_join("", ["t3"], ANY, made="back", GroupInstanceId="i")
    talk.describe(ANY)
    talk.describe_classic(ANY)
    talk.classic_sync("back", joined["GenerationId"], {}, ANY, GroupInstanceId="i")
    talk.classic_beat("back", joined["GenerationId"], ANY, "i")
    talk.join("another", ["t3"], ANY, instance="j", assignor="range")
    talk.join("other", ["t3"], UNRELEASED_INSTANCE, instance="j")
    joined = talk.classic_join("", ["t3"], ANY, made="jback", GroupInstanceId="j")
    talk.describe(ANY)
    talk.describe_classic(ANY)
    talk.classic_leave(("", "i"), ("", "nobody"), expect=ANY)
    talk.classic_leave(("", "j"), expect=ANY)
    talk.describe(ANY)
    talk.describe_classic(ANY)


def static_replaced_with_change(talk: Asking) -> None:
    """The only member of KIP-848 is replaced by a classic one with another subscription."""
    talk.join("new", ["t3"], instance="i", assignor="range")
    talk.classic_join("", ["t3", "t1"], ANY, made="classic i", GroupInstanceId="i")
    talk.describe(ANY)
    talk.describe_classic(ANY)
    talk.pair.settle()
    talk.classic_leave(("", "i"), expect=ANY)
    talk.join("new", ["t3"], instance="i", assignor="range")
    talk.beat("new", LEAVE_FOR_A_WHILE, instance="i")
    talk.classic_join("", ["t3"], ANY, made="classic again", GroupInstanceId="i")
    talk.describe(ANY)
    talk.describe_classic(ANY)
    talk.classic_leave(("", "i"), expect=ANY)


def classic_offsets(talk: Asking) -> None:
    """Commits of a classic member and of a member of KIP-848 in one group."""
    generation = stable_classic(talk, "old", {"t7": [0, 1, 2, 3, 4, 5, 6]})
    epoch = talk.join("new", ["t7"], assignor="range")["MemberEpoch"]
    assert epoch > generation
    for version in (8, 9, 10):
        talk.commit("old", generation, {"t7": {0: 1}}, ANY, version)
        talk.commit("old", epoch, {"t7": {0: 1}}, ANY, version)
        talk.commit("old", generation - 1, {"t7": {0: 1}}, ANY, version)
        talk.commit("old", generation, {"t3": {0: 1}}, ANY, version)
        talk.commit("new", epoch, {"t7": {0: 1}}, ANY, version)
        talk.commit("new", epoch + 1, {"t7": {0: 1}}, ANY, version)
        talk.commit("old", -1, {"t7": {0: 1}}, ANY, version)
    talk.classic_join("old", ["t7"], ANY)
    for version in (8, 9, 10):
        talk.commit("old", generation, {"t7": {0: 1}}, ANY, version)
    talk.fetch("old", generation, None, ANY)
    talk.fetch("new", epoch - 1, None, STALE_EPOCH)
    talk.delete_offsets("t7", [0], ANY)
    talk.delete_offsets("t3", [0], ANY)
    talk.beat("new", epoch + 1, FENCED_EPOCH)
    talk.classic_leave(("old", None))
    talk.beat("new", LEAVE)


CONVERSIONS = (
    empty_classic_group,
    upgraded_and_downgraded,
    not_upgraded,
    malformed_assignments,
    waiting_when_upgraded,
    waiting_for_the_leader,
    classic_joins_consumer_group,
    classic_member_heartbeats,
    member_becomes_classic,
    static_across_protocols,
    static_replaced_with_change,
    classic_offsets,
)
