"""Runs the commands and programs of README.md and of docs/how-to, with other ports and folders and a defined end.

Slow ones are left out and run elsewhere: Spark and the demo in pipeline/, `kafkacompat cluster` and `node` in
cli/test_cluster.py and security/test_secure_cluster.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.cli.running_cluster import base_port
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.harness.ports import free_port
from interop_tests.harness.programs import require_program
from interop_tests.harness.waiting import wait_until
from kafkacompat.testing import Broker, running_broker

README = text_of("README.md")
START = text_of("docs/how-to/start-a-cluster.md")
CHANGE = text_of("docs/how-to/change-a-cluster.md")
PIPELINE = text_of("docs/how-to/run-the-pipeline.md")
SECURE = text_of("docs/how-to/secure-a-cluster.md")
CORES = text_of("docs/how-to/use-every-core.md")
WATCH = text_of("docs/how-to/watch-a-cluster.md")
DEAD_LETTERS = text_of("docs/how-to/keep-dead-letters.md")
TIME_LIMIT_S = 120.0
NODES = range(1, 6)
PORTS = {9091 + node: 10091 + node for node in NODES}
"""The ports of each node's broker and controller on the page."""

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="these commands start kafkacompat and nothing else"),
]


class Shell:
    """A bash process that executes one line after another, as a reader types them."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        command = programs / "kafkacompat"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kafkacompat "$@"\n')
        command.chmod(0o755)
        self.folder = folder
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
            start_new_session=True,
        )

    def type(self, line: str) -> str:
        """The output of the line. The line must succeed."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(TIME_LIMIT_S, self.end)
        watchdog.start()
        try:
            process.stdin.write(f'{line}\necho "; status $?"\n')
            process.stdin.flush()
            said = ""
            for printed in process.stdout:
                if (end := re.search(r"; status (\d+)\n$", printed)) is not None:
                    said += printed[: end.start()]
                    assert end.group(1) == "0", (line, said)
                    return said
                said += printed
        finally:
            watchdog.cancel()
        raise AssertionError(f"{line}: the shell ended: {said}")

    def end(self) -> None:
        """Kill the shell and all processes that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as running:
        yield running


def at(line: str, broker: Broker) -> str:
    """The line with the address of the test's broker. AssertionError if the line has no place for an address."""
    if "127.0.0.1:9092" in line:
        return line.replace("127.0.0.1:9092", broker.bootstrap_servers)
    asked = re.sub(
        r"\bkafkacompat (topics|produce|consume|groups) ",
        rf"kafkacompat \1 --bootstrap {broker.bootstrap_servers} ",
        line,
    )
    assert asked != line
    return asked


def run_program(program: str, broker: Broker) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap_servers)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_readme(shell: Shell, broker: Broker) -> None:
    (block,) = blocks(section(README, "### From the command line"))
    said = {line: shell.type(at(line, broker)) for line, _ in commands(block)}
    first, again = (text for line, text in said.items() if "consume" in line)
    assert sorted(first.split()[:3]) == sorted(again.split()[:3]) == ["a", "b", "c"]
    assert "readers" in said["kafkacompat groups list"]


def test_the_commands_of_dead_letters(shell: Shell, broker: Broker) -> None:
    for block in blocks(DEAD_LETTERS, "console"):
        for line, shown in commands(block):
            assert shell.type(at(line, broker)).split() == "\n".join(shown).split()


def test_the_python_of_the_readme(broker: Broker) -> None:
    (program,) = blocks(section(README, "### From Python"), "python")
    # A reader's program waits longer for further records.
    quicker = program.replace("consumer_timeout_ms=10000", "consumer_timeout_ms=4000")
    assert quicker != program
    printed = run_program(quicker, broker).splitlines()
    assert [line.split()[1:] for line in printed] == [[str(n), "b'hello", f"{n}'"] for n in range(10)]


def test_the_fixture_of_the_readme(tmp_path: Path) -> None:
    (program,) = blocks(section(README, "### In your own tests"), "python")
    application = f"from {__name__} import produce_tea; produce_tea(kafka.bootstrap_servers)"
    asked = program.replace("    ...", f"    {application}", 1)
    assert asked != program
    (tmp_path / "test_readme.py").write_text(asked)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_readme.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def produce_tea(bootstrap_servers: str) -> None:
    """An application."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("orders", b"tea")
    assert producer.flush(20) == 0


def test_collecting_and_making_traffic(shell: Shell, broker: Broker) -> None:
    logs = shell.folder / "logs"
    logs.mkdir()
    line = '192.0.2.1 - - [01/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x"\n'
    (logs / "access.log").write_text(line * 50)
    (collect,) = blocks(section(PIPELINE, "## Collect log files"))
    moved = at(collect.strip(), broker).replace("/var/log/nginx", str(logs))
    shell.type(f"{moved} --until-end")
    (generate,) = blocks(section(PIPELINE, "## Generate traffic"))
    shell.type(f"{at(generate.strip(), broker)} --count 200 --at-once")
    counted = "kafkacompat consume --bootstrap {} {} --from-beginning --until-end | wc -l"
    assert int(shell.type(counted.format(broker.bootstrap_servers, "logs.raw"))) >= 50
    assert int(shell.type(counted.format(broker.bootstrap_servers, "metrics.raw"))) > 0


class ByHand:
    """The nodes that a reader creates by hand with the pages about clusters, on ports that are free here."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.ports = {port: free_port() for pair in PORTS.items() for port in pair}
        (shown,) = blocks(section(START, "## By hand: three server.properties"), "properties")
        for node in NODES:
            self._write(node, shown)

    def _write(self, node: int, shown: str) -> None:
        """Change what the page says: node.id, the ports and log.dirs; for node 4 also the role."""
        listeners, rest = re.search(r"^listeners=.*$", shown, re.MULTILINE), shown
        assert listeners is not None
        own = listeners.group().replace("9092", str(9091 + node)).replace("10092", str(10091 + node))
        rest = rest.replace(listeners.group(), own).replace("node.id=1", f"node.id={node}")
        rest = rest.replace("/tmp/hand/node-1", str(self.shell.folder / f"data-{node}"))
        if node == 4:
            rest = rest.replace("broker,controller", "broker").replace(
                f",CONTROLLER://127.0.0.1:{10091 + node}", ""
            )
        (self.shell.folder / f"node-{node}.properties").write_text(self.here(rest))

    def here(self, line: str) -> str:
        """The line with the ports of this test."""
        return re.sub(
            r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{self.ports[int(found.group(1))]}", line
        )

    def type(self, line: str) -> str:
        """Run one line. Nodes that it starts serve before the next line."""
        if "kafkacompat start" not in line:
            return self.shell.type(self.here(line))
        nodes = [int(node) for node in re.findall(r"start node-(\d)", line)] or [1, 2, 3]
        logs = [self.shell.folder / f"node-{node}.log" for node in nodes]
        for log in logs:
            log.unlink(missing_ok=True)
        said = self.shell.type(self.here(line))
        wait_until(
            lambda: all(log.exists() and " serving " in log.read_text() for log in logs),
            f"nodes {nodes} serve",
        )
        return said

    def type_all(self, block: str) -> None:
        """Run a block. A command that must print nothing is repeated until it does."""
        for line, _ in commands(block):
            if "--under-replicated" in line:
                wait_until(lambda line=line: not self.type(line), "all replicas are in sync")
            else:
                self.type(line)


def test_every_core_is_used_as_the_page_says(shell: Shell) -> None:
    ports = {"9092": str(first := base_port()), "10092": str(first + 1000)}
    root = shell.folder / "every-core"

    def here(text: str) -> str:
        moved = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[found.group(1)]}", text)
        moved = moved.replace("/tmp/every-core", str(root))
        return re.sub(
            r"\bkafkacompat (topics|reassign)", rf"kafkacompat \1 --bootstrap 127.0.0.1:{first}", moved
        )

    (settings,) = blocks(section(CORES, "## With a settings file"), "properties")
    (shell.folder / "server.properties").write_text(here(settings))
    said = {}
    for block in blocks(section(CORES, "## With a settings file")):
        for line, _ in commands(block):
            said[line] = shell.type(here(line))
            if " start " in line:
                log = shell.folder / "broker.log"
                wait_until(
                    # The shell that runs the line in the background makes the file itself.
                    lambda log=log: log.exists() and " serving " in log.read_text(),
                    "the brokers serve",
                    60,
                )
    status = next(text for line, text in said.items() if "cluster status" in line)
    assert "4 partitions" in status
    (resizing,) = blocks(section(CORES, "## More or fewer brokers"))
    *resizes, (stop, _) = commands(resizing)
    for line, _ in resizes:
        said[line] = shell.type(here(line))
    assert "3 brokers run at" in said[resizes[0][0]]
    assert "broker 3 is removed" in said[resizes[1][0]]
    shell.type(f"{stop}; wait $(cat broker.pid)")


def test_a_cluster_by_hand_is_started_grown_mended_and_restarted(shell: Shell) -> None:
    hand = ByHand(shell)
    (start,) = blocks(section(START, "## By hand: three server.properties"))
    hand.type_all(start)
    hand.type("kafkacompat topics create clicks --partitions 3 --bootstrap $BROKERS")
    _, broker, controller, out = blocks(section(CHANGE, "## Growing and shrinking"))
    hand.type_all(broker)
    hand.type_all(controller)
    hand.type_all(out)
    for line in re.findall(r"`(kafkacompat (?:topics|quorum) describe[^`]*)`", WATCH):
        hand.type(f"{line} --bootstrap $BROKERS")
    # The machine of node 2 loses its disk.
    shell.type(f"kill -9 $(cat node-2.pid); wait $(cat node-2.pid); rm -r {shell.folder}/data-2")
    (lost,) = blocks(section(CHANGE, "## Replacing a lost node"))
    hand.type_all(lost)
    _, restart = blocks(section(CHANGE, "## Rolling restart"))
    hand.type_all(restart)
    hand.type("kafkacompat elect --bootstrap $BROKERS")
    described = hand.type("kafkacompat quorum describe --bootstrap $BROKERS")
    assert [str(node) in described for node in (1, 2, 3)] == [True] * 3


def test_a_node_is_secured_as_the_page_says(shell: Shell) -> None:
    require_program("openssl")
    ports = {port: str(free_port()) for port in ("9092", "10092")}

    def here(text: str) -> str:
        moved = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[found.group(1)]}", text)
        moved = moved.replace("/tmp/secured", str(shell.folder / "data"))
        # A reader's node has the default port.
        return moved.replace("--command-config", f"--bootstrap 127.0.0.1:{ports['9092']} --command-config")

    (certificates,) = blocks(section(SECURE, "## Certificates"))
    for line, _ in commands(certificates):
        shell.type(line)
    (settings,) = blocks(section(SECURE, "## The node"), "properties")
    (shell.folder / "secured.properties").write_text(here(settings))
    (start,) = blocks(section(SECURE, "## The node"))
    for line, _ in commands(start):
        shell.type(line)
    log = shell.folder / "node.log"
    wait_until(lambda: log.exists() and " serving " in log.read_text(), "the node serves")
    (client,) = blocks(section(SECURE, "## Clients"), "properties")
    (shell.folder / "admin.properties").write_text(client)
    (ask,) = blocks(section(SECURE, "## Clients"))
    said = {line: shell.type(here(line)) for line, _ in commands(ask)}
    assert any("hello" in text for line, text in said.items() if " consume " in line)
    of_alice = here("--command-config alice.properties")
    refused = shell.type(f"! kafkacompat consume clicks --from-beginning --until-end {of_alice} 2>&1")
    assert "TOPIC_AUTHORIZATION_FAILED" in refused
    assert "clicks" not in shell.type(f"kafkacompat topics list {of_alice}")
    assert "secret" not in log.read_text()
