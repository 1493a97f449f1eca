"""Topics and settings with TopicCommand and ConfigCommand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from interop_tests.harness.java_tools import KafkaTools, ToolOutput
from interop_tests.harness.waiting import wait_until

CONFIG = "ConfigCommand"


def listed(output: ToolOutput) -> dict[str, tuple[str, str]]:
    """The output of ConfigCommand: setting to (value, synonyms)."""
    lines = (re.match(r"  (\S+?)=(.*) sensitive=\w+ synonyms=\{(.*)\}", line) for line in output.lines)
    return {match[1]: (match[2], match[3]) for match in lines if match}


@contextmanager
def broker_setting(tools: KafkaTools, entity: list[str], key: str, value: str) -> Iterator[None]:
    """Change the setting during the block, because other tests share the broker."""
    assert "Completed updating" in tools.run(CONFIG, *entity, "--alter", "--add-config", f"{key}={value}").out
    try:
        yield
    finally:
        tools.run(CONFIG, *entity, "--alter", "--delete-config", key)


def test_a_topic_from_create_to_delete(
    tools: KafkaTools, bootstrap: str, unique: Callable[[str], str]
) -> None:
    """The response of CreatePartitions names the topic, and TopicCommand depends on that."""
    topic = unique("topic")
    server = ["TopicCommand", "--bootstrap-server", bootstrap]
    created = tools.run(
        *server, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=7200000"
    )
    assert f"Created topic {topic}." in created.out
    assert topic in wait_until(
        lambda: [line for line in tools.run(*server, "--list").lines if line == topic], f"{topic} is listed"
    )
    described = tools.run(*server, "--describe", "--topic", topic).lines
    assert re.match(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*"
        r"retention\.ms=7200000",
        described[0],
    )
    assert [re.findall(r"(Partition|Leader|Replicas|Isr): (\S+)", line) for line in described[1:]] == [
        [("Partition", str(n)), ("Leader", "1"), ("Replicas", "1"), ("Isr", "1")] for n in range(2)
    ]

    tools.run(*server, "--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in wait_until(
        lambda: "\n".join(
            line
            for line in tools.run(*server, "--describe", "--topic", topic).lines
            if "PartitionCount: 4" in line
        ),
        "the new partitions are there",
    )
    refused = tools.run(*server, "--alter", "--topic", topic, "--partitions", "3", status=1)
    assert "would not be an increase" in refused.out
    twice = tools.run(*server, "--create", "--topic", topic, status=1)
    assert f"Topic '{topic}' already exists" in twice.out
    assert tools.run(*server, "--create", "--topic", topic, "--if-not-exists").status == 0

    tools.run(*server, "--delete", "--topic", topic)
    gone = wait_until(
        lambda: tools.run(*server, "--list", "--topic", topic).lines == [], "the deleted topic is not listed"
    )
    assert gone
    missing = tools.run(*server, "--describe", "--topic", topic, status=1)
    assert f"Topic '{topic}' does not exist" in missing.out


def test_bad_topics_are_refused_with_kafkas_words(
    tools: KafkaTools, bootstrap: str, unique: Callable[[str], str]
) -> None:
    create = ["TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic"]
    too_many = tools.run(*create, unique("topic"), "--replication-factor", "5", status=1)
    assert "replication factor" in too_many.out.lower()
    wrong = tools.run(*create, unique("topic"), "--config", "retention.ms=-5", status=1)
    assert "retention.ms" in wrong.out
    assert tools.run(*create, "no/slash", status=1).out


def test_topic_settings(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    """Every setting is described with its source. A changed value comes first among its synonyms."""
    entity = ["--bootstrap-server", bootstrap, "--entity-type", "topics", "--entity-name", topic]
    tools.run(
        CONFIG, *entity, "--alter", "--add-config", "retention.bytes=1000000,cleanup.policy=[compact,delete]"
    )
    changed = listed(tools.run(CONFIG, *entity, "--describe"))
    assert changed["retention.bytes"][0] == "1000000"
    assert changed["retention.bytes"][1].startswith("DYNAMIC_TOPIC_CONFIG:retention.bytes=1000000")
    assert "DEFAULT_CONFIG:log.retention.bytes=-1" in changed["retention.bytes"][1]
    assert changed["cleanup.policy"][0] == "compact,delete"
    every = listed(tools.run(CONFIG, *entity, "--describe", "--all"))
    assert len(every) >= 30
    assert every["segment.bytes"][0] == "1073741824"
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in every["segment.bytes"][1]

    tools.run(CONFIG, *entity, "--alter", "--delete-config", "retention.bytes,cleanup.policy")
    left = listed(tools.run(CONFIG, *entity, "--describe"))
    assert "retention.bytes" not in left
    assert "cleanup.policy" not in left
    refused = tools.run(CONFIG, *entity, "--alter", "--add-config", "segment.bytes=many", status=1)
    assert "segment.bytes" in refused.out + refused.err
    unknown = tools.run(CONFIG, *entity, "--alter", "--add-config", "no.such.setting=1", status=1)
    assert "no.such.setting" in unknown.out + unknown.err


def test_broker_settings_by_default_and_by_broker(tools: KafkaTools, bootstrap: str) -> None:
    """A setting of one broker overrides the default of all brokers, as its synonyms show."""
    every = ["--bootstrap-server", bootstrap, "--entity-type", "brokers", "--entity-default"]
    one = ["--bootstrap-server", bootstrap, "--entity-type", "brokers", "--entity-name", "1"]
    key = "message.max.bytes"
    with broker_setting(tools, every, key, "1500000"):
        wait_until(
            lambda: listed(tools.run(CONFIG, *one, "--describe", "--all"))[key][0] == "1500000",
            "the default took effect",
        )
        assert listed(tools.run(CONFIG, *every, "--describe"))[key][0] == "1500000"
        with broker_setting(tools, one, key, "2000000"):
            value, synonyms = wait_until(
                lambda: listed(tools.run(CONFIG, *one, "--describe")).get(key), "the broker's own took effect"
            )
            assert value == "2000000"
            assert synonyms.split(", ") == [
                f"DYNAMIC_BROKER_CONFIG:{key}=2000000",
                f"DYNAMIC_DEFAULT_BROKER_CONFIG:{key}=1500000",
                f"DEFAULT_CONFIG:{key}=1048588",
            ]
    every_setting = wait_until(
        lambda: (
            (found := listed(tools.run(CONFIG, *one, "--describe", "--all")))[key][0] == "1048588" and found
        ),
        "the settings are back",
    )
    assert len(every_setting) > 200
    assert every_setting["log.retention.hours"][0] == "168"
    refused = tools.run(CONFIG, *one, "--alter", "--add-config", "log.dirs=/nowhere", status=1)
    assert "log.dirs" in refused.out + refused.err
