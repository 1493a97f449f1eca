"""A broker process: kafkacompat or Apache Kafka, started, killed and restarted on one data folder.

Both brokers get the same Kafka settings, so a test states its settings once. A broker is ready when it answers
ApiVersions and Metadata names a broker at its port.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT, KAFKA_VERSION
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.ports import free_port
from interop_tests.harness.stalls import STALLS
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

KAFKACOMPAT = "kafkacompat"
APACHE = "apache"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL_CHARACTERS = 4000

# A cluster id in Kafka's text form of a UUID.
CLUSTER_ID = "aW50ZXJvcC1jbHVzdGVyLQ"


def single_node_settings(port: int, controller_port: int, data_dir: Path) -> dict[str, str]:
    """Kafka settings of one combined node on loopback, with internal topics that fit one node. Each of their partitions costs
    both kinds of node CPU time, and Kafka's defaults are 50 of each topic."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data_dir),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "100",
        "num.partitions": "3",
    }


def without_retention(kind: str) -> dict[str, str]:
    """Settings of a node that keeps all records of the suite. Many records are years old, and retention would delete
    them if it ran during a test. It runs 30 seconds after the start and every 5 minutes. Nodes of Apache Kafka still
    run it once, because otherwise they would not delete the files of deleted topics."""
    first = {"log.initial.task.delay.ms": "86400000"} if kind == KAFKACOMPAT else {}
    return {"log.retention.check.interval.ms": "86400000"} | first


class BrokerProcess:
    """One node and its data folder. A stopped or killed node can be started again with the same port and data."""

    jvm_options: Sequence[str] = ()
    """JVM options of all nodes of Apache Kafka. Tests are short and reduce compilation. Benchmarks do not."""
    plugins: Sequence[Path] = ()
    """Folders with classes that nodes of Apache Kafka can load."""
    hides_settings = False
    """Ours gets its settings in a file as well: everybody on a machine can read command lines."""

    def __init__(self, kind: str, root: Path, settings: dict[str, str] | None = None) -> None:
        """kind is KAFKACOMPAT or APACHE. root is an empty folder for this node only. settings override the defaults
        above."""
        if kind not in (KAFKACOMPAT, APACHE):
            raise ValueError(f"INTEROP_BROKER is {kind!r}; it may be {KAFKACOMPAT!r} or {APACHE!r}")
        self.kind = kind
        self.root = root
        self.port = free_port()
        self.controller_port = free_port()
        self.data_dir = root / "data"
        self.log_path = root / "broker.log"
        self.settings_path = root / "server.properties"
        own = single_node_settings(self.port, self.controller_port, self.data_dir)
        self.settings = own | without_retention(kind) | (settings or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.version = KAFKA_VERSION
        """The release, if the node is Apache Kafka's."""
        self.environment: dict[str, str] = {}
        """Besides the environment of the tests."""
        self._formatted = False

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self.process is not None, "the broker does not run"
        return self.process.pid

    def log_text(self) -> str:
        """The output of the node over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self, ready_timeout_s: float = READY_TIMEOUT_S) -> BrokerProcess:
        """Start the node and wait until it serves."""
        self.launch()
        try:
            self.wait_until_ready(ready_timeout_s)
        except BaseException:
            self.kill()
            raise
        return self

    def launch(self) -> None:
        """Start the node without waiting until it serves."""
        assert self.process is None, "the broker runs already"
        self.root.mkdir(parents=True, exist_ok=True)
        command = self._apache_command() if self.kind == APACHE else self._kafkacompat_command()
        STALLS.watch(self.log_path)
        with open(self.log_path, "ab") as log:
            environment = os.environ | self.environment
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root, env=environment)

    def stop(self) -> int:
        """Send SIGTERM and wait. Returns the exit status."""
        assert self.process is not None, "the broker does not run"
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker did not stop in {STOP_TIMEOUT_S} s:\n{self._log_tail()}"
            ) from None
        self.process = None
        return status

    def kill(self) -> None:
        """kill -9: the node flushes and announces nothing."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
            self.process = None

    def restart(self) -> BrokerProcess:
        """Start the node again after stop or kill. A running node is stopped first."""
        if self.process is not None:
            self.stop()
        return self.start()

    def _kafkacompat_command(self) -> list[str]:
        command = [sys.executable, "-m", "kafkacompat", "start"]
        if self.hides_settings:
            lines = (f"{key}={_in_properties(value)}\n" for key, value in self.settings.items())
            self.settings_path.write_text("".join(lines))
            if not self._formatted:
                format_command = [sys.executable, "-m", "kafkacompat", "format", "-t", CLUSTER_ID]
                format_command.append(str(self.settings_path))
                subprocess.run(format_command, check=True, capture_output=True, timeout=READY_TIMEOUT_S)
                self._formatted = True
            return [*command, str(self.settings_path)]
        for key, value in self.settings.items():
            command += ["--override", f"{key}={value}"]
        return command

    def _apache_command(self) -> list[str]:
        lines = (f"{key}={_in_properties(value)}\n" for key, value in self.settings.items())
        self.settings_path.write_text("".join(lines))
        logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
        if not self._formatted:
            format_command = [*kafka_java(logging, version=self.version), "kafka.tools.StorageTool", "format"]
            format_command += ["-t", CLUSTER_ID, "-c", str(self.settings_path)]
            done = subprocess.run(format_command, capture_output=True, text=True, timeout=READY_TIMEOUT_S)
            assert done.returncode == 0, f"kafka-storage format failed:\n{done.stdout}\n{done.stderr}"
            self._formatted = True
        *java, classpath = kafka_java("-Xmx768m", logging, jvm=self.jvm_options, version=self.version)
        classpath = ":".join([classpath, *map(str, self.plugins)])
        return [*java, classpath, "kafka.Kafka", str(self.settings_path)]

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until a launched node serves."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while not self._is_ready():
            status = self.process.poll()
            if status is not None:
                raise AssertionError(f"the broker ended with status {status}:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the broker was not ready in {timeout_s} s:\n{self._log_tail()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        with (
            # The node may listen before it answers.
            contextlib.suppress(OSError, ConnectionClosed, Silence),
            Connection(self.bootstrap, timeout_s=2.0) as connection,
        ):
            if connection.call("ApiVersions", 0, {})["ErrorCode"] != 0:
                return False
            brokers = connection.call("Metadata", 1, {"Topics": []})["Brokers"]
            return any(broker["Port"] == self.port for broker in brokers)
        return False

    def _log_tail(self) -> str:
        return self.log_text()[-LOG_TAIL_CHARACTERS:]


def _in_properties(value: str) -> str:
    """The text in the form of a properties file: ASCII, with backslashes escaped."""
    return "".join(each if " " <= each <= "~" and each != "\\" else f"\\u{ord(each):04x}" for each in value)


class ExternalBroker:
    """A broker that someone else runs, at the address in BOOTSTRAP. The suite cannot control it or choose its
    settings."""

    kind = "external"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


def chosen_kind() -> str:
    """The kind of broker in INTEROP_BROKER, by default kafkacompat."""
    return os.environ.get("INTEROP_BROKER") or KAFKACOMPAT


def chosen_bootstrap() -> str | None:
    """The host:port in BOOTSTRAP of a running broker, or None."""
    return os.environ.get("BOOTSTRAP") or None


__all__ = [
    "APACHE",
    "CHECKOUT",
    "KAFKACOMPAT",
    "BrokerProcess",
    "ExternalBroker",
    "chosen_bootstrap",
    "chosen_kind",
    "free_port",
]
