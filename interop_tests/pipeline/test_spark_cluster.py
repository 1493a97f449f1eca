"""Follows docs/how-to/run-on-a-spark-cluster.md: a standalone cluster of one machine, jobs on it, and Spark Connect."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.harness.kafka_jars import CHECKOUT, require_program
from interop_tests.harness.ports import free_port
from interop_tests.harness.spark_cluster import ivy_dir, spark_home
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.harness.waiting import wait_until
from interop_tests.pipeline.declarative_spark import declarative_spark
from interop_tests.pipeline.runs import WITHOUT_CODEGEN, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = text_of("docs/how-to/run-on-a-spark-cluster.md")
JOB = blocks(text_of("docs/tutorials/first-job.md"), "python")[0]
PAGES_BROKER, PAGES_MASTER, PAGES_CONNECT = "127.0.0.1:9092", "7077", "15002"
RUN_TIMEOUT_S = 240.0
START_TIMEOUT_S = 90.0

pytestmark = pytest.mark.needs_control


class Cluster:
    """The page's commands with this Python, broker and Spark, in a folder."""

    def __init__(self, root: Path, bootstrap: str, home: Path, site: Path | None, ivy: Path) -> None:
        """site: the folder of another PySpark than the installed one."""
        require_program("java")
        self.root, self._bootstrap, self._home = root, bootstrap, home
        self._ports = {PAGES_MASTER: free_port(), PAGES_CONNECT: free_port()}
        self._started: list[subprocess.Popen[bytes]] = []
        root.mkdir(exist_ok=True)
        (root / "shop_orders.py").write_text(JOB)
        self._conf = (
            f"--conf spark.jars.ivy={ivy} --conf spark.driver.host=127.0.0.1 --conf spark.ui.enabled=false"
        )
        self.environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # The server of Spark Connect is a daemon too.
            "SPARK_DAEMON_MEMORY": "600m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(map(str, [*([site] if site else []), CHECKOUT, root])),
            "JAVA_TOOL_OPTIONS": quick_jvm(),
        }

    def here(self, text: str) -> str:
        """A text of the page with the ports of this test."""
        text = text.replace(PAGES_BROKER, self._bootstrap)
        for port, own in self._ports.items():
            text = text.replace(f":{port}", f":{own}").replace(f"--port {port}", f"--port {own}")
            text = text.replace(f"port={port}", f"port={own}")
        return text.replace("$PWD", str(self.root))

    def start(self, line: str, ready: str | None = None) -> None:
        """Start a line that ends with `&`, and wait until its output has a text. None: until Spark Connect listens."""
        words = self.here(line.removesuffix(" &")).replace("spark-submit ", f"spark-submit {self._conf} ")
        log = self.root / f"started-{len(self._started)}.log"
        with open(log, "wb") as file:
            self._started.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {words}"],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=self.root,
                    env=self.environment,
                    start_new_session=True,
                )
            )
        if ready is None:
            wait_until(self._connects, "the server of Spark Connect listens", START_TIMEOUT_S)
            return
        wait_until(lambda: ready in log.read_text(errors="replace"), f"{ready} in {log}", START_TIMEOUT_S)

    def _connects(self) -> bool:
        assert all(process.poll() is None for process in self._started), self.said()
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self._ports[PAGES_CONNECT])) == 0

    def said(self) -> str:
        """The end of what has been started last."""
        return (self.root / f"started-{len(self._started) - 1}.log").read_text(errors="replace")[-3000:]

    def start_nodes(self) -> None:
        (block,) = blocks(section(PAGE, "## Start a cluster"))
        _, master, worker = [line for line, _ in commands(block)]
        self.start(master, "I have been elected leader")
        self.start(worker, "Successfully registered with master")

    def type(self, heading: str) -> None:
        """Run the commands of a section in one shell. Each must succeed."""
        lines = [line for line, _ in commands(blocks(section(PAGE, heading))[0])]
        quick = " ".join(WITHOUT_CODEGEN)
        text = self.here("\n".join(line for line in lines if not line.startswith("export PYTHONPATH")))
        text = text.replace("$(python ", f"$({sys.executable} ")
        text = text.replace("spark-submit ", f"spark-submit {self._conf} {quick} ")
        text = text.replace("shop_orders:job", f"shop_orders:job --bootstrap {self._bootstrap}")
        ivy_words = self._conf.replace("--conf spark.jars.ivy=", "--ivy ", 1)
        text = text.replace(
            "kafkacompat pipeline run", f"{sys.executable} -m kafkacompat pipeline run {quick} {ivy_words}"
        )
        done = subprocess.run(
            ["bash", "-ec", text],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            cwd=self.root,
            env=self.environment,
        )
        assert done.returncode == 0, (text, done.stdout[-3000:], done.stderr[-3000:])

    def close(self) -> None:
        for process in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@contextlib.contextmanager
def cluster(root: Path, bootstrap: str, home: Path, ivy: Path, site: Path | None = None) -> Iterator[Cluster]:
    found = Cluster(root, bootstrap, home, site, ivy)
    try:
        found.start_nodes()
        yield found
    finally:
        found.close()


def send(bootstrap: str, *orders: tuple[int, str, int]) -> None:
    """Send orders: number, shop, cents. They are an hour old, except those of the shop `now`."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, shop, amount in orders:
        at_ms = int(time.time() * 1000) - (0 if shop == "now" else 3_600_000)
        order = {"event_id": f"o-{number}", "shop": shop, "event_time_ms": at_ms, "amount_cents": amount}
        producer.produce("orders.raw", json.dumps(order))
    producer.produce("orders.raw", "no order", "no key")
    assert producer.flush(30) == 0


@pytest.mark.usefixtures("no_orders")
def test_the_page_runs_a_job_on_a_cluster_and_over_connect(
    bootstrap: str, spark: SparkSession, tmp_path: Path
) -> None:
    send(bootstrap, (1, "north", 250), (2, "north", 50), (2, "north", 50), (3, "now", 1))
    with cluster(tmp_path / "first", bootstrap, spark_home(), ivy_dir()) as first:
        first.type("## Run a job with the kafkacompat command")
        table = spark.read.parquet(str(tmp_path / "first/run/tables/orders/windows"))
        found = [(row["shop"], row["orders"], row["amount_cents"]) for row in table.collect()]
        assert found == [("north", 2, 300)]
        send(bootstrap, (4, "now", 7))
        first.type("## Submit a job")
    assert [value["reason"] for _, value in read_topic(bootstrap, "orders.rejected")] == [
        "malformed JSON"
    ] * 2
    site = declarative_spark()
    with cluster(tmp_path / "second", bootstrap, site / "pyspark", site.parent / "ivy", site) as second:
        section_text = section(PAGE, "## Use Spark Connect")
        ((line, _),) = commands(blocks(section_text)[0])
        second.start(line)
        (program,) = blocks(section_text, "python")
        done = subprocess.run(
            [sys.executable, "-c", second.here(program)],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            cwd=second.root,
            env=second.environment,
        )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    said = done.stdout.splitlines()
    sums: dict[str, list[int]] = {}
    for line in said:
        if not line.startswith("{"):
            shop, *numbers = line.split()
            sums[shop] = [
                each + int(number) for each, number in zip(sums.get(shop, [0, 0]), numbers, strict=True)
            ]
    # The two windows of the shop `now` may be one.
    assert sums == {"north": [2, 300], "now": [2, 8]}
    assert [json.loads(line)["line"] for line in said if line.startswith("{")] == ["no order"] * 2
