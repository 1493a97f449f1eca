"""`kafkacompat cluster`, `node`, `reassign`, `elect`: a cluster of processes grows and shrinks while a client writes to it."""

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
from interop_tests.cluster.workload import ConfluentWork, assert_exact
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.ports import PORTS, free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="these commands start kafkacompat and nothing else"),
]

NODES_MAX = 6
CONTROLLER_PORT_DISTANCE = 1000
STOP_TIMEOUT_S = 40.0


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def base_port() -> int:
    """The first of ports in a row for nodes and their controllers."""

    def probe() -> int:
        port = free_port()
        wanted = [
            port + each + distance for each in range(NODES_MAX) for distance in (0, CONTROLLER_PORT_DISTANCE)
        ]
        return port if max(wanted) < PORTS.stop and all(map(is_free, wanted)) else 0

    return wait_until(probe, "there are free ports in a row")


class RunningCluster:
    """`kafkacompat cluster` in one directory, its lines kept."""

    def __init__(self, root: Path, port: int) -> None:
        self.data = root / "cluster"
        self.port = port
        self.said_path = root / "said"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> RunningCluster:
        with open(self.said_path, "ab") as said:
            self.process = subprocess.Popen(
                command_line("cluster", "--data", str(self.data), *words), stdout=said, stderr=said
            )
        wait_until(lambda: "is active;" in self.said or self.process.poll() is not None, "it is up", 70)
        assert self.process.poll() is None, self.said
        return self

    @property
    def said(self) -> str:
        return self.said_path.read_text()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + each}" for each in range(3))

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.said, f"it says {line!r}")

    def rows(self) -> dict[str, dict[str, str]]:
        """The status by node id."""
        lines = run("cluster", "status", "--data", str(self.data)).stdout.splitlines()
        titles = lines[0].split()
        return {line.split()[0]: dict(zip(titles, line.split(), strict=True)) for line in lines[1:-1]}

    def pid(self, node_id: int) -> int:
        return int((self.data / f"node-{node_id}" / "node.pid").read_text())

    def end(self, number: int = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Whatever is left of it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for path in self.data.glob("node-*/node.pid"):
            pid = int(path.read_text())
            with contextlib.suppress(OSError):
                if str(path.parent).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """One that has not been started."""
    made = RunningCluster(tmp_path, base_port())
    yield made
    made.kill()


def replicas_of(described: str) -> dict[int, set[str]]:
    """Of `topics describe` of one topic: replicas by partition."""
    rows = [line.split() for line in described.splitlines()[2:]]
    return {int(row[0]): set(row[2].split(",")) for row in rows}


def test_a_cluster_grows_moves_and_shrinks_under_load(
    cluster: RunningCluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A broker and a controller join, partitions move there with a throttle and by a file, both leave; the client that writes
    all the time loses nothing and sees nothing twice; at the end every process is gone."""
    cluster.start("--nodes", "3", "--port", str(cluster.port))
    where, data = ("--bootstrap", cluster.bootstrap), ("--data", str(cluster.data))
    topic = unique("grown")
    output_of("topics", "create", topic, "--partitions", "4", *where)
    for _ in range(2):
        output_of("produce", topic, *where, stdin=(b"x" * 1000 + b"\n") * 2000)
    loaded = unique("loaded")
    output_of("topics", "create", loaded, "--partitions", "2", *where)
    work = ConfluentWork(cluster.bootstrap, loaded, 2, "load").start()

    assert "node 4 takes part" in output_of("node", "add", *data)
    cluster.wait_for("node 4 runs with pid")
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
    assert re.search(r"of \d+\.\d MB, 0 of \d+ replicas", moved), moved
    assert "are where they should be" in moved.splitlines()[-1]
    described = output_of("topics", "describe", topic, *where)
    assert sum("4" in ids for ids in replicas_of(described).values()) == 3, described
    assert "throttled" not in described
    assert output_of("topics", "describe", "--under-replicated", *where) == ""
    assert output_of("topics", "describe", "--at-min-isr", *where) == ""
    assert "nothing to move" in output_of("reassign", *where)

    assert "node 5 votes" in output_of("node", "add", "--controller", *data)
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
    assert "node 4 is no voter" in refusal_of("quorum", "remove", "4", *where)
    removed = output_of("node", "remove", "4", *data)
    assert "node 4 has no partitions any more" in removed
    assert "the 3 voters left survive the loss of 1" in output_of("node", "remove", "5", *data)
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


def test_a_dead_node_is_told_and_started_again_and_nobody_else_starts_it(
    cluster: RunningCluster, unique: Callable[[str], str]
) -> None:
    """kill -9, the filters of `topics describe`, a leader that comes back, a rolling restart, and a start from the same data."""
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
    # Until its session is over it is alive to the protocol.
    wait_until(lambda: cluster.rows()["2"]["broker"] == "fenced", "broker 2 is fenced")
    assert "broker 2 is fenced" in refusal_of("reassign", "--brokers", "1,2,3", "--topics", topic, *where)
    assert "too few" in refusal_of("node", "remove", "2", *data)
    output_of("node", "start", "2", *data)
    assert "runs already" in refusal_of("node", "start", "2", *data)
    wait_until(lambda: run("cluster", "status", *data).returncode == 0, "the cluster is whole again")
    assert "has a new leader" in output_of("elect", *where)
    assert "every leader is as it should be" in output_of("elect", topic, *where)
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


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
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
    assert "goes with none" in refusal_of("reassign", "--plan", str(plan), "--brokers", "1")
    assert "have to be named" in refusal_of("elect", "--unclean")
