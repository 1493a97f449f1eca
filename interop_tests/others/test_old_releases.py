"""Old releases of clients, and new clients that are shown the API versions of an older Kafka."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.capped import KAFKA_2_6, Relay
from interop_tests.harness.ports import free_port
from interop_tests.harness.programs import OTHERS, run_program
from interop_tests.harness.releases import (
    OLD_JAVA,
    OLD_PYTHON,
    OLDEST_JAVA,
    java_release,
    python_release,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = ["0", "1", "2"]
PER_LABEL = 20
START_MS = 1_600_000_000_000
PRODUCE, FETCH = 0, 1


def check_records(seen: dict[str, Any], labels: list[str]) -> None:
    """All records once, in the order of their partitions, and every offset that the client asked for. The last label
    was written after the others had been read and committed."""
    total = len(labels) * PER_LABEL
    assert seen["written"] == total
    by_key = {record["key"]: record for record in seen["records"]}
    assert len(seen["records"]) == len(by_key) == total
    for place, label in enumerate(labels):
        for n in range(PER_LABEL):
            record = by_key[f"{label}-{n}"]
            assert record["value"] == f"{label} {n} " * 10
            assert record["headers"] == {"label": label}
            assert record["partition"] == n % len(PARTITIONS)
            assert record["timestamp"] == START_MS + place * PER_LABEL + n
    early = [record for record in seen["records"] if not record["key"].startswith(labels[-1])]
    middle_ms = START_MS + len(early) // 2
    for partition in PARTITIONS:
        offsets = [record["offset"] for record in seen["records"] if str(record["partition"]) == partition]
        assert offsets == list(range(len(offsets)))
        mine = [record for record in early if str(record["partition"]) == partition]
        assert (seen["oldest"][partition], seen["newest"][partition]) == (0, len(mine))
        assert seen["committed"][partition] == len(mine)
        at_or_after = [record["offset"] for record in mine if record["timestamp"] >= middle_ms]
        assert seen["by_time"][partition] == at_or_after[0]


def check_confluent(seen: dict[str, Any], version: str) -> None:
    assert seen["library"] == version
    check_records(seen, [*CODECS, "idempotent", "later"])
    assert (seen["again"], seen["retention"]) == ("TOPIC_ALREADY_EXISTS", "-1")
    assert sorted(seen["shared"]) == [1, 2]
    assert (seen["state"], seen["protocol_type"], seen["members"]) == ("Stable", "consumer", 2)


def check_java(seen: dict[str, Any], version: str, codecs: list[str], retention: str) -> None:
    assert seen["library"] == version
    check_records(seen, [*codecs, "idempotent", "later"])
    assert (seen["again"], seen["retention"]) == ("TopicExistsException", retention)
    assert sorted(seen["shared"]) == [1, 2]
    for partition in PARTITIONS:
        assert seen["metadata"][partition] == f"as far as {seen['committed'][partition] - 1}"


@pytest.mark.parametrize("version", OLD_PYTHON["confluent-kafka"])
def test_confluent_kafka(bootstrap: str, unique: Callable[[str], str], version: str) -> None:
    """librdkafka 2.0.2, and 2.6.0 with its bug in Fetch, which does not appear with these version ranges."""
    command = python_release("confluent-kafka", version)
    check_confluent(run_program(command, bootstrap, unique("topic"), unique("group")), version)


@pytest.mark.parametrize("version", OLD_PYTHON["kafka-python"])
def test_kafka_python(bootstrap: str, unique: Callable[[str], str], version: str) -> None:
    """kafka-python of 2020, which uses Metadata 0 and 1, and the last release before 3.0."""
    command = python_release("kafka-python", version)
    seen = run_program(command, bootstrap, unique("topic"), unique("group"))
    assert seen["library"] == version
    check_records(seen, [*CODECS, "later"])
    assert seen["again"] == "TOPIC_ALREADY_EXISTS"
    assert (seen["state"], seen["members"]) == ("Stable", 1)


@pytest.mark.parametrize("version", OLD_JAVA)
def test_java(bootstrap: str, unique: Callable[[str], str], version: str) -> None:
    """Kafka's client 2.1, the oldest that Kafka 4 supports, and clients of later years."""
    seen = run_program(java_release(version), bootstrap, unique("topic"), unique("group"), ",".join(CODECS))
    check_java(seen, version, CODECS, "-1")


def test_java_older_than_supported(bootstrap: str, unique: Callable[[str], str]) -> None:
    """The client 0.11 can still read and write. DescribeConfigs 0 is gone, and the client reports that itself."""
    codecs = CODECS[:-1]
    command = java_release(OLDEST_JAVA)
    seen = run_program(command, bootstrap, unique("topic"), unique("group"), ",".join(codecs))
    check_java(seen, OLDEST_JAVA, codecs, "UnsupportedVersionException")


@pytest.fixture
def relay(make_broker: MakeBroker) -> Iterator[Relay]:
    """A relay that shows the versions of Kafka 2.6, in front of a broker that advertises the relay on a second
    listener."""
    made = Relay(KAFKA_2_6)
    second = free_port()
    broker = make_broker(start=False)
    for name, port in (("listeners", second), ("advertised.listeners", made.port)):
        broker.settings[name] += f",SHOWN://127.0.0.1:{port}"
    broker.settings["listener.security.protocol.map"] += ",SHOWN:PLAINTEXT"
    broker.start()
    made.serve(second)
    yield made
    made.close()


def check_versions(relay: Relay, fetch: int) -> None:
    """The client used only versions that it was shown: the newest shown version of Produce, and the newest version of
    Fetch that it knows."""
    assert relay.too_new() == {}
    assert (relay.asked[PRODUCE], relay.asked[FETCH]) == ({8}, {fetch})


@pytest.mark.needs_control
def test_confluent_kafka_where_older_versions_are_shown(relay: Relay, unique: Callable[[str], str]) -> None:
    """A new librdkafka without topic ids and without flexible Fetch."""
    command = [sys.executable, str(OTHERS / "old_python" / "confluent.py")]
    seen = run_program(command, relay.bootstrap, unique("topic"), unique("group"))
    check_confluent(seen, confluent_kafka.libversion()[0])
    check_versions(relay, 11)


@pytest.mark.needs_control
def test_confluent_kafka_2_6_0_where_older_versions_are_shown(
    relay: Relay, unique: Callable[[str], str]
) -> None:
    """This release never uses Fetch below 12, whatever versions are shown. Version 12, which has no topic ids, is
    answered."""
    command = python_release("confluent-kafka", "2.6.0")
    seen = run_program(command, relay.bootstrap, unique("topic"), unique("group"))
    check_confluent(seen, "2.6.0")
    assert relay.too_new() == {FETCH: {12}}


@pytest.mark.needs_control
def test_kafka_python_where_older_versions_are_shown(relay: Relay, unique: Callable[[str], str]) -> None:
    """kafka-python derives the broker's release from the versions that it is shown."""
    command = python_release("kafka-python", "2.3.3")
    check_records(run_program(command, relay.bootstrap, unique("topic"), unique("group")), [*CODECS, "later"])
    check_versions(relay, 10)


@pytest.mark.needs_control
def test_java_where_older_versions_are_shown(relay: Relay, unique: Callable[[str], str]) -> None:
    """A newer Java client with the versions of an older Kafka."""
    arguments = (relay.bootstrap, unique("topic"), unique("group"), ",".join(CODECS))
    check_java(run_program(java_release("3.9.1"), *arguments), "3.9.1", CODECS, "-1")
    check_versions(relay, 11)
