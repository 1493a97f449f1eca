"""topics, produce, consume, groups: each runs as a process against the shared broker, also against Apache Kafka."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from interop_tests.cli.command import command_line, output_of, refusal_of, run
from interop_tests.harness.waiting import wait_until

Unique = Callable[[str], str]


def test_topics_from_birth_to_death(bootstrap: str, unique: Unique) -> None:
    name = unique("topics")
    where = ("--bootstrap", bootstrap)
    made = output_of(
        "topics", *where, "create", name, "--partitions", "2", "--config", "retention.ms=3600000"
    )
    assert made == f"created {name} with 2 partitions\n"
    wait_until(lambda: name in output_of("topics", "list", *where).splitlines(), "the topic is listed")
    described = output_of("topics", "describe", name, *where)
    assert described.splitlines()[0].split() == [name, "retention.ms=3600000"]
    assert [line.split()[0] for line in described.splitlines()[2:]] == ["0", "1"]

    output_of(
        "topics",
        "alter",
        name,
        *where,
        "--partitions",
        "3",
        "--config",
        "segment.ms=9999",
    )
    output_of("topics", "alter", name, *where, "--unset", "retention.ms")

    def settled() -> bool:
        lines = output_of("topics", "describe", name, *where).splitlines()
        return lines[0].split() == [name, "segment.ms=9999"] and len(lines) == 5

    wait_until(settled, "partitions and settings are changed")
    assert output_of("topics", "delete", name, *where) == f"deleted {name}\n"
    wait_until(lambda: name not in output_of("topics", "list", *where).splitlines(), "the topic is gone")


def test_refusals_name_topic_and_reason(bootstrap: str, topic: str, unique: Unique) -> None:
    where = ("--bootstrap", bootstrap)
    assert "TOPIC_ALREADY_EXISTS" in refusal_of("topics", *where, "create", topic)
    assert "INVALID_TOPIC_EXCEPTION" in refusal_of("topics", *where, "create", "no/slash")
    assert "INVALID_CONFIG" in refusal_of("topics", *where, "create", unique("x"), "--config", "no.such=1")
    assert "KEY=VALUE" in refusal_of("topics", *where, "create", unique("x"), "--config", "retention.ms")
    missing = unique("missing")
    assert f"topic {missing}: UNKNOWN_TOPIC" in refusal_of("topics", *where, "describe", missing)
    assert f"topic {missing}: UNKNOWN_TOPIC" in refusal_of("consume", *where, missing)
    assert "requires --partitions" in refusal_of("topics", *where, "alter", topic)


def test_levels_are_shown_and_checked(bootstrap: str) -> None:
    where = ("--bootstrap", bootstrap)
    rows = {
        line.split()[0]: line.split()[1:] for line in output_of("features", "describe", *where).splitlines()
    }
    assert rows["metadata.version"] == ["4.4-IV2", "3.3-IV3", "4.4-IV2"]
    assert rows["share.version"] == ["2", "0", "2"]
    assert output_of("features", "upgrade", "-r", "4.4", *where) == "every feature has its level\n"
    asked = ("features", "downgrade", "--dry-run", "share.version=1", *where)
    assert output_of(*asked) == "share.version can be 1\n"
    assert "might delete metadata information" in refusal_of("features", "downgrade", "-r", "4.3", *where)
    assert "Can't downgrade" in refusal_of("features", "upgrade", "share.version=1", *where)
    assert "either" in refusal_of("features", "upgrade", *where)


def test_addresses_that_nobody_answers_are_named(free_port: int) -> None:
    address = f"127.0.0.1:{free_port}"
    assert address in refusal_of("topics", "list", "--bootstrap", address)
    assert "host:port" in refusal_of("topics", "list", "--bootstrap", "nonsense")


@pytest.fixture
def free_port() -> int:
    from interop_tests.harness.ports import free_port

    return free_port()


def test_a_wrong_call_is_status_2() -> None:
    assert run("topics", "describes").returncode == 2
    assert run("consume").returncode == 2
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_went_in(bootstrap: str, topic: str, compression: str) -> None:
    text = "".join(f"line {number} ünï\n" for number in range(5000)) + "the last without a newline"
    done = run("produce", "--bootstrap", bootstrap, topic, "--compression", compression, stdin=text.encode())
    assert done.returncode == 0, done.stderr
    assert done.stderr == "5001 records acknowledged\n"
    back = output_of("consume", "--bootstrap", bootstrap, topic, "--from-beginning", "--until-end")
    assert back == text + "\n"


def test_keys_go_where_other_clients_send_them(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=7)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    keys = [f"key-{number}" for number in range(50)]
    expected = {
        key: producer.send(topic, key=key.encode(), value=b"kafka-python").get(20).partition for key in keys
    }
    producer.close()
    lines = "".join(f"{key}|command\n" for key in keys)
    output_of("produce", "--bootstrap", bootstrap, topic, "--key-separator", "|", stdin=lines.encode())
    read = output_of(
        *("consume", "--bootstrap", bootstrap, topic, "--from-beginning", "--until-end"),
        *("--print", "value,key,partition", "--separator", " "),
    )
    found = {
        key: int(partition)
        for value, key, partition in (line.split() for line in read.splitlines())
        if value == "command"
    }
    assert found == expected


def test_a_slow_writer_is_not_kept_waiting(bootstrap: str, topic: str) -> None:
    """A line is sent as soon as it is read, and not only when a batch is full."""
    writing = subprocess.Popen(
        command_line("produce", "--bootstrap", bootstrap, topic),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writing.stdin is not None
    try:
        writing.stdin.write(b"at once\n")
        writing.stdin.flush()
        read = output_of(
            "consume", "--bootstrap", bootstrap, topic, "--from-beginning", "--max-messages", "1"
        )
        assert read == "at once\n"
        assert writing.poll() is None
        _, said = writing.communicate(b"and more\n", timeout=30)
        assert said == b"2 records acknowledged\n"
    finally:
        writing.kill()
        writing.wait()


def test_consume_starts_where_it_is_told(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=1_700_000_000_000 + number * 1000)
    producer.send(topic, value=None, key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_100_000)
    producer.close()
    where = ("consume", "--bootstrap", bootstrap, topic, "--until-end")
    assert output_of(*where, "--offset", "8").split() == ["8", "9", "null"]
    assert output_of(*where, "--since", "1700000009000").split() == ["9", "null"]
    assert output_of(*where, "--since", "2023-11-14T22:13:28.500+00:00").split() == ["9", "null"]
    assert output_of(*where) == ""
    assert output_of(*where, "--since", "2100-01-01T00:00:00+00:00") == ""
    everything = output_of(
        *where, "--offset", "10", "--print", "offset,partition,timestamp,key,headers,value"
    )
    assert everything == "10\t0\t2023-11-14T22:15:00.000+00:00\tk\th=1\tnull\n"
    assert "offsets from 0 up to 11, not 50" in refusal_of(*where[:-1], "--offset", "50")
    assert "partitions 0 to 0, not 4" in refusal_of(*where, "--partition", "4")


def test_groups_are_shown_moved_and_forgotten(bootstrap: str, topic: str, unique: Unique) -> None:
    group = unique("group")
    output_of("produce", "--bootstrap", bootstrap, topic, stdin=b"a\nb\nc\n")
    where = ("--bootstrap", bootstrap)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        wait_until(
            lambda: consumer.poll(500) and consumer.position(TopicPartition(topic, 0)) == 3, "3 records"
        )
        consumer.commit()
        lines = output_of("groups", "describe", group, *where).splitlines()
        assert lines[0] == f"{group}: Stable, 1 member"
        row = lines[-1].split()
        assert row[:5] == [topic, "0", "3", "3", "0"]
        assert row[5] == lines[2].split()[0]
        reset = ("groups", "reset", group, *where, "--topic", topic)
        assert "has members" in refusal_of(*reset, "--to-earliest")
        assert "NON_EMPTY_GROUP" in refusal_of("groups", "delete", group, *where)
    finally:
        consumer.close()
    listed = [line.split() for line in output_of("groups", "list", *where).splitlines()]
    assert [group, "Empty", "classic", "consumer"] in listed

    def offset_after(*target: str) -> int:
        assert output_of(*reset, *target).splitlines()[1].split() == [topic, "0", target_offset]
        return int(output_of("groups", "describe", group, *where).splitlines()[-1].split()[2])

    for target, target_offset in (
        (("--to-earliest",), "0"),
        (("--to-latest",), "3"),
        (("--to-offset", "2"), "2"),
        (("--to-offset", "99"), "3"),
        (("--to-time", "2000-01-01T00:00:00+00:00"), "0"),
    ):
        assert offset_after(*target) == int(target_offset)
    output_of(*reset, "--to-latest", "--dry-run")
    assert output_of("groups", "describe", group, *where).splitlines()[-1].split()[2] == "0"
    assert output_of("groups", "delete-offsets", group, *where, "--topic", topic) == "deleted 1 offsets\n"
    assert "has no offsets" in refusal_of("groups", "delete-offsets", group, *where, "--topic", topic)
    gone = unique("gone")
    output_of("groups", "reset", gone, *where, "--topic", topic, "--to-earliest")
    assert output_of("groups", "delete", gone, *where) == f"deleted {gone}\n"
    assert "GROUP_ID_NOT_FOUND" in refusal_of("groups", "delete", gone, *where)
    assert "GROUP_ID_NOT_FOUND" in refusal_of("groups", "describe", gone, *where)


def test_a_hundred_thousand_records_pass_in_batches(bootstrap: str, topic: str) -> None:
    text = b"".join(b"%0100d\n" % number for number in range(100_000))
    output_of("produce", "--bootstrap", bootstrap, topic, stdin=text)
    read = output_of("consume", "--bootstrap", bootstrap, topic, "--from-beginning", "--until-end")
    assert read.encode() == text


def test_times_without_a_zone_are_utc(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for moment_ms in (1_700_000_000_000, 1_700_003_600_000):
        producer.send(topic, b"%d" % moment_ms, timestamp_ms=moment_ms).get(20)
    producer.close()
    done = run(
        *("consume", "--bootstrap", bootstrap, topic, "--since", "2023-11-14T22:30:00", "--until-end"),
        environment={"TZ": "America/New_York"},
    )
    assert done.stdout == "1700003600000\n", done.stderr


def test_read_committed_shows_what_is_committed_alone(bootstrap: str, topic: str, unique: Unique) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(30)
    for text, ends in (
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"committed as well", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, text)
        producer.flush(30)
        ends(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    where = ("consume", "--bootstrap", bootstrap, topic, "--from-beginning", "--until-end")
    read = output_of(*where, "--isolation-level", "read_committed")
    everything = output_of(*where)
    producer.abort_transaction(30)
    assert read.splitlines() == ["committed", "committed as well"]
    assert everything.splitlines() == ["committed", "aborted", "committed as well", "open"]


def test_a_group_goes_on_behind_what_was_printed(bootstrap: str, topic: str, unique: Unique) -> None:
    group = unique("group")
    where = ("consume", "--bootstrap", bootstrap, topic, "--group", group)
    output_of("produce", "--bootstrap", bootstrap, topic, stdin=b"".join(b"%d\n" % n for n in range(10)))
    assert output_of(*where, "--from-beginning", "--max-messages", "4").split() == ["0", "1", "2", "3"]
    assert output_of(*where, "--from-beginning", "--until-end").split() == ["4", "5", "6", "7", "8", "9"]
    assert output_of(*where, "--from-beginning", "--until-end") == ""
    lines = output_of("groups", "describe", group, "--bootstrap", bootstrap).splitlines()
    assert lines[0] == f"{group}: Empty, 0 members"
    assert lines[-1].split() == [topic, "0", "10", "10", "0", "-"]
    assert "excludes --partition" in refusal_of(*where, "--partition", "0")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_group_shares_partitions_with_members_of_other_clients(
    bootstrap: str, make_topic: Callable[..., str], unique: Unique, tmp_path: Path, ending: signal.Signals
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    with open(tmp_path / "printed", "wb") as printed:
        command = subprocess.Popen(
            command_line(
                *("consume", "--bootstrap", bootstrap, topic, "--group", group, "--from-beginning"),
                *("--print", "partition"),
            ),
            stdout=printed,
            # Tests under nohup would pass the ignored SIGHUP on, and the command goes on then, as it should.
            preexec_fn=partial(signal.signal, ending, signal.SIG_DFL),
        )
    try:

        def shared() -> bool:
            consumer.poll(200)
            return len(consumer.assignment()) == 2

        wait_until(shared, "each has two partitions")
        theirs = {each.partition for each in consumer.assignment()}
        for number in range(4):
            where = ("--bootstrap", bootstrap, topic, "--partition", str(number))
            output_of("produce", *where, stdin=b"x\n" * 5)
        ours = sorted(str(number) for number in {0, 1, 2, 3} - theirs)

        def printed_all() -> bool:
            consumer.poll(0)
            return sorted((tmp_path / "printed").read_text().split()) == [
                each for each in ours for _ in range(5)
            ]

        wait_until(printed_all, "the command has printed the records of its own partitions")
        command.send_signal(ending)
        assert command.wait(60) == 128 + ending

        def has_all() -> bool:
            consumer.poll(200)
            return len(consumer.assignment()) == 4

        wait_until(has_all, "the command has left the group")
        for number in map(int, ours):
            assert consumer.committed(TopicPartition(topic, number)) == 5
    finally:
        command.kill()
        command.wait()
        consumer.close()
