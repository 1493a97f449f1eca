"""`kafkacompat doctor`, against the shared broker of either kind, and against a cluster that loses a node."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.cli.command import output_of, run
from interop_tests.cli.running_cluster import RunningCluster, base_port
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.waiting import wait_until


def test_a_broker_that_is_well(bootstrap: str, topic: str) -> None:
    told = [json.loads(line) for line in output_of("doctor", "--bootstrap", bootstrap, "--json").splitlines()]
    checks = {each["check"]: each for each in told}
    for name in ("brokers", "advertised listeners", "metadata quorum", "clock", "partitions", "versions"):
        assert checks[name]["result"] == "OK", checks[name]
    assert "free" in checks["disks"]["text"]


@pytest.mark.needs_control
@pytest.mark.skipif(chosen_kind() == APACHE, reason="this command starts kafkacompat and nothing else")
def test_a_cluster_that_loses_a_node(tmp_path: Path, unique: Callable[[str], str]) -> None:
    cluster = RunningCluster(tmp_path, base_port())
    try:
        cluster.start("--nodes", "3", "--port", str(cluster.port))
        where = ("--bootstrap", cluster.bootstrap)
        topic = unique("doctored")
        output_of("topics", "create", topic, "--replication-factor", "3", *where)
        wait_until(lambda: run("doctor", *where).returncode == 0, "the cluster is well")
        os.kill(int(cluster.rows()["3"]["pid"]), signal.SIGKILL)

        def complaints() -> dict[str, str]:
            lines = run("doctor", *where, "--json").stdout.splitlines()
            told = [json.loads(line) for line in lines]
            return {each["text"]: each["result"] for each in told if each["result"] != "OK"}

        wait_until(lambda: "broker 3 is registered and fenced" in complaints(), "the loss is told")
        wait_until(
            lambda: any(f"not in sync: {topic}-0" in each for each in complaints()), "so is the replica's"
        )
        # If node 3 led the quorum, the new leader does not know when it was last at the end.
        wait_until(lambda: any(each.startswith("voter 3 ") for each in complaints()), "so is the voter's")
        done = run("doctor", *where)
        assert done.returncode == 1
        assert "- start it; if it is gone for good: kafkacompat quorum unregister 3" in done.stdout
    finally:
        cluster.kill()
