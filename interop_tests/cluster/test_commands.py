"""`kafkacompat produce` and `consume` continue while the nodes of a cluster are restarted one after the other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.cli.command import command_line
from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.waiting import wait_until

Unique = Callable[[str], str]
PARTITIONS = 3


@pytest.mark.parametrize("group", [None, "printers"])
def test_lines_pass_while_every_node_is_restarted(
    cluster: Cluster, unique: Unique, tmp_path: Path, group: str | None
) -> None:
    topic = cluster.create_topic(unique("restarts"), PARTITIONS)
    where = ("--bootstrap", cluster.bootstrap, topic)
    member = () if group is None else ("--group", unique(group))
    said, printed = tmp_path / "said", tmp_path / "printed"
    with open(printed, "wb") as out, open(said, "wb") as errors:
        consume = subprocess.Popen(
            command_line("consume", *where, "--from-beginning", *member), stdout=out, stderr=errors
        )
        produce = subprocess.Popen(
            command_line("produce", *where, "--key-separator", "|"), stdin=subprocess.PIPE, stderr=errors
        )
    assert produce.stdin is not None
    sent: list[str] = []
    try:

        def write(count: int) -> None:
            for _ in range(count):
                sent.append(f"line {len(sent)}")
                produce.stdin.write(f"{len(sent)}|{sent[-1]}\n".encode())
            produce.stdin.flush()

        def all_is_printed() -> bool:
            assert produce.poll() in (None, 0), said.read_text()
            assert consume.poll() is None, said.read_text()
            return set(printed.read_text().splitlines()) >= set(sent)

        write(50)
        wait_until(all_is_printed, "the first lines are printed", 60)
        for node in cluster.brokers:
            node.stop()
            write(50)
            wait_until(all_is_printed, f"lines pass without node {node.node_id}", 60)
            node.start()
            write(50)
            wait_until(all_is_printed, f"lines pass with node {node.node_id}", 60)
            cluster.wait_until_replicated()
        produce.stdin.close()
        assert produce.wait(60) == 0, said.read_text()
        assert sorted(printed.read_text().splitlines()) == sorted(sent)
        assert f"{len(sent)} records acknowledged" in said.read_text()
    finally:
        for process in (produce, consume):
            process.kill()
            process.wait()
