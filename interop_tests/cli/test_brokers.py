"""`kafkacompat start --brokers`: several brokers on one machine that start, restart, grow and stop as one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from interop_tests.cli.command import command_line, output_of, refusal_of
from interop_tests.cli.machine import Machine
from interop_tests.cli.running_cluster import base_port
from interop_tests.cluster.workload import ConfluentWork, assert_exact
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="these commands start kafkacompat and nothing else"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, base_port())
    yield made
    made.clean_up()


def write(machine: Machine, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": machine.bootstrap, "acks": "all"})
    failed: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % 4, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(60) == 0
    assert not failed


def read(machine: Machine, topic: str, count: int, group: str) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": machine.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def all_read() -> bool:
        found.extend(each.value() for each in consumer.consume(500, 1.0) if each.error() is None)
        return len(found) >= count

    wait_until(all_read, "everything is read", 60)
    consumer.close()
    return sorted(found)


def test_a_single_node_becomes_two_brokers_that_outlive_kills_and_restarts(
    machine: Machine, unique: Callable[[str], str]
) -> None:
    """Whichever broker is killed starts again: also the only controller, while the other serves what it leads."""
    topic, both = unique("grown"), unique("both")
    output_of("format", "--standalone", str(machine.file))
    machine.start()
    output_of("topics", "create", topic, "--partitions", "4", *machine.where)
    first = [b"%d" % number for number in range(100)]
    write(machine, topic, first)
    assert machine.end() == 0

    line = machine.start("--brokers", "2")
    assert f"nodes 1 to 2 serving {machine.bootstrap},127.0.0.1:{machine.port + 1} " in line
    assert "do not outlive it" in line
    assert read(machine, topic, 100, unique("readers")) == sorted(first)
    output_of("topics", "create", both, "--partitions", "4", *machine.where)
    leaders = [
        row.split()[1] for row in output_of("topics", "describe", both, *machine.where).splitlines()[2:]
    ]
    assert sorted(leaders) == ["1", "1", "2", "2"]
    write(machine, both, first)
    with Connection(machine.bootstrap) as connection:
        brokers = connection.call("Metadata", 12, {"Topics": []})["Brokers"]
    racks = {each["NodeId"]: each["Rack"] for each in brokers}
    assert set(racks) == {1, 2}
    assert racks[1] == racks[2] != ""

    machine.kill_broker(2)
    assert "broker 2 was killed by SIGKILL, and starts again now" in machine.errors
    second = [b"after %d" % number for number in range(100)]
    write(machine, both, second)
    machine.kill_broker(1)
    assert read(machine, both, 200, unique("readers")) == sorted([*first, *second])
    assert machine.end() == 0
    assert not machine.runs(1)
    assert not machine.runs(2)

    machine.start()
    assert read(machine, both, 200, unique("readers")) == sorted([*first, *second])
    assert "runs the brokers in" in refusal_of("cluster", "stop", "--data", str(machine.data))
    assert "runs the brokers in" in refusal_of("node", "add", "--data", str(machine.data))
    assert "run already" in refusal_of("start", str(machine.file))
    pids = [machine.pid(1), machine.pid(2)]
    assert machine.process is not None
    machine.process.kill()
    machine.process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no broker is left behind")
    machine.start()
    assert machine.end(signal.SIGINT) == 0


def test_the_brokers_are_watched_at_one_address(machine: Machine, unique: Callable[[str], str]) -> None:
    """Also one that was killed and starts again."""
    topic, token = unique("watched"), machine.root / "token"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    machine.write({"metrics.listener.port": str(port), "watch.token.file": str(token)})
    output_of("format", "--standalone", str(machine.file))
    machine.start("--brokers", "2")
    words = ["watch", "--metrics", f"http://127.0.0.1:{port}", "--json", "--api", "Produce", "--token-file"]
    with subprocess.Popen(
        command_line(*words, str(token)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as watching:
        try:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert b"watching" in watching.stderr.readline()
            output_of("topics", "create", topic, "--partitions", "4", *machine.where)
            machine.kill_broker(2)
            wait_until(lambda: set(machine.leaders(topic)) == {"1", "2"}, "both brokers lead", 60)
            seen: set[int] = set()
            while seen != {1, 2}:
                write(machine, topic, [b"%d" % number for number in range(4)])
                seen.add(json.loads(watching.stdout.readline())["node"])
        finally:
            watching.kill()
    other = machine.root / "other"
    other.write_text("x" * 40)
    assert "needs the token of watch.token.file" in refusal_of(*words, str(other))
    assert machine.end() == 0


def test_the_number_of_brokers_changes_while_clients_write(
    machine: Machine, unique: Callable[[str], str]
) -> None:
    """Partitions move to new brokers and away from those that go. Nothing is lost, and an id can be given again."""
    topic, wide = unique("moved"), unique("wide")
    machine.write({"num.brokers": "2"})
    output_of("format", "--standalone", str(machine.file))
    machine.start()
    resize = ("cluster", "resize", "--data", str(machine.data), "--brokers")
    output_of("topics", "create", topic, "--partitions", "4", *machine.where)
    work = ConfluentWork(machine.bootstrap, topic, 4, "load").start()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", machine.port + 2))
        holder.listen()
        said = refusal_of(*resize, "3")
    assert f"broker 3 cannot listen on PLAINTEXT://127.0.0.1:{machine.port + 2}" in said
    assert set(machine.leaders(topic)) == {"1", "2"}

    assert "4 brokers run at" in output_of(*resize, "4")
    assert sorted(machine.leaders(topic)) == ["1", "2", "3", "4"]
    output_of("topics", "create", wide, "--replication-factor", "4", *machine.where)
    assert f"topics {wide} --replication-factor 2" in refusal_of(*resize, "2")
    output_of("topics", "delete", wide, *machine.where)
    assert "broker 3 is removed" in output_of(*resize, "2")
    assert set(machine.leaders(topic)) == {"1", "2"}
    assert sorted(path.name for path in machine.data.glob("node-*")) == ["node-1", "node-2"]
    output_of(*resize, "1")
    assert machine.leaders(topic) == ["1"] * 4
    output_of(*resize, "3")
    assert set(machine.leaders(topic)) == {"1", "2", "3"}
    work.wait_for_progress()
    work.stop()
    assert_exact(machine.bootstrap, topic, work)
    assert machine.end() == 0
    assert "no `kafkacompat start` runs" in refusal_of(*resize, "2")
    assert "nodes 1 to 3 serving" in machine.start()
    assert "cluster resize --brokers 2" in machine.errors
    assert machine.end() == 0


def test_the_output_of_several_brokers_is_one(machine: Machine) -> None:
    output_of("format", "--standalone", str(machine.file))
    machine.start("-v", "--brokers", "2", "--log-format", "json")
    assert machine.end() == 0
    entries = [json.loads(line) for line in machine.errors.splitlines()]
    assert {entry.get("node") for entry in entries} >= {1, 2}
    machine.errors_path.unlink()
    log = machine.root / "log"
    machine.start("-v", "--log-file", str(log))
    assert machine.end() == 0
    assert machine.errors == ""
    text = log.read_text()
    assert ", node 1)" in text
    assert ", node 2)" in text


def test_the_service_manager_hears_of_all_brokers_once(machine: Machine) -> None:
    output_of("format", "--standalone", str(machine.file))
    path = machine.root / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        machine.start("--brokers", "2", environment={"NOTIFY_SOCKET": str(path)})
        told = manager.recv(1024).decode()
        assert told.startswith("READY=1\nSTATUS=kafkacompat ")
        assert "nodes 1 to 2 serving" in told
        assert machine.end() == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(1024)


def test_brokers_that_cannot_start_are_named(machine: Machine) -> None:
    assert "is not formatted; format it first" in refusal_of("start", "--brokers", "2", str(machine.file))
    assert "num.brokers" in refusal_of("start", "--brokers", "many", str(machine.file))
    output_of("format", "--standalone", str(machine.file))
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", machine.port + 1))
        holder.listen()
        said = refusal_of("start", "--brokers", "2", str(machine.file))
    assert f"broker 2 cannot listen on PLAINTEXT://127.0.0.1:{machine.port + 1}" in said
    assert (machine.data / "meta.properties").exists()
    assert machine.start("--brokers", "2")
    assert machine.end() == 0
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", machine.port + 5))
        holder.listen()
        taken = f"metrics.listener.port={machine.port + 5}"
        said = refusal_of("start", "--override", taken, str(machine.file))
    assert "metrics.listener.port: cannot listen on" in said
    meta = machine.data / "node-2" / "data" / "meta.properties"
    sound = meta.read_text()
    meta.write_text("version=7\nnode.id=2\n")
    said = refusal_of("start", str(machine.file))
    assert said.startswith("broker 2: ")
    assert "version 7" in said
    assert not machine.runs(1)
    meta.write_text(sound)
    machine.start()
    assert machine.end() == 0
