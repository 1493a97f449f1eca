"""`kafkacompat groups` on a streams group (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable

from interop_tests.cli.command import output_of, refusal_of
from interop_tests.harness.streams_groups import begin_streams_group, commit, leave
from interop_tests.harness.wire import Connection


def test_a_streams_group_is_shown_moved_and_forgotten(
    bootstrap: str, connection: Connection, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = make_topic(partitions=2), unique("application")
    where = ("--bootstrap", bootstrap)
    for partition in ("0", "1"):
        output_of("produce", *where, topic, "--partition", partition, stdin=b"a\nb\nc\n")
    epoch = begin_streams_group(connection, group, topic, f"{group}-store-changelog")
    commit(connection, group, topic, [2, 1], epoch)

    def described() -> list[str]:
        return output_of("groups", "describe", group, *where).splitlines()

    lines = described()
    assert lines[:2] == [
        f"{group}: Stable, 1 member",
        f"type streams, group epoch {epoch}, target assignment epoch {epoch}, assignor sticky",
    ]
    offsets = [line.split() for line in lines if line.startswith(topic)]
    assert offsets == [[topic, "0", "2", "3", "1", "one"], [topic, "1", "1", "3", "2", "one"]]
    listed = [line.split() for line in output_of("groups", "list", *where).splitlines()]
    assert [group, "Stable", "streams", "streams"] in listed

    reset = ("groups", "reset", group, *where, "--topic", topic)
    assert "has members" in refusal_of(*reset, "--to-earliest")
    assert "are subscribed to" in refusal_of("groups", "delete-offsets", group, *where, "--topic", topic)
    assert "NON_EMPTY_GROUP" in refusal_of("groups", "delete", group, *where)
    leave(connection, group)
    output_of(*reset, "--to-latest", "--dry-run")
    output_of(*reset, "--to-offset", "1")
    lines = described()
    assert lines[0] == f"{group}: Empty, 0 members"
    offsets = [line.split() for line in lines if line.startswith(topic)]
    assert offsets == [[topic, str(number), "1", "3", "2", "-"] for number in (0, 1)]
    output_of("groups", "alter", group, *where, "--config", "streams.num.standby.replicas=1")
    assert output_of("groups", "delete-offsets", group, *where, "--topic", topic) == "deleted 2 offsets\n"
    assert output_of("groups", "delete", group, *where) == f"deleted {group}\n"
    assert "GROUP_ID_NOT_FOUND" in refusal_of("groups", "describe", group, *where)
