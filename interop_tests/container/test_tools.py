"""The tools in the image's /opt/kafka/bin, beside Kafka's own tools, against one broker of either kind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop_tests.harness.java_tools import KafkaTools

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "image" / "bin" / "kafka-tool"
CLASSES = {
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-topics": "TopicCommand",
}
LOG_LINE = re.compile(
    r"\d\d:\d\d:\d\d|\[\d|\tat |org\.apache|java\.|Caused by|Option --property|Warning: --property"
)
STEADY = ("ClusterId", "LeaderId", "LeaderEpoch", "CurrentVoters", "CurrentObservers")


@dataclass(frozen=True)
class Both:
    """Kafka's tool and ours, each called with the same words."""

    tools: KafkaTools
    bootstrap: str
    scripts: Path

    def ours(self, tool: str, *words: str, stdin: str = "") -> tuple[int, list[str]]:
        done = subprocess.run(
            [self.scripts / f"{tool}.sh", *self._words(tool, words)],
            env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()

    def kafkas(self, tool: str, *words: str, stdin: str = "") -> tuple[int, list[str]]:
        done = self.tools.run(CLASSES[tool], *self._words(tool, words), stdin=stdin, status=None)
        lines = [line for line in done.out.splitlines() if not LOG_LINE.match(line)]
        return done.status, lines

    def _words(self, tool: str, words: tuple[str, ...]) -> list[str]:
        where = ["--bootstrap-server", self.bootstrap]
        return [*words, *where] if tool == "kafka-cluster" else [*where, *words]

    def agree(self, tool: str, *words: str) -> list[str]:
        status, lines = self.ours(tool, *words)
        expected_status, expected = self.kafkas(tool, *words)
        assert (status, sorted(map(settings_in_order, lines))) == (
            expected_status,
            sorted(map(settings_in_order, filter(None, expected) if "" not in lines else expected)),
        ), words
        return lines


def settings_in_order(line: str) -> str:
    """Kafka's tool prints the settings of a topic in the order of a hash table."""
    before, told, settings = line.partition("Configs: ")
    return before + told + ",".join(sorted(settings.split(",")))


@pytest.fixture
def both(tools: KafkaTools, bootstrap: str, tmp_path: Path) -> Both:
    for tool in CLASSES:
        (tmp_path / f"{tool}.sh").symlink_to(SCRIPT)
    return Both(tools, bootstrap, tmp_path)


def test_a_topic_from_create_to_delete(both: Both, unique: Callable[[str], str]) -> None:
    name, theirs = unique("tools_a"), unique("tools_b")
    create = ("--create", "--partitions", "2", "--config", "retention.ms=3600000", "--topic")
    status, lines = both.ours("kafka-topics", *create, name)
    expected = both.kafkas("kafka-topics", *create, theirs)
    assert (status, [line.replace(name, theirs) for line in lines]) == expected
    assert lines[-1] == f"Created topic {name}."
    for words in (
        ("--create", "--topic", name),
        ("--create", "--if-not-exists", "--topic", name),
        ("--describe", "--topic", name),
        ("--describe", "--topic", f"{name}|{theirs}"),
        ("--describe", "--topic", name, "--topics-with-overrides"),
        ("--describe", "--topic", name, "--under-replicated-partitions"),
        ("--describe", "--topic", name, "--at-min-isr-partitions"),
        ("--describe", "--topic", name, "--unavailable-partitions"),
        ("--describe", "--topic", "no-such-topic"),
        ("--describe", "--topic", "no-such-topic", "--if-exists"),
        ("--list", "--topic", name),
        ("--list", "--topic", "tools_._.*"),
        ("--alter", "--topic", name, "--partitions", "2"),
        ("--delete", "--topic", "no-such-topic"),
        ("--delete", "--topic", "no-such-topic", "--if-exists"),
    ):
        both.agree("kafka-topics", *words)
    assert both.ours("kafka-topics", "--alter", "--topic", name, "--partitions", "4") == (0, [])
    assert len(both.agree("kafka-topics", "--describe", "--topic", name)) == 5
    assert both.ours("kafka-topics", "--delete", "--topic", f"{name},{theirs}") == (0, [])
    assert both.ours("kafka-topics", "--list", "--topic", name) == (0, [])


def test_records_through_the_console(both: Both, topic: str, unique: Callable[[str], str]) -> None:
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    assert both.ours("kafka-console-producer", "--topic", topic, *keys, stdin="a:1\nb:2\nc:3\n") == (0, [])
    shown = ("--property", "print.key=true", "--property", "key.separator=,")
    more = (
        "--property",
        "print.partition=true",
        "--property",
        "print.offset=true",
        "--property",
        "print.headers=true",
    )
    read = ("--topic", topic, "--from-beginning", "--max-messages", "3", *shown)
    assert sorted(both.agree("kafka-console-consumer", *read)) == ["a,1", "b,2", "c,3"]
    both.agree("kafka-console-consumer", *read, *more)
    group = unique("console")
    assert len(both.ours("kafka-console-consumer", *read, "--group", group)[1]) == 3
    assert both.ours("kafka-console-consumer", *read, "--group", group, "--timeout-ms", "1000") == (0, [])
    both.agree("kafka-get-offsets", "--topic", topic)
    both.agree("kafka-get-offsets", "--topic", topic, "--time", "earliest")
    both.agree("kafka-consumer-groups", "--describe", "--group", group)
    assert group in both.ours("kafka-consumer-groups", "--list")[1]
    assert both.ours("kafka-consumer-groups", "--delete", "--group", group) == (
        0,
        [f"Deletion of requested consumer groups ('{group}') was successful."],
    )


def test_health_checks(both: Both) -> None:
    """What compose files call: the status says whether a broker answers."""
    both.agree("kafka-cluster", "cluster-id")
    lines = both.agree("kafka-broker-api-versions")
    assert "\tProduce(0): 0 to 13 [usable: 13]," in lines
    describe = ("kafka-metadata-quorum", "describe")
    labels = [
        [line.split(":")[0] for line in ask(*describe, "--status")[1]] for ask in (both.ours, both.kafkas)
    ]
    assert labels[0] == labels[1]
    status = both.ours(*describe, "--status")[1]
    assert [line for line in status if line.startswith(STEADY)] == [
        line for line in both.kafkas(*describe, "--status")[1] if line.startswith(STEADY)
    ]
    ours, theirs = (ask(*describe, "--replication") for ask in (both.ours, both.kafkas))
    assert (ours[0], ours[1][0].split()) == (theirs[0], theirs[1][0].split())
    assert [row.split()[:2] + row.split()[-1:] for row in ours[1]] == [
        row.split()[:2] + row.split()[-1:] for row in theirs[1]
    ]
    both.agree("kafka-metadata-quorum", "describe")
    both.agree("kafka-metadata-quorum", "describe", "--status", "--replication")
    nobody = Both(both.tools, "127.0.0.1:1", both.scripts)
    for tool, *words in (
        ("kafka-broker-api-versions",),
        ("kafka-topics", "--list"),
        ("kafka-cluster", "cluster-id"),
        ("kafka-metadata-quorum", "describe", "--status"),
    ):
        assert nobody.ours(tool, *words) == (1, []), tool
