"""`kafkacompat cluster`, `node`, `reassign`, `elect`: a cluster of processes grows and shrinks while a client writes
to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.cli.command import command_line, output_of, refusal_of, run
from interop_tests.cli.running_cluster import STOP_TIMEOUT_S, RunningCluster, base_port
from interop_tests.cluster.workload import ConfluentWork, assert_exact
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="these commands start kafkacompat and nothing else"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """A cluster that is not started yet."""
    made = RunningCluster(tmp_path, base_port())
    yield made
    made.kill()


def replicas_of(described: str) -> dict[int, set[str]]:
    """The replicas by partition, from `topics describe` of one topic."""
    rows = [line.split() for line in described.splitlines()[2:]]
    return {int(row[0]): set(row[2].split(",")) for row in rows}


def test_a_cluster_grows_moves_and_shrinks_under_load(
    cluster: RunningCluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A broker and a controller join. Partitions move to them with a throttle and with a plan in a file. Both nodes
    leave. The client that writes all the time loses no record and reads none twice. At the end every process is gone.
    """
    cluster.start("--nodes", "3", "--port", str(cluster.port))
    where, data = ("--bootstrap", cluster.bootstrap), ("--data", str(cluster.data))
    topic = unique("grown")
    output_of("topics", "create", topic, "--partitions", "4", *where)
    for _ in range(2):
        output_of("produce", topic, *where, stdin=(b"x" * 1000 + b"\n") * 2000)
    loaded = unique("loaded")
    output_of("topics", "create", loaded, "--partitions", "2", *where)
    work = ConfluentWork(cluster.bootstrap, loaded, 2, "load").start()

    assert "node 4 joined" in output_of("node", "add", *data)
    cluster.wait_for("node 4 is running with pid")
    rows = cluster.rows()
    assert [rows["4"][title] for title in ("roles", "broker", "quorum", "replicas")] == [
        "broker",
        "alive",
        "observer",
        "0",
    ]
    planned = output_of("reassign", "--dry-run", *where)
    plan = json.loads(planned.splitlines()[-1])
    assert plan["version"] == 1
    assert {entry["topic"] for entry in plan["partitions"]} == {topic, loaded}
    assert not any("4" in ids for ids in replicas_of(output_of("topics", "describe", topic, *where)).values())

    back = tmp_path / "back.json"
    moved = output_of("reassign", "--throttle", "2000000", "--rollback", str(back), *where)
    assert re.search(r"of \d+\.\d MB, \d+ of \d+ replicas", moved), moved
    assert "partitions moved" in moved.splitlines()[-1]
    described = output_of("topics", "describe", topic, *where)
    assert sum("4" in ids for ids in replicas_of(described).values()) == 3, described
    assert "throttled" not in described
    assert output_of("topics", "describe", "--under-replicated", *where) == ""
    assert output_of("topics", "describe", "--at-min-isr", *where) == ""
    assert "nothing to move" in output_of("reassign", *where)

    assert "node 5 is a voter" in output_of("node", "add", "--controller", *data)
    assert cluster.rows()["5"]["quorum"] == "voter"
    output_of("reassign", "--plan", str(back), *where)
    assert not any("4" in ids for ids in replicas_of(output_of("topics", "describe", topic, *where)).values())
    output_of("reassign", "--topics", topic, "--brokers", "3,4,5", *where)
    assert set.union(*replicas_of(output_of("topics", "describe", topic, *where)).values()) == {"3", "4", "5"}
    lines = output_of("quorum", "describe", *where).splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [
        *([each, "voter"] for each in "1235"),
        ["4", "observer"],
    ]
    assert "broker 4 is alive" in refusal_of("quorum", "unregister", "4", *where)
    assert "node 4 is not a voter" in refusal_of("quorum", "remove", "4", *where)
    removed = output_of("node", "remove", "4", *data)
    assert "node 4 has no partitions left" in removed
    assert "the 3 remaining voters survive the loss of 1" in output_of("node", "remove", "5", *data)
    rows = cluster.rows()
    assert set(rows) == {"1", "2", "3"}
    assert {row["behind"] for row in rows.values()} == {"0"}
    work.wait_for_progress()
    work.stop()
    assert_exact(cluster.bootstrap, loaded, work)
    assert run("cluster", "status", *data).returncode == 0

    pids = [cluster.pid(node_id) for node_id in (1, 2, 3, 4, 5)]
    assert cluster.end() == 0
    assert "3 nodes stopped" in cluster.said
    assert "killed" not in cluster.said
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_produce_and_consume_outlive_every_node_that_stops(
    cluster: RunningCluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Each node leads partitions and coordinates groups until it hands them over. While it is away the cluster
    continues."""
    cluster.start("--nodes", "3", "--port", str(cluster.port))
    where, data = ("--bootstrap", cluster.bootstrap), ("--data", str(cluster.data))
    topic = unique("outlived")
    output_of("topics", "create", topic, "--partitions", "6", *where)
    readers = {
        tmp_path / "alone": ("consume", topic, "--from-beginning", *where),
        tmp_path / "group": ("consume", topic, "--from-beginning", "--group", unique("readers"), *where),
    }
    sent: list[bytes] = []
    with contextlib.ExitStack() as processes:

        def begin(command: tuple[str, ...], path: Path) -> subprocess.Popen[bytes]:
            output = processes.enter_context(open(path, "wb"))
            process = subprocess.Popen(
                command_line(*command), stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
            )
            processes.callback(process.kill)
            return process

        reading = [begin(command, path) for path, command in readers.items()]
        writer = begin(("produce", topic, *where), tmp_path / "written")

        def write(count: int) -> None:
            assert writer.stdin is not None
            for _ in range(count):
                sent.append(b"line %d" % len(sent))
                writer.stdin.write(sent[-1] + b"\n")
            writer.stdin.flush()

        def all_read() -> bool:
            return all(sorted(path.read_bytes().splitlines()) == sorted(sent) for path in readers)

        for node_id in ("1", "2", "3"):
            write(100)
            output_of("node", "stop", node_id, *data)
            write(100)
            wait_until(all_read, f"everything is read without node {node_id}")
            output_of("node", "start", node_id, *data)
            wait_until(lambda: run("cluster", "status", *data).returncode == 0, "all replicas are in sync")
        assert writer.stdin is not None
        writer.stdin.close()
        assert writer.wait(STOP_TIMEOUT_S) == 0
        assert b"600 records acknowledged" in (tmp_path / "written").read_bytes()
        assert all_read()
        assert [process.poll() for process in reading] == [None, None]
    assert cluster.end() == 0


def test_a_dead_node_is_told_and_started_again_and_nobody_else_starts_it(
    cluster: RunningCluster, unique: Callable[[str], str]
) -> None:
    """kill -9, the filters of `topics describe`, a leader that comes back, a rolling restart, and a start from the
    same data."""
    cluster.start("--nodes", "3", "--port", str(cluster.port), "--racks", "a,b,c")
    where, data = ("--bootstrap", cluster.bootstrap), ("--data", str(cluster.data))
    topic = unique("dead")
    output_of("topics", "create", topic, "--partitions", "3", *where)
    os.kill(cluster.pid(2), signal.SIGKILL)
    cluster.wait_for("was killed by SIGKILL")
    cluster.wait_for("3 partitions are under-replicated")
    for only in ("--under-replicated", "--at-min-isr"):
        lines = output_of("topics", "describe", only, *where).splitlines()
        assert [line.split()[:2] for line in lines[1:]] == [[topic, each] for each in "012"], only
    assert output_of("topics", "describe", "--under-min-isr", *where) == ""
    assert output_of("topics", "describe", "--unavailable", *where) == ""
    assert cluster.rows()["2"]["pid"] == "down"
    assert run("cluster", "status", *data).returncode == 1
    # Until its session expires, the protocol reports it as alive.
    wait_until(lambda: cluster.rows()["2"]["broker"] == "fenced", "broker 2 is fenced")
    assert "broker 2 is fenced" in refusal_of("reassign", "--brokers", "1,2,3", "--topics", topic, *where)
    assert "too few" in refusal_of("node", "remove", "2", *data)
    output_of("node", "start", "2", *data)
    assert "is already running" in refusal_of("node", "start", "2", *data)
    wait_until(lambda: run("cluster", "status", *data).returncode == 0, "the cluster is whole again")
    assert "has a new leader" in output_of("elect", *where)
    assert "no partition needed another leader" in output_of("elect", topic, *where)
    before = [cluster.pid(node_id) for node_id in (1, 2, 3)]
    assert "every replica is in sync" in output_of("node", "restart", "--all", *data)
    assert not set(before) & {cluster.pid(node_id) for node_id in (1, 2, 3)}

    assert "runs in" in refusal_of("cluster", *data)
    assert "3 nodes stopped" in output_of("cluster", "stop", *data)
    assert cluster.process is not None
    assert cluster.process.wait(STOP_TIMEOUT_S) in (0, 1)
    assert "--nodes" not in cluster.said
    assert "holds 3 nodes" in refusal_of("cluster", "--nodes", "5", *data)
    cluster.said_path.unlink()
    cluster.start()
    assert output_of("topics", "list", *where) == f"{topic}\n"
    with Connection(f"127.0.0.1:{cluster.port}") as connection:
        brokers = connection.call("Metadata", 12, {"Topics": []})["Brokers"]
    assert {each["NodeId"]: each["Rack"] for each in brokers} == {1: "a", 2: "b", 3: "c"}
    assert cluster.end(signal.SIGTERM) == 0


def test_an_impossible_change_of_a_cluster_is_said_in_one_line(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "none"))
    assert "there is no cluster in" in refusal_of("cluster", "status", *data)
    assert "there is no cluster in" in refusal_of("node", "add", *data)
    assert "takes 1 to 100" in refusal_of("cluster", "--nodes", "0", *data)
    port = base_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        said = refusal_of("cluster", "--nodes", "1", "--port", str(port), *data)
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "key=value" in refusal_of("cluster", *data, "--override", "nonsense")
    assert not (tmp_path / "none" / "cluster.json").exists()
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    assert run("reassign", "--throttle", "0").returncode == 2
    assert "cannot be combined with" in refusal_of("reassign", "--plan", str(plan), "--brokers", "1")
    assert "requires the partitions" in refusal_of("elect", "--unclean")
