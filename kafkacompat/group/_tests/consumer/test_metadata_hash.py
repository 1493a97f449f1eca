"""The metadata hash of a group: Kafka's value, and what changes it."""

from __future__ import annotations

import pytest

from kafkacompat.group._tests.consumer.groups import A, B
from kafkacompat.group.modern_group import group_hash, topic_hash

WITH_RACKS = topic_hash(A, "t", 2, [["r1", "r2"], ["r1"]])


def test_the_hash_is_the_one_in_a_record_of_apache_kafka() -> None:
    topic_id = bytes.fromhex("380ff20b2d68423fb29990a362e23f6e")
    assert group_hash({"facts-t1": topic_hash(topic_id, "facts-t1", 3)}) == 0xCC7CBCD77A05A311 - (1 << 64)


def test_a_topic_with_racks_has_the_hash_that_kafkas_class_computes() -> None:
    assert WITH_RACKS == -6007719253101340191


def test_a_group_without_topics() -> None:
    assert group_hash({}) == 0


def test_the_topics_are_in_the_order_of_their_names() -> None:
    assert group_hash({"a": 1, "b": 2}) == group_hash({"b": 2, "a": 1}) != group_hash({"a": 2, "b": 1})


def test_the_racks_of_a_partition_may_be_in_any_order() -> None:
    assert topic_hash(A, "t", 2, [["r2", "r1"], ["r1"]]) == WITH_RACKS


def test_no_racks_are_the_same_as_empty_ones() -> None:
    assert topic_hash(A, "t", 2, [[], []]) == topic_hash(A, "t", 2)


@pytest.mark.parametrize(
    "other",
    [
        topic_hash(B, "t", 2, [["r1", "r2"], ["r1"]]),
        topic_hash(A, "u", 2, [["r1", "r2"], ["r1"]]),
        topic_hash(A, "t", 3, [["r1", "r2"], ["r1"], []]),
        topic_hash(A, "t", 2, [["r1"], ["r1", "r2"]]),
        topic_hash(A, "t", 2, [["r1", "r2"], ["r1", "r1"]]),
        topic_hash(A, "t", 2, [["r1r2"], ["r1"]]),
        topic_hash(A, "t", 2),
    ],
    ids=["id", "name", "partitions", "other-partition", "another-replica", "joined-racks", "no-racks"],
)
def test_every_change_changes_the_hash(other: int) -> None:
    assert other != WITH_RACKS


def test_a_hash_fits_into_a_records_field() -> None:
    hashes = [topic_hash(A, f"t{number}", 1) for number in range(64)]
    assert all(-(1 << 63) <= each < 1 << 63 for each in hashes)
    assert min(hashes) < 0 < max(hashes)
