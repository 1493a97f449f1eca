"""Two clusters that mirror each other in turn, by the commands of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kafkacompat.__main__ import main
from kafkacompat.testing import Broker, Kafka, running_broker
from kafkacompat.testing.waiting import until

PAGE = (Path(__file__).parents[2] / "docs/how-to/mirror-a-cluster.md").read_text("utf-8")
TOPIC = "orders"
TIMEOUT_S = 60.0


def commands_of(heading: str) -> list[tuple[str, list[str]]]:
    """The commands of a section, each with the lines that the page shows below it."""
    section = re.split(r"^#", PAGE.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    blocks = "".join(re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    found: list[tuple[str, list[str]]] = []
    for line in blocks.splitlines():
        if line.startswith("$ kafkacompat "):
            found.append((line.removeprefix("$ kafkacompat "), []))
        else:
            found[-1][1].append(line)
    assert found, heading
    return found


def send(broker: Broker, *values: str) -> None:
    refused: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    )
    for value in values:
        producer.produce(
            TOPIC,
            value,
            partition=0,
            on_delivery=lambda error, _: None if error is None else refused.append(error),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not refused


def bytes_of(broker: Broker) -> bytes:
    (log,) = (broker.data_dir / f"{TOPIC}-0").glob("*.log")
    return log.read_bytes()


def wait_until_equal(left: Broker, right: Broker) -> None:
    until(
        lambda: (right.data_dir / f"{TOPIC}-0").exists() and bytes_of(left) == bytes_of(right),
        TIMEOUT_S,
        lambda: "".join(right.said),
    )


def values(broker: Broker, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        return [each.value() for each in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def test_a_cluster_takes_over_and_the_other_follows_it_back(capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker() as first, running_broker() as second:

        def here(text: str) -> str:
            servers = (("127.0.0.1:9092", first), ("127.0.0.1:9192", second))
            for printed, broker in servers:
                text = text.replace(printed, broker.bootstrap_servers)
            return text

        def run(command: str, *shown: str) -> None:
            assert main(here(command).split()) == 0, capsys.readouterr()
            assert capsys.readouterr().out.splitlines()[: len(shown)] == [here(each) for each in shown]

        def page(heading: str) -> None:
            for command, shown in commands_of(heading):
                run(command, *shown)

        run(f"topics create {TOPIC} --partitions 2 --bootstrap 127.0.0.1:9092")
        send(first, "a", "b")
        page("## Start it")
        wait_until_equal(first, second)
        page("## Take over")
        send(second, "c")
        send(first, "lost")
        page("## Turn back")
        wait_until_equal(second, first)
        assert values(first, 3) == [b"a", b"b", b"c"]
        send(second, "d")
        wait_until_equal(second, first)
        run("mirror stop site-a --bootstrap 127.0.0.1:9092", f"{TOPIC} is stopped")
        send(first, "e")
        assert values(first, 5) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_mirror_reads_a_source_with_tls_and_passwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Kafka(secure="SASL_SSL") as source:
        path = tmp_path / "source.properties"
        settings = {"bootstrap.servers": source.bootstrap_servers, **source.security.java()}
        path.write_text("".join(f"{name}={as_property(value)}\n" for name, value in settings.items()))
        source.produce(TOPIC, ["a", "b"])
        with running_broker({"mirror.client.properties": str(path)}) as target:
            words = ("--source", source.bootstrap_servers, "--source-config", str(path))
            bootstrap = ("--bootstrap", target.bootstrap_servers)
            assert main(["mirror", "create", "m", "--topics", TOPIC, *words, *bootstrap]) == 0
            assert values(target, 2) == [b"a", b"b"]
            source.produce(TOPIC, ["c"])
            assert values(target, 3) == [b"a", b"b", b"c"]
            capsys.readouterr()
            assert main(["mirror", "describe", "m", *words[2:], *bootstrap]) == 0
            (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith(TOPIC)]
            assert line.split()[2:6] == ["mirroring", "3", "3", "0"]
        assert source.security.users["client"] not in "".join(target.said)


def as_property(value: str) -> str:
    """Lines and backslashes as in a file of Java's properties."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
