"""franz-go: the newest API versions that a Go client negotiates, and its strict checks of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.exporting import OF_CLIENTS, Exporting, exporting_broker
from interop_tests.harness.programs import run_program
from interop_tests.harness.raw_kafka import create_topic

ALL = [0, 1, 2, 3]


def test_every_codec_with_keys_and_headers(
    franz_go: list[str], bootstrap: str, make_topic: Callable[..., str]
) -> None:
    """Every record is read once and in order, with every codec."""
    seen = run_program(franz_go, "produce", bootstrap, make_topic(partitions=3))
    assert seen["written"] == 100
    by_key = {record["key"]: record for record in seen["records"]}
    assert len(seen["records"]) == len(by_key) == 100
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for n in range(20):
            record = by_key[f"{codec}-{n}"]
            assert record["value"] == f"{codec} {n} " * 10
            assert record["headers"] == {"codec": codec, "n": str(n)}
    for partition in range(3):
        offsets = [record["offset"] for record in seen["records"] if record["partition"] == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("balancer", ["range", "cooperative-sticky"])
def test_a_group_shares_and_takes_back(
    franz_go: list[str],
    bootstrap: str,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    balancer: str,
) -> None:
    """A second member gets half of the partitions. When it leaves, the first member gets them back. Commits reach the
    end."""
    topic = make_topic(partitions=4)
    seen = run_program(franz_go, "group", bootstrap, topic, unique("group"), balancer)
    assert seen["alone"] == seen["afterwards"] == ALL
    assert sorted(partition for owned in seen["shared"] for partition in owned) == ALL
    assert seen["read"] == 120
    assert seen["read_by_second"] >= 20, (
        "the second member read what was written while it owned two partitions"
    )
    assert seen["committed"] == {str(partition): 30 for partition in ALL}


def test_admin_calls(franz_go: list[str], bootstrap: str, unique: Callable[[str], str]) -> None:
    """The topic id is the same everywhere. CreatePartitions names its topics."""
    seen = run_program(franz_go, "admin", bootstrap, unique("topic"))
    assert seen["id"] == seen["described_id"] != "AAAAAAAAAAAAAAAAAAAAAA=="
    assert seen["again"].startswith("TOPIC_ALREADY_EXISTS")
    assert seen["settings"] == {"retention.ms": "7200000", "retention.bytes": "1000000"}
    assert seen["settings_described"] >= 30
    assert seen["brokers"] >= 1
    assert seen["partitions"] == 5


def test_seek_by_time(franz_go: list[str], bootstrap: str, make_topic: Callable[..., str]) -> None:
    """The first record at or after a time. After the newest record, franz-go uses the end."""
    seen = run_program(franz_go, "seek", bootstrap, make_topic(configs={"retention.ms": "-1"}))
    assert seen["offsets"] == {"before": 0, "exact": 3, "between": 4, "after": 10}
    assert seen["values"] == ["7", "8", "9"]


def test_transactions(
    franz_go: list[str], bootstrap: str, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """Consume, transform, produce with one epoch per transaction. A zombie is fenced."""
    seen = run_program(franz_go, "transact", bootstrap, make_topic(), unique("group"), unique("tx"))
    assert seen["values"] == [*map(str, range(40)), "heir"]
    assert seen["aborted"] >= 2
    assert any(name in seen["fenced"] for name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"))


@pytest.fixture
def exporting(tmp_path: Path) -> Iterator[Exporting]:
    with exporting_broker(tmp_path / "broker") as node:
        create_topic(node.broker.bootstrap, "told")
        yield node


@pytest.mark.needs_control
@pytest.mark.skipif(chosen_kind() == APACHE, reason="Apache Kafka needs a plugin to take clients' metrics")
def test_telemetry(franz_go: list[str], exporting: Exporting) -> None:
    """The client's own metrics (KIP-714), and one of its application (KIP-1076). It sends how much sums have grown."""
    exporting.subscribe("own", "org.apache.kafka.,application.", 100)
    seen = run_program(franz_go, "telemetry", exporting.broker.bootstrap, "told", "go-client")
    assert seen["read"] == seen["written"] > 0
    found = {each.name.removeprefix(OF_CLIENTS): each for each in exporting.sent_by("go-client")}
    assert found["application_records_written"].value == seen["written"]
    for kind in ("producer", "consumer"):
        assert found[f"org_apache_kafka_{kind}_connection_creation_total"].value == 1
    assert {each.labels["client_software_name"] for each in found.values()} == {"kgo"}
    assert len({each.labels["client_instance_id"] for each in found.values()}) == 1


@pytest.mark.needs_control
@pytest.mark.skipif(chosen_kind() == APACHE, reason="Apache Kafka needs a plugin to take clients' metrics")
def test_telemetry_of_a_subscription_to_everything(franz_go: list[str], exporting: Exporting) -> None:
    """Kafka's brokers ask for everything with `*`. franz-go takes it for a prefix, so its pushes are empty."""
    exporting.subscribe("everything", "*", 100)
    seen = run_program(franz_go, "telemetry", exporting.broker.bootstrap, "told", "go-client")
    assert seen["pushes"] > 0
    assert exporting.sent_by("go-client") == []
