"""Sarama. It does not ask for the broker's versions, but uses those of the configured Kafka release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.harness.programs import run_program

PARTITIONS = ["0", "1", "2", "3"]
LABELS = ["none", "gzip", "snappy", "lz4", "zstd", "idempotent", "shared"]
PER_LABEL = 20
START_MS = 1_600_000_000_000


@pytest.mark.parametrize("pinned", ["2.1.0", "2.4.0", "3.6.0", "newest"])
def test_everything_with_the_versions_of_one_kafka_release(
    sarama: list[str], bootstrap: str, unique: Callable[[str], str], pinned: str
) -> None:
    """Topic, records of every codec, a shared group, commits, offsets and admin calls at pinned versions."""
    seen = run_program(sarama, "everything", bootstrap, pinned, unique("topic"), unique("group"))
    assert seen["pinned"].startswith(pinned) or pinned == "newest"
    assert seen["again"] is True, "a second CreateTopics says that the topic exists"
    assert seen["retention"] == "-1"
    assert seen["labels"] == LABELS
    total = len(LABELS) * PER_LABEL
    assert seen["written"] == total

    by_key = {record["key"]: record for record in seen["records"]}
    assert len(seen["records"]) == len(by_key) == total
    for place, label in enumerate(LABELS):
        for n in range(PER_LABEL):
            record = by_key[f"{label}-{n}"]
            assert record["value"] == f"{label} {n} " * 10
            assert record["headers"] == {"label": label}
            assert record["timestamp"] == START_MS + place * PER_LABEL + n

    assert sorted(partition for owned in seen["shared"] for partition in owned) == [0, 1, 2, 3]
    assert [len(owned) for owned in seen["shared"]] == [2, 2]
    assert (seen["state"], seen["group_type"]) == ("Stable", "consumer")

    placed = {each: [r for r in seen["records"] if str(r["partition"]) == each] for each in PARTITIONS}
    for partition, records in placed.items():
        records.sort(key=lambda record: record["offset"])
        assert [record["offset"] for record in records] == list(range(len(records)))
        assert seen["oldest"][partition] == 0
        assert seen["newest"][partition] == seen["committed"][partition] == len(records)
        assert seen["metadata"][partition] == f"as far as {len(records) - 1}"
        later = [record["offset"] for record in records if record["timestamp"] >= START_MS + total // 2]
        assert seen["middle"][partition] == later[0]
    assert seen["trimmed"] == 3


@pytest.mark.parametrize(
    ("pinned", "outcome"), [("0.10.2.0", "EOF"), ("0.11.0.0", "<nil>"), ("1.0.0", "<nil>")]
)
def test_produce_with_the_versions_of_releases_before_2_1(
    sarama: list[str], bootstrap: str, topic: str, pinned: str, outcome: str
) -> None:
    """Produce 3 and later are served. Produce 2 is only advertised: the connection is closed, as in Kafka."""
    seen = run_program(sarama, "produce", bootstrap, pinned, topic)
    assert seen["pinned"].startswith(pinned.rstrip(".0"))
    assert seen["error"] == outcome
