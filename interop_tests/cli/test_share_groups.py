"""`kafkacompat consume --share` and `kafkacompat groups` on share groups (KIP-932), also against Apache Kafka."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from interop_tests.cli.command import command_line, output_of, refusal_of, run
from interop_tests.conftest import MakeBroker
from interop_tests.harness.waiting import wait_until

Unique = Callable[[str], str]
MakeTopic = Callable[..., str]
LOCK_BOUNDS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.record.lock.duration.ms": "3600000",
}
SHORT_MS, RENEWED_MS, ENDLESS_MS = 2_000, 12_000, 3_600_000
"""Lock durations: one that ends soon, one of which a third may be late by eight seconds on a busy machine, and one that
no command outlives (COMMAND_TIMEOUT_S)."""
STATUSES = """
read job
echo "$RECORD_PARTITION $RECORD_OFFSET $RECORD_DELIVERY_COUNT $RECORD_KEY $job"
case "$job" in
reject) exit 65 ;;
later) test "$RECORD_DELIVERY_COUNT" -gt 2 || exit 75 ;;
die) test "$RECORD_DELIVERY_COUNT" -gt 1 || kill -9 $$ ;;
fail) exit 1 ;;
esac
"""


def consume(bootstrap: str, group: str, *words: str) -> tuple[str, ...]:
    return ("consume", "--bootstrap", bootstrap, "--share", group, "--from-beginning", *words)


def produce(bootstrap: str, topic: str, *values: str) -> None:
    output_of(
        *("produce", "--bootstrap", bootstrap, topic, "--partition", "0"),
        stdin="".join(f"{value}\n" for value in values).encode(),
    )


@contextlib.contextmanager
def worker(output: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the background, with its output in a file. It is ended in any case."""
    with open(output, "wb") as out, open(f"{output}.err", "wb") as err:
        process = subprocess.Popen(command_line(*words), stdin=subprocess.PIPE, stdout=out, stderr=err)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_two_workers_share_one_partition(bootstrap: str, topic: str, unique: Unique, tmp_path: Path) -> None:
    group = unique("group")
    jobs = [f"job {number}" for number in range(200)]
    one_by_one = consume(bootstrap, group, topic, "--prefetch", "1")
    with worker(tmp_path / "a", *one_by_one) as first, worker(tmp_path / "b", *one_by_one) as second:
        wait_until(lambda: members(bootstrap, group) == 2, "both workers are members")
        produce(bootstrap, topic, *jobs)
        lines: Callable[[], list[list[str]]] = lambda: [  # noqa: E731
            (tmp_path / name).read_text().splitlines() for name in ("a", "b")
        ]
        wait_until(lambda: sum(map(len, lines())) >= len(jobs), "all jobs are done")
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM
    done = lines()
    assert sorted(done[0] + done[1]) == sorted(jobs)
    assert all(done)
    # Both have left the group at once, and nothing is left.
    assert members(bootstrap, group) == 0
    assert output_of(*consume(bootstrap, group, topic, "--until-end")) == ""


def set_lock(bootstrap: str, group: str, duration_ms: int) -> None:
    """Of records that the group acquires from now on."""
    lock = f"share.record.lock.duration.ms={duration_ms}"
    output_of("groups", "alter", group, "--config", lock, "--bootstrap", bootstrap)


def members(bootstrap: str, group: str) -> int:
    done = run("groups", "describe", group, "--bootstrap", bootstrap)
    return int(done.stdout.split(", ")[1].split()[0]) if done.returncode == 0 else 0


def test_several_topics_are_read_with_names_and_deliveries(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topics = sorted([make_topic(stem="one"), make_topic(partitions=2, stem="two")])
    for topic in topics:
        produce(bootstrap, topic, "a", "b")
    words = (*topics, "--until-end", "--print", "topic,partition,offset,deliveries,value")
    lines = output_of(*consume(bootstrap, unique("group"), *words)).splitlines()
    assert sorted(line.split() for line in lines) == [
        [topic, "0", str(offset), "1", value] for topic in topics for offset, value in enumerate("ab")
    ]


def test_no_more_is_taken_than_the_maximum(bootstrap: str, topic: str, unique: Unique) -> None:
    group = unique("group")
    produce(bootstrap, topic, *"abcde")
    words = consume(bootstrap, group, topic, "--print", "deliveries,value", "--separator", " ")
    assert output_of(*words, "--max-messages", "2") == "1 a\n1 b\n"
    assert output_of(*words, "--until-end") == "1 c\n1 d\n1 e\n"


def test_lines_of_input_decide(bootstrap: str, topic: str, unique: Unique) -> None:
    group = unique("group")
    produce(bootstrap, topic, *"abc")
    words = consume(bootstrap, group, topic, "--by-line", "--print", "deliveries,value", "--separator", " ")
    told = run(*words, "--max-messages", "4", stdin=b"accept\nrelease\nreject\nrenew\naccept\n")
    # A released record is the next one.
    assert told.stdout == "1 a\n1 b\n2 b\n1 c\n"
    assert told.stderr == "kafkacompat: 2 accepted, 1 released, 1 rejected\n"
    assert output_of(*words, "--until-end") == ""
    produce(bootstrap, topic, "d")
    assert run(*words).stdout == "1 d\n"  # the input ends, so the record is released
    refused = run(*words, stdin=b"perhaps\n")
    assert refused.returncode == 1
    assert "not 'perhaps'" in refused.stderr
    assert output_of(*words, "--max-messages", "1", stdin=b"accept\n") == "3 d\n"


def test_the_status_of_a_program_decides(bootstrap: str, topic: str, unique: Unique, tmp_path: Path) -> None:
    group = unique("group")
    script = tmp_path / "work.sh"
    script.write_text(STATUSES)
    jobs = ("good", "reject", "later", "die", "fail")
    output_of(
        *("produce", "--bootstrap", bootstrap, topic, "--partition", "0", "--key-separator", "="),
        stdin="".join(f"k{at}={job}\n" for at, job in enumerate(jobs)).encode(),
    )
    options = ("--retries", "1", "--retry-pause", "0.1", "--until-end")
    done = run(*consume(bootstrap, group, topic, *options, "--exec", f"sh {script}"))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0 0 1 k0 good",
        "0 1 1 k1 reject",
        "0 2 1 k2 later",
        "0 2 2 k2 later",
        "0 2 3 k2 later",
        "0 3 1 k3 die",
        "0 3 2 k3 die",
        "0 4 1 k4 fail",
        "0 4 2 k4 fail",
    ]
    said = done.stderr.splitlines()
    assert f"kafkacompat: {topic}-0 offset 3, delivery 1: SIGKILL, released" in said
    assert f"kafkacompat: {topic}-0 offset 4, delivery 2: status 1, rejected" in said
    assert said[-1] == "kafkacompat: 3 accepted, 4 released, 2 rejected"


def test_a_program_that_cannot_be_run_costs_no_record(bootstrap: str, topic: str, unique: Unique) -> None:
    group = unique("group")
    produce(bootstrap, topic, "a")
    words = consume(bootstrap, group, topic)
    assert "there is no program" in refusal_of(*words, "--exec", "/no/such/program")
    done = run(*words, "--exec", "sh -c /no/such/program")
    assert done.returncode == 1
    assert "status 127" in done.stderr
    assert output_of(*words, "--until-end", "--print", "deliveries,value") == "2\ta\n"


def test_the_group_is_described_moved_configured_and_forgotten(
    bootstrap: str, make_topic: MakeTopic, unique: Unique, tmp_path: Path
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    where = ("--bootstrap", bootstrap)
    produce(bootstrap, topic, "a", "b", "c")
    reset = ("groups", "reset", group, *where, "--topic", topic)
    with worker(tmp_path / "out", *consume(bootstrap, group, topic, "--by-line")) as process:
        assert process.stdin is not None
        wait_until(lambda: (tmp_path / "out").read_text() == "a\n", "the first record is delivered")
        process.stdin.write(b"accept\n")
        process.stdin.flush()
        wait_until(lambda: (tmp_path / "out").read_text() == "a\nb\n", "the second record is delivered")

        lines = output_of("groups", "describe", group, *where).splitlines()
        assert lines[0] == f"{group}: Stable, 1 member"
        epoch = lines[1].split("group epoch ")[1].split(",")[0]
        assert lines[1] == (
            f"type share, group epoch {epoch}, target assignment epoch {epoch}, assignor simple"
        )
        member = dict(zip(lines[2].split(), lines[3].split(), strict=True))
        assert (member["client"], member["epoch"]) == ("kafkacompat-cli", epoch)
        assert (member["subscribed"], member["assigned"]) == (topic, f"{topic}:0,1")
        assert lines[5].split()[1:] == ["0", lines[5].split()[2], "3", "2", "1"]
        listed = [line.split() for line in output_of("groups", "list", *where).splitlines()]
        assert [group, "Stable", "share", "share"] in listed
        assert "has members" in refusal_of(*reset, "--to-earliest")
        assert "has members" in refusal_of("groups", "delete-offsets", group, *where, "--topic", topic)
        assert "NON_EMPTY_GROUP" in refusal_of("groups", "delete", group, *where)
        process.stdin.close()
        assert process.wait(30) == 0
    assert offsets(bootstrap, group)[0][2:] != ["3", "3", "0", "0"]
    output_of(*reset, "--to-latest")
    assert offsets(bootstrap, group) == [[topic, "0", "3", "3", "0", "0"], [topic, "1", "0", "0", "0", "0"]]
    output_of(*reset, "--to-offset", "1", "--partition", "0")
    assert offsets(bootstrap, group)[0] == [topic, "0", "1", "3", "2", "0"]
    assert output_of(*consume(bootstrap, group, topic, "--until-end")) == "b\nc\n"

    alter = ("groups", "alter", group, *where)
    assert output_of(*alter, "--config", "share.delivery.count.limit=3") == f"altered {group}\n"
    assert "INVALID_CONFIG" in refusal_of(*alter, "--config", "share.delivery.count.limit=1000")
    output_of(*alter, "--unset", "share.delivery.count.limit", "--unset", "share.auto.offset.reset")
    assert (
        output_of("groups", "delete-offsets", group, *where, "--topic", topic)
        == f"deleted the offsets of {topic}\n"
    )
    assert offsets(bootstrap, group) == []
    assert output_of("groups", "delete", group, *where) == f"deleted {group}\n"
    assert "GROUP_ID_NOT_FOUND" in refusal_of("groups", "describe", group, *where)


def offsets(bootstrap: str, group: str) -> list[list[str]]:
    """The rows of the offsets of a group without members."""
    lines = output_of("groups", "describe", group, "--bootstrap", bootstrap).splitlines()
    assert lines[0] == f"{group}: Empty, 0 members"
    return [line.split() for line in lines[3:]]


def lag(bootstrap: str, group: str) -> int:
    lines = output_of("groups", "describe", group, "--bootstrap", bootstrap).splitlines()
    rows = [line.split() for line in lines[lines[2].startswith("member") + 2 :]]
    return sum(int(row[4]) for row in rows if len(row) == 6 and row[4].isdigit())


def test_options_of_share_groups_that_do_not_fit_are_refused(
    bootstrap: str, topic: str, unique: Unique
) -> None:
    group = unique("group")
    words = consume(bootstrap, group, topic)
    assert "excludes --partition" in refusal_of(*words, "--partition", "0")
    assert "share.isolation.level" in refusal_of(*words, "--isolation-level", "read_committed")
    assert "needs --exec" in refusal_of(*words, "--retries", "3")
    assert "needs --share" in refusal_of("consume", "--bootstrap", bootstrap, topic, "--exec", "cat")
    assert "need --share" in refusal_of("consume", "--bootstrap", bootstrap, topic, "another")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refusal_of(*consume(bootstrap, group, unique("missing")))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "the group is a consumer group")
        assert "is not a share group" in refusal_of(*words)
    finally:
        consumer.close()


@pytest.mark.needs_control
def test_a_lock_is_renewed_as_long_as_the_program_runs(make_broker: MakeBroker, tmp_path: Path) -> None:
    bootstrap = make_broker(LOCK_BOUNDS).bootstrap
    output_of("topics", "--bootstrap", bootstrap, "create", "jobs", "--partitions", "1")
    set_lock(bootstrap, "g", RENEWED_MS)
    produce(bootstrap, "jobs", "slow")
    program = f"sh -c 'sleep {RENEWED_MS / 1000 + 4}; cat'"
    slow = consume(bootstrap, "g", "jobs", "--max-messages", "1", "--exec", program)
    with worker(tmp_path / "slow", *slow) as first:
        wait_until(lambda: children(first.pid), "the program runs")
        words = consume(bootstrap, "g", "jobs", "--until-end", "--print", "deliveries,value")
        assert output_of(*words) == ""  # it waits for the end of the other's work
        assert first.wait(30) == 0
    assert (tmp_path / "slow").read_text() == "slow"
    assert (tmp_path / "slow.err").read_text() == "kafkacompat: 1 accepted, 0 released, 0 rejected\n"

    # An answer that does not come loses the lock.
    set_lock(bootstrap, "g", SHORT_MS)
    produce(bootstrap, "jobs", "hung")
    by_line = consume(bootstrap, "g", "jobs", "--by-line", "--max-messages", "1")
    with worker(tmp_path / "hung", *by_line) as first:
        wait_until(lambda: (tmp_path / "hung").read_text() == "hung\n", "the record is delivered")
        set_lock(bootstrap, "g", ENDLESS_MS)  # of the one who gets it next
        assert output_of(*words) == "2\thung\n"
        assert first.stdin is not None
        first.stdin.write(b"accept\n")
        first.stdin.flush()
        assert first.wait(30) == 0


def children(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and f"PPid:\t{pid}\n" in Path(f"/proc/{name}/status").read_text():
                found.append(int(name))
    return found


@pytest.mark.needs_control
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_worker_releases_its_record(
    make_broker: MakeBroker, tmp_path: Path, number: signal.Signals
) -> None:
    """Its lock never ends: only a release gives the record to the next one."""
    bootstrap = make_broker(LOCK_BOUNDS).bootstrap
    output_of("topics", "--bootstrap", bootstrap, "create", "jobs", "--partitions", "1")
    set_lock(bootstrap, "g", ENDLESS_MS)
    produce(bootstrap, "jobs", "long")
    with worker(tmp_path / "out", *consume(bootstrap, "g", "jobs", "--exec", "sleep 300")) as process:
        (program,) = wait_until(lambda: children(process.pid), "the program runs")
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert not Path(f"/proc/{program}").exists()
    assert members(bootstrap, "g") == 0
    words = consume(bootstrap, "g", "jobs", "--until-end", "--print", "deliveries,value")
    assert output_of(*words) == "2\tlong\n"


@pytest.mark.needs_control
def test_a_worker_goes_on_after_the_broker_was_killed(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker()
    output_of("topics", "--bootstrap", broker.bootstrap, "create", "jobs", "--partitions", "2")
    produce(broker.bootstrap, "jobs", "a", "b")
    out = tmp_path / "out"
    with worker(out, *consume(broker.bootstrap, "g", "jobs")) as process:
        wait_until(lambda: out.read_text() == "a\nb\n", "the first records are printed")
        wait_until(lambda: lag(broker.bootstrap, "g") == 0, "they are accepted")
        broker.kill()
        broker.start()
        produce(broker.bootstrap, "jobs", "c", "d")
        wait_until(lambda: out.read_text().endswith("c\nd\n"), "the records after the restart are done")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert out.read_text() == "a\nb\nc\nd\n"
