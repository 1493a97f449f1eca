"""`kafkacompat pipeline demo` as a user runs it: all processes start, results arrive, all processes end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from interop_tests.cli.pages import blocks, section, text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.harness.waiting import wait_until
from interop_tests.pipeline.runs import WITHOUT_CODEGEN, read_topic
from kafkacompat.pipeline.demo.topic_sizes import TopicSizes
from kafkacompat.security.cluster_address import ClusterAddress

pytestmark = pytest.mark.needs_control

RESULTS = {
    "logs": ("logs.summary",),
    "activity": ("activity.visitors", "activity.top_pages"),
    "metrics": ("metrics.windows", "metrics.latest"),
}
TUTORIAL = text_of("docs/tutorials/first-pipeline.md")
UP_TIMEOUT_S = 900.0
END_TIMEOUT_S = 150.0
PARTITIONS = 3


def command_of(process: psutil.Process) -> str:
    """Empty for a process that has ended, such as a short-lived helper of the JVM."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


class DemoRun:
    """One demo and its output."""

    def __init__(self, root: Path, *options: str) -> None:
        self.log = root / "demo.log"
        command = [sys.executable, "-m", "kafkacompat", "pipeline", "demo", "--no-browser", *options]
        environment = spark_environment() | {
            "KAFKACOMPAT_IVY": str(ivy_dir()),
            "JAVA_TOOL_OPTIONS": quick_jvm(),
            "PYSPARK_SUBMIT_ARGS": " ".join((*WITHOUT_CODEGEN, "pyspark-shell")),
        }
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=root)
        self.family: list[psutil.Process] = []

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, timeout_s: float = UP_TIMEOUT_S) -> str:
        """Wait for the line with these words."""

        def found() -> str | None:
            assert self.process.poll() is None or words in self.said(), self.said()
            return next((line for line in self.said().splitlines() if words in line), None)

        line = wait_until(found, f"the demo says {words!r}", timeout_s)
        self.count_family()
        return line

    def count_family(self) -> None:
        """Remember the processes that exist now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.family += psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> int:
        """Wait for its end. Returns the exit status."""
        self.count_family()
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the demo did not end:\n{self.said()}") from None

    def survivors(self) -> list[psutil.Process]:
        """The remaining processes of all that it started."""
        _, alive = psutil.wait_procs(self.family, 5.0)
        return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    def kill(self) -> None:
        self.count_family()
        for process in (*self.family, self.process):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[Callable[..., DemoRun]]:
    """start_demo(options) runs a demo. None of its processes outlives the test."""
    started: list[DemoRun] = []

    def start(*options: str) -> DemoRun:
        started.append(DemoRun(tmp_path, *options))
        return started[-1]

    yield start
    for demo in started:
        demo.kill()


def records(bootstrap: str, topic: str) -> int:
    """The number of records in the topic."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "log_level": 0})
    try:
        ends = [
            reader.get_watermark_offsets(TopicPartition(topic, number), 10.0) for number in range(PARTITIONS)
        ]
        return sum(end for _, end in ends)
    finally:
        reader.close()


def asked(page: str) -> dict[str, Any]:
    """What the console knows of the query that counts views as they come, and of the health."""
    with urllib.request.urlopen(f"{page}api/cluster", timeout=10.0) as answer:
        view = json.load(answer)
    (live,) = [query for query in view["queries"] if query["query"] == "activity-live"]
    return live | {"health": view["health"]["text"]}


def follow_the_tutorial(bootstrap: str, page: str) -> None:
    """A person's events of now are counted, one of yesterday is late, and the demo's events go on being counted."""

    def is_at_present() -> bool:
        newest_ms = TopicSizes(ClusterAddress(bootstrap)).newest_ms(["activity.page_views"])
        return newest_ms is not None and newest_ms > (time.time() - 30) * 1000

    wait_until(is_at_present, "the demo's events reach the present", UP_TIMEOUT_S, 1.0)
    now, yesterday = blocks(section(TUTORIAL, "## Send your own event"))
    for block in (now, yesterday):
        spoken = block.replace("ADDRESS_OF_THE_BROKER", bootstrap)
        program = f'kafkacompat() {{ {sys.executable} -m kafkacompat "$@"; }}\n{spoken}'
        subprocess.run(["sh", "-c", program], check=True, timeout=60.0)

    def views() -> int:
        latest = dict(read_topic(bootstrap, "activity.top_pages"))
        return sum(row["views"] for row in latest.values() if row["page"] == "/hello")

    wait_until(lambda: views() == 9, "the views are counted", UP_TIMEOUT_S, 1.0)
    wait_until(lambda: asked(page)["late"] >= 1, "the one of yesterday is late", UP_TIMEOUT_S, 1.0)
    before = asked(page)
    kept = before["records"] - before["late"] + 20
    wait_until(lambda: asked(page)["records"] - asked(page)["late"] >= kept, "the demo goes on", UP_TIMEOUT_S)
    assert asked(page)["health"] == "healthy"
    assert views() == 9, "an event of yesterday changes no window"


def test_the_demo_brings_results_and_leaves_nothing_running(
    start_demo: Callable[..., DemoRun], tmp_path: Path
) -> None:
    require_program("java")
    data = tmp_path / "data"
    demo = start_demo(
        "--rate", "5", "--trigger", "10", "--master", "local[2]", "--port", "0", "--data", str(data)
    )
    bootstrap = demo.wait_for("broker at ").split("broker at ")[1]
    page = demo.wait_for("page at ").split("page at ")[1].split(",")[0]
    demo.wait_for("Ctrl-C ends all")
    for job, topics in RESULTS.items():
        wait_until(
            lambda topics=topics: any(records(bootstrap, topic) for topic in topics),
            f"{job} has results",
            UP_TIMEOUT_S,
            0.5,
        )
    with urllib.request.urlopen(page, timeout=10.0) as answer:
        assert answer.status == 200
        assert b"<html" in answer.read()
    follow_the_tutorial(bootstrap, page)
    demo.wait_for("metrics.raw")
    names = {command_of(process) for process in demo.family}
    for words in (" start ", " generate ", " collect ", " run all ", " console ", "java"):
        assert any(words in name for name in names), (words, names)
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 0, demo.said()
    assert demo.survivors() == []
    said = demo.said()
    order = [
        said.index(f"demo: {name} ended") for name in ("generator", "collector", "jobs", "console", "broker")
    ]
    assert order == sorted(order)
    assert "was killed" not in said
    for folder in ("broker", "tables", "checkpoint", "access-log", "collector", "output"):
        assert (data / folder).is_dir()


def test_a_process_that_cannot_start_is_named_and_the_others_end(start_demo: Callable[..., DemoRun]) -> None:
    require_program("java")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        demo = start_demo("--port", str(taken.getsockname()[1]))
        demo.wait_for("broker at ")
        assert demo.end() == 1
    assert (
        "kafkacompat: the console ended with status 1, and said: kafkacompat: cannot listen on" in demo.said()
    )
    assert "demo: broker ended" in demo.said()
    assert demo.survivors() == []
    folder = Path(demo.said().split("data in ")[1].splitlines()[0])
    assert not os.path.exists(folder)
