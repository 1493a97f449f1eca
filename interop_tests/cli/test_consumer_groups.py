"""`kafkacompat groups` on a group of the consumer rebalance protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from interop_tests.cli.command import output_of, refusal_of
from interop_tests.harness.waiting import wait_until

Unique = Callable[[str], str]


def member(bootstrap: str, group: str, topics: list[str], **settings: Any) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    made.subscribe(topics)
    return made


def described(bootstrap: str, group: str) -> tuple[list[str], dict[str, dict[str, str]], list[list[str]]]:
    """The lines before the tables, the members by client id, and the rows of the offsets."""
    lines = output_of("groups", "describe", group, "--bootstrap", bootstrap).splitlines()
    columns = lines[2].split() if len(lines) > 2 else []
    members: dict[str, dict[str, str]] = {}
    if columns[:1] == ["member"]:
        for line in lines[3:]:
            if len(line.split()) != len(columns):
                break
            row = dict(zip(columns, line.split(), strict=True))
            members[row["client"]] = row
    after = 3 + len(members) if members else 2
    return lines[:2], members, [line.split() for line in lines[after + 1 :]]


def test_a_consumer_group_is_shown_moved_and_forgotten(
    bootstrap: str, make_topic: Callable[..., str], unique: Unique
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    where = ("--bootstrap", bootstrap)
    for partition in ("0", "1"):
        output_of("produce", *where, topic, "--partition", partition, stdin=b"a\nb\nc\n")
    first = member(bootstrap, group, [topic], client_id="first")
    second = member(bootstrap, group, [f"^{topic}.*"], client_id="second")
    reset = ("groups", "reset", group, *where, "--topic", topic)
    try:

        def shared() -> bool:
            first.poll(0.1)
            second.poll(0.1)
            return len(first.assignment()) == len(second.assignment()) == 1

        wait_until(shared, "both members have a partition")
        first.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)

        def stable() -> bool:
            shared()
            return described(bootstrap, group)[0][0] == f"{group}: Stable, 2 members"

        wait_until(stable, "the group is stable")
        (_, epochs), members, rows = described(bootstrap, group)
        epoch = epochs.split("group epoch ")[1].split(",")[0]
        assert epochs == (
            f"type consumer, group epoch {epoch}, target assignment epoch {epoch}, assignor uniform"
        )
        assert {name: (row["type"], row["epoch"]) for name, row in members.items()} == {
            "first": ("consumer", epoch),
            "second": ("consumer", epoch),
        }
        subscribed = {name: (row["subscribed"], row["regex"]) for name, row in members.items()}
        # librdkafka joins all its expressions into one, each in parentheses.
        assert subscribed == {"first": (topic, "-"), "second": ("-", f"(^{topic}.*)")}
        for name, consumer in (("first", first), ("second", second)):
            (owned,) = consumer.assignment()
            assert members[name]["assigned"] == members[name]["target"] == f"{topic}:{owned.partition}"
        owner = next(row["member"] for row in members.values() if row["assigned"] == f"{topic}:0")
        assert rows == [[topic, "0", "2", "3", "1", owner]]
        listed = [line.split() for line in output_of("groups", "list", *where).splitlines()]
        assert [group, "Stable", "consumer", "consumer"] in listed
        assert "has members" in refusal_of(*reset, "--to-earliest")
        assert "NON_EMPTY_GROUP" in refusal_of("groups", "delete", group, *where)
        assert "are subscribed to" in refusal_of("groups", "delete-offsets", group, *where, "--topic", topic)
    finally:
        first.close()
        second.close()
    assert described(bootstrap, group)[0][0] == f"{group}: Empty, 0 members"
    output_of(*reset, "--to-offset", "1")
    assert described(bootstrap, group)[2] == [[topic, str(number), "1", "3", "2", "-"] for number in (0, 1)]
    assert output_of("groups", "delete-offsets", group, *where, "--topic", topic) == "deleted 2 offsets\n"
    output_of(*reset, "--to-latest")
    assert output_of("groups", "delete", group, *where) == f"deleted {group}\n"
    assert "GROUP_ID_NOT_FOUND" in refusal_of("groups", "describe", group, *where)
