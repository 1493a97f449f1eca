"""Scripted talks with texts and numbers that no client sends: they must mean the same to both brokers."""

from __future__ import annotations

from itertools import count

from interop_tests.consumer_groups.asking import ANY, REBALANCE_TIMEOUT_MS, Asking
from interop_tests.consumer_groups.conversions import plan
from interop_tests.consumer_groups.expressions import RESOLVED
from interop_tests.consumer_groups.scenarios import INVALID, LEAVE, LEAVE_FOR_A_WHILE
from interop_tests.harness.groups import subscription

LONGEST = 32_767
TEXTS = (
    "\0",
    "\x7f",
    "é",
    "e\u0301",
    "\U0001f600",
    "a\nb",
    "a/b",
    "%s {} $1",
    "'\"`",
    "..",
    "null",
    "x" * LONGEST,
)
"""None of them is blank to Java."""
BLANKS = ("\0 ", "\t", "\u2003", "\xa0", "\x1f\x1f")
"""Of some of them Java's trim leaves something."""
INT_MAX, INT_MIN = (1 << 31) - 1, -(1 << 31)


def strange_texts(talk: Asking) -> None:
    """In every field of a heartbeat that takes any text."""
    for text in TEXTS:
        talk.join(text, ["t3", text], ANY, assignor="range", rack=text, instance=text)
        talk.describe(ANY)
        talk.beat(text, 1, ANY, instance=text)
        talk.commit(text, 1, {"t3": {0: 1}}, ANY, instance=text)
        talk.beat(text, LEAVE_FOR_A_WHILE, ANY, instance=text)
        talk.join("again", ["t3"], ANY, assignor="range", instance=text)
        talk.classic_leave(("again", text), expect=ANY)
        talk.beat("again", LEAVE, ANY, instance=text)
    for blank in BLANKS:
        talk.join(blank, ["t3"], ANY, assignor="range")
        talk.join("m", ["t3"], ANY, assignor="range", rack=blank)
        talk.join("m", ["t3"], ANY, assignor="range", instance=blank)
        talk.beat("m", LEAVE, ANY, instance=blank)
        talk.beat("m", LEAVE, ANY)
        talk.beat(blank, LEAVE, ANY)
        Asking(talk.pair, blank).join("m", ["t3"], ANY, assignor="range")
        Asking(talk.pair, blank).beat("m", LEAVE, ANY)


def numbers_at_their_limits(talk: Asking) -> None:
    for epoch in (INT_MAX, INT_MIN, INT_MIN + 1, -3):
        talk.beat("m", epoch, ANY)
        talk.commit("m", epoch, {"t3": {0: 1}}, ANY)
        talk.fetch("m", epoch, {"t3": [0]}, ANY)
    for timeout in (0, 1, INT_MAX, -2, INT_MIN):
        talk.join("m", ["t3"], ANY, assignor="range", timeout=timeout)
        talk.describe(ANY)
        talk.beat("m", LEAVE, ANY)
    epoch = talk.join("m", ["t3"], assignor="range")["MemberEpoch"]
    for epoch_told in (INT_MAX, epoch + 1, epoch - 1):
        talk.beat("m", epoch_told, ANY, owned={"t3": [0]})
        talk.commit("m", epoch_told, {"t3": {0: 1}}, ANY)
        talk.fetch("m", epoch_told, {"t3": [0]}, ANY)
        talk.classic_beat("m", epoch_told, ANY)
    for owned in ({"t3": [INT_MAX, INT_MIN, -1]}, {"t3": []}, {"t3": [0, 0, 1]}, {"nothing": [0]}):
        talk.beat("m", epoch, ANY, owned=owned)
    for offset in (0, -1, -(1 << 63), (1 << 63) - 1):
        talk.commit("m", epoch, {"t3": {0: offset}}, ANY)
        talk.fetch("m", epoch, {"t3": [0, -1, INT_MAX]}, ANY)
    talk.commit("m", epoch, {"t3": {-1: 1, INT_MAX: 1, INT_MIN: 1}}, ANY)
    talk.commit("m", epoch, {"t3": {}}, ANY)
    talk.commit("m", epoch, {}, ANY)
    talk.fetch("m", epoch, {}, ANY)
    talk.fetch("m", epoch, {"t3": []}, ANY)
    talk.beat("m", LEAVE)


def names_and_expressions(talk: Asking) -> None:
    """Subscriptions that are empty, doubled or impossible, alone and together."""
    epoch = talk.join("m", [], assignor="range")["MemberEpoch"]
    for names in (["t3", "t3"], [""], [" "], ["t3", ""], ["x" * 300], ["T3"], ["__consumer_offsets"], []):
        answer = talk.beat("m", epoch, ANY, names=names, owned={})
        epoch = answer["MemberEpoch"] or epoch
    for regex in ("", "(", "*", "\\", "[", "t3{2,1}", "(?<n>t)", "(?=t)", "\\1", "a" * 1000 + "("):
        # The only one that is valid. What it matches is written soon after the answer, by Kafka at times in the same batch.
        later = RESOLVED if regex == "(?<n>t)" else None
        answer = talk.beat("m", epoch, ANY, regex=regex, owned={}, later=later)
        epoch = answer["MemberEpoch"] or epoch
    talk.describe(ANY)
    talk.beat("m", LEAVE)
    talk.join("m", None, INVALID, regex=None)
    talk.join("m", None, 0, regex="", assignor="range")
    talk.describe(ANY)
    talk.beat("m", LEAVE)


def classic_members_with_strange_subscriptions(talk: Asking) -> None:
    """JoinGroup, SyncGroup and LeaveGroup in a group that has a member of the consumer protocol."""
    talk.join("m", ["t3"], assignor="range")
    good = subscription("t3")
    made = (f"made {number}" for number in count())
    for metadata in (
        b"",
        b"\0",
        b"\0\0",
        b"\xff\xff",
        b"\x7f\xff" + good[2:],
        good[:-1],
        good + b"\1",
        good[:6],
    ):
        protocols = [{"Name": "range", "Metadata": metadata}]
        talk.classic_join("", ["t3"], ANY, made=next(made), Protocols=protocols, GroupInstanceId="i")
        talk.describe(ANY)
        talk.classic_leave(("", "i"), expect=ANY)
    for fields in (
        {"ProtocolType": ""},
        {"ProtocolType": "Consumer"},
        {"Protocols": []},
        {"Protocols": [{"Name": "", "Metadata": good}]},
        {"Protocols": [{"Name": "range", "Metadata": good}] * 2},
        {"RebalanceTimeoutMs": -1},
        {"RebalanceTimeoutMs": 0},
        {"SessionTimeoutMs": 0},
        {"GroupInstanceId": ""},
        {"GroupInstanceId": "\0"},
    ):
        instance = {"GroupInstanceId": "i"} | fields
        answer = talk.classic_join("", ["t3"], ANY, made=next(made), **instance)
        talk.describe(ANY)
        if answer["ErrorCode"] == 0:
            generation, member = answer["GenerationId"], answer["MemberId"]
            for more in (
                {"ProtocolType": ""},
                {"ProtocolName": ""},
                {"ProtocolType": None, "ProtocolName": None},
            ):
                talk.classic_sync(member, generation, {member: plan({"t3": [0]})}, ANY, **more)
        talk.classic_leave(("", instance["GroupInstanceId"]), ("", None), ("nobody", "i"), expect=ANY)
    talk.classic_leave(expect=ANY)
    talk.classic_leave(("m", None), ("m", None), expect=ANY)
    talk.describe(ANY)


def settings_told_in_kafkas_words(talk: Asking) -> None:
    """Which bound a group's settings exceed: one by one and together."""
    for configs in (
        {"consumer.heartbeat.interval.ms": "4999"},
        {"consumer.heartbeat.interval.ms": "15001"},
        {"consumer.session.timeout.ms": "1"},
        {"consumer.session.timeout.ms": "3600001"},
        {"consumer.assignment.interval.ms": "15001"},
        {"consumer.heartbeat.interval.ms": "1", "consumer.session.timeout.ms": "1"},
        {"share.delivery.count.limit": "1000", "share.record.lock.duration.ms": "1000"},
        {"streams.num.standby.replicas": "1000", "streams.session.timeout.ms": "1000000"},
        {"": "1"},
    ):
        listed = [{"Name": name, "ConfigOperation": 0, "Value": value} for name, value in configs.items()]
        resource = {"ResourceType": 32, "ResourceName": talk.group, "Configs": listed}
        talk.pair.ask("IncrementalAlterConfigs", 1, {"Resources": [resource]})
    for name, value in (
        ("share.record.lock.duration.ms", "1"),
        ("share.isolation.level", "x"),
        ("consumer.heartbeat.interval.ms", ""),
        ("consumer.heartbeat.interval.ms", "0x1770"),
        ("consumer.nothing", None),
    ):
        talk.configure(name, value, ANY)
    talk.join("m", ["t3"], assignor="range", timeout=REBALANCE_TIMEOUT_MS)
    talk.beat("m", LEAVE)


STRANGE = (
    strange_texts,
    numbers_at_their_limits,
    names_and_expressions,
    classic_members_with_strange_subscriptions,
    settings_told_in_kafkas_words,
)
