"""The console producer and consumer: keys, headers, groups, and the printed parts of a record."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from interop_tests.harness.java_tools import KafkaTools

RECORDS = 30


def test_keys_headers_and_offsets_come_through(
    tools: KafkaTools, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=3)
    lines = "".join(f"trace:{n},kind:test\tkey-{n}\tvalue {n}\n" for n in range(RECORDS))
    options = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    # It waits for the response to each record, and by default each record waits a second for a batch.
    options += ["--sync", "--timeout", "0"]
    tools.run("ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic, *options, stdin=lines)
    printed = [f"print.{what}=true" for what in ("key", "headers", "offset", "partition", "timestamp")]
    output = tools.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "30000"),
        *(word for what in printed for word in ("--formatter-property", what)),
    )
    seen: dict[str, tuple[str, str]] = {}
    next_offsets = {0: 0, 1: 0, 2: 0}
    for line in output.lines:
        match = re.fullmatch(r"CreateTime:\d{13}\tPartition:(\d)\tOffset:(\d+)\t(\S+)\t(\S+)\t(.+)", line)
        assert match, line
        partition, offset, headers, key, value = match.groups()
        assert int(offset) == next_offsets[int(partition)], line
        next_offsets[int(partition)] += 1
        seen[key] = (headers, value)
    assert seen == {f"key-{n}": (f"trace:{n},kind:test", f"value {n}") for n in range(RECORDS)}
    assert all(next_offsets.values()), "the default partitioner spreads 30 keys over 3 partitions"


@pytest.mark.smoke
def test_a_group_goes_on_where_it_stopped(
    tools: KafkaTools, bootstrap: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    produce = ["ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic]
    consume = [
        "consumer.ConsoleConsumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--group",
        group,
    ]
    consume += ["--from-beginning", "--timeout-ms", "30000", "--max-messages"]
    tools.run(*produce, stdin="".join(f"{n}\n" for n in range(10)))
    assert tools.run(*consume, "6").lines == [str(n) for n in range(6)]
    tools.run(*produce, "--compression-codec", "zstd", stdin="last\n")
    assert tools.run(*consume, "5").lines == ["6", "7", "8", "9", "last"]


def test_a_partition_is_read_from_an_offset(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    tools.run(
        "ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--request-required-acks", "1"),
        stdin="".join(f"{n}\n" for n in range(10)),
    )
    output = tools.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "7"),
        *("--max-messages", "3", "--timeout-ms", "30000"),
    )
    assert output.lines == ["7", "8", "9"]
    assert "Processed a total of 3 messages" in output.err


def test_a_consumer_ends_when_nothing_comes(tools: KafkaTools, bootstrap: str, topic: str) -> None:
    """A long poll is answered when its maximum wait has passed, so --timeout-ms works on an empty topic."""
    output = tools.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "1500"),
        status=None,
        timeout_s=30,
    )
    assert output.lines == []
    assert "Processed a total of 0 messages" in output.err
