"""kafkajs: old API versions, its metadata cache, and another implementation of the classic group protocol."""

from __future__ import annotations

from collections.abc import Callable

from interop_tests.harness.programs import run_program

ALL = [0, 1, 2, 3]


def test_keys_and_headers(kafkajs: list[str], bootstrap: str, make_topic: Callable[..., str]) -> None:
    """Versions of Produce and Fetch without flexible fields."""
    seen = run_program(kafkajs, "produce", bootstrap, make_topic(partitions=3))
    assert seen["written"] == 40
    by_key = {record["key"]: record for record in seen["records"]}
    assert len(seen["records"]) == len(by_key) == 40
    for codec in ("None", "GZIP"):
        for n in range(20):
            record = by_key[f"{codec}-{n}"]
            assert record["value"] == f"{codec} {n} " * 10
            assert record["headers"] == {"codec": codec, "n": str(n)}


def test_a_group_shares_and_takes_back(
    kafkajs: list[str], bootstrap: str, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """A second member gets half of the partitions. When it leaves, the first member gets them back. Commits reach the
    end."""
    seen = run_program(kafkajs, "group", bootstrap, make_topic(partitions=4), unique("group"))
    assert seen["alone"] == seen["afterwards"] == ALL
    assert sorted(partition for owned in seen["shared"] for partition in owned) == ALL
    assert seen["read"] == 120
    assert seen["read_by_second"] >= 20
    assert seen["committed"] == {str(partition): 30 for partition in ALL}
    assert (seen["state"], seen["members"]) == ("Stable", 2)


def test_admin_calls(kafkajs: list[str], bootstrap: str, unique: Callable[[str], str]) -> None:
    """The controller is one of the brokers listed. AlterConfigs replaces all settings of a topic."""
    seen = run_program(kafkajs, "admin", bootstrap, unique("topic"))
    assert (seen["created"], seen["again"]) == (True, False)
    assert len(seen["leaders"]) == 5
    assert all(leader >= 0 for leader in seen["leaders"])
    assert seen["settings"] == {"retention.bytes": "1000000"}
    assert seen["settings_described"] >= 30
    assert seen["brokers"] >= 1
    assert seen["controller"] >= 0
    assert seen["listed"] is True


def test_seek_by_time(
    kafkajs: list[str], bootstrap: str, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """The first record at or after a time. After the newest record, kafkajs uses the end."""
    seen = run_program(
        kafkajs, "seek", bootstrap, make_topic(configs={"retention.ms": "-1"}), unique("group")
    )
    assert seen["offsets"] == {"before": 0, "exact": 3, "between": 4, "after": 10}
    assert seen["values"] == ["7", "8", "9"]
