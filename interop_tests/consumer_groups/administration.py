"""Scripted talks about offsets, lists of groups, and settings of a group."""

from __future__ import annotations

from interop_tests.consumer_groups.asking import ANY, Asking
from interop_tests.consumer_groups.scenarios import (
    LEAVE,
    NOT_FOUND,
    STALE_EPOCH,
    UNKNOWN_MEMBER,
    known_epoch,
)
from interop_tests.harness.raw_kafka import ErrorCode


def offsets_by_epoch(talk: Asking) -> None:
    """OffsetCommit and OffsetFetch with the member's epoch, later, earlier and without one.

    Not sent is OffsetFetch with an epoch and a null member id: Kafka fails the request for it (UNKNOWN_SERVER_ERROR).
    """
    epoch = talk.join("m", ["t3"], assignor="range")["MemberEpoch"]
    for version in (9, 10):
        talk.commit("m", epoch, {"t3": {0: 5, 1: 6}}, version=version)
        talk.commit("m", epoch, {"t7": {0: 7}}, version=version)
        talk.commit("m", epoch + 1, {"t3": {0: 7}}, STALE_EPOCH, version)
        talk.commit("m", epoch - 1, {"t3": {0: 7}}, STALE_EPOCH, version)
        talk.commit("m", -1, {"t3": {0: 7}}, ANY, version)
        talk.commit("m", 0, {"t3": {0: 7}}, ANY, version)
        talk.commit("", -1, {"t3": {0: 7}}, UNKNOWN_MEMBER, version)
        talk.commit("other", epoch, {"t3": {0: 7}}, UNKNOWN_MEMBER, version)
        talk.commit("m", epoch, {"t3": {0: 8}}, ANY, version, "i")
        talk.commit("m", epoch, {"t3": {9: 8}}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, version)
        talk.commit("m", epoch, {"t3": {9: 8, 0: 1}}, ANY, version)
        for stable in (False, True):
            talk.fetch("m", epoch, {"t3": [0, 1, 2], "t7": [0]}, version=version, stable=stable)
            talk.fetch("m", epoch, None, version=version, stable=stable)
            talk.fetch("m", epoch + 1, {"t3": [0]}, STALE_EPOCH, version, stable)
            talk.fetch("m", epoch - 1, {"t3": [0]}, STALE_EPOCH, version, stable)
            talk.fetch("other", epoch, {"t3": [0]}, UNKNOWN_MEMBER, version, stable)
            talk.fetch("m", -1, {"t3": [0]}, ANY, version, stable)
            talk.fetch("", -1, {"t3": [0]}, ANY, version, stable)
            talk.fetch(None, -1, {"t3": [0, 9]}, ANY, version, stable)
            talk.fetch(None, -1, None, 0, version, stable)
    talk.commit("m", epoch, {"t3": {0: 5}}, ErrorCode.UNSUPPORTED_VERSION, 8)
    talk.commit("m", epoch, {"nothing": {0: 5}}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9)
    talk.commit("m", epoch, {"nothing": {0: 5}}, ErrorCode.UNKNOWN_TOPIC_ID)
    talk.fetch(None, -1, {"nothing": [0]}, ANY)
    talk.fetch(None, -1, {"nothing": [0]}, ANY, 9)
    talk.fetch(None, -1, {"": [0]}, ANY)
    talk.delete_offsets("t3", [0, 1], 0)
    talk.delete_offsets("t7", [0, 1], 0)
    talk.beat("m", LEAVE)
    talk.commit("m", epoch, {"t3": {0: 5}}, ANY)
    talk.commit("", -1, {"t3": {0: 6}})
    talk.commit("m", -1, {"t3": {0: 6}}, ANY)
    talk.fetch(None, -1, None)
    talk.delete_offsets("t3", [0], 0)
    talk.delete()
    talk.fetch(None, -1, None)


def offsets_of_earlier_epochs(talk: Asking) -> None:
    """A commit with an earlier epoch is taken for partitions that the member has had since then (KIP-1251)."""
    first = talk.join("m", ["t7"], assignor="range")["MemberEpoch"]
    second = talk.beat("m", first, names=["t7", "t3"])["MemberEpoch"]
    assert second > first
    talk.commit("m", first, {"t7": {0: 1, 6: 2}}, 0)
    talk.commit("m", first, {"t3": {0: 1}}, STALE_EPOCH)
    talk.commit("m", first, {"t7": {0: 1}, "t3": {0: 1}}, STALE_EPOCH)
    talk.commit("m", first, {"t1": {0: 1}}, STALE_EPOCH)
    talk.commit("m", first - 1, {"t7": {0: 1}}, STALE_EPOCH)
    talk.commit("m", first, {"t7": {0: 1}}, 0, 9)
    talk.commit("m", first, {"t7": {0: 1}, "t3": {9: 1}}, ANY)
    # With a partition that is to be given up.
    talk.join("n", ["t7"], assignor="range")
    talk.beat("m", second, owned={"t7": [0, 1, 2, 3, 4, 5, 6], "t3": [0, 1, 2]})
    talk.commit("m", first, {"t7": {6: 3}}, 0)
    talk.commit("m", second, {"t7": {6: 4}}, 0)
    third = talk.beat("m", second, owned={"t7": [0, 1, 2, 3], "t3": [0, 1, 2]})["MemberEpoch"]
    talk.commit("m", second, {"t7": {6: 5}}, STALE_EPOCH)
    talk.commit("m", second, {"t7": {0: 5}, "t3": {0: 1}}, 0)
    talk.commit("m", third, {"t7": {6: 5}}, 0)
    talk.fetch(None, -1, None)
    talk.beat("m", LEAVE)
    talk.beat("n", LEAVE)


def before_it_was_a_group(talk: Asking) -> None:
    """Offsets that were committed without members, then members of either kind."""
    talk.commit("", -1, {"t3": {0: 1}})
    talk.describe_classic(0)
    talk.describe(NOT_FOUND)
    talk.list(types=["classic"])
    talk.list(types=["consumer"])
    talk.list(types=["nothing"])
    talk.list(["Empty"], version=4)
    talk.beat("m", 3, ANY)
    epoch = talk.join("m", ["t3"])["MemberEpoch"]
    talk.fetch("m", epoch, {"t3": [0]})
    talk.describe_classic(NOT_FOUND)
    talk.describe_classic(0, 5)
    talk.describe(authorized=True)
    for version in range(6):
        talk.list(version=version)
    talk.list(["Stable"], ["CONSUMER", "classic"])
    talk.list(["sTABLE", "Empty"])
    talk.list(["nonsense"])
    talk.beat("m", LEAVE)
    talk.list(["Empty"], ["consumer"])
    talk.list(["Dead"])
    talk.delete()
    talk.list()


def settings_of_a_group(talk: Asking) -> None:
    """IncrementalAlterConfigs on the group."""
    epoch = talk.join("m", ["t3"])["MemberEpoch"]
    talk.configure("consumer.heartbeat.interval.ms", "7000")
    talk.beat("m", epoch)
    talk.configure("consumer.heartbeat.interval.ms", "4999", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.heartbeat.interval.ms", "x", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.session.timeout.ms", "44999", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.session.timeout.ms", "3600001", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.session.timeout.ms", "60000")
    talk.configure("consumer.assignment.interval.ms", "15001", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.assignment.interval.ms", "-1", ErrorCode.INVALID_CONFIG)
    talk.configure("consumer.nonsense", "1", ErrorCode.INVALID_CONFIG)
    talk.beat("m", epoch)
    talk.configure("consumer.heartbeat.interval.ms", None)
    talk.beat("m", epoch)
    talk.beat("m", LEAVE)


def held_back_assignment(talk: Asking) -> None:
    """consumer.assignment.interval.ms puts the next assignment off."""
    talk.configure("consumer.assignment.interval.ms", "15000")
    talk.join("a", ["t3"], assignor="range")
    talk.join("b", ["t3"], assignor="range")
    talk.describe()
    talk.list(["Assigning"])
    talk.beat("a", known_epoch(talk, "a"), ANY)
    talk.beat("b", known_epoch(talk, "b"), ANY)
    talk.configure("consumer.assignment.interval.ms", "0")
    talk.beat("b", known_epoch(talk, "b"), ANY)
    talk.beat("a", known_epoch(talk, "a"), ANY, owned={"t3": [0, 1]})
    talk.describe()
    talk.configure("consumer.assignment.interval.ms", None)
    talk.beat("a", LEAVE)
    talk.beat("b", LEAVE)


ADMINISTRATION = (
    offsets_by_epoch,
    offsets_of_earlier_epochs,
    before_it_was_a_group,
    settings_of_a_group,
    held_back_assignment,
)
