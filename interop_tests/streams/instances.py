"""Instances of Kafka Streams as processes that may be killed with -9, paused and started again, each with its own folder
for settings, stores and log."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from interop_tests.harness.kafka_jars import BEFORE, KAFKA_VERSION, require_program
from interop_tests.harness.kafka_jvm import QUICK_JVM, SHARED
from interop_tests.harness.programs import build_once
from interop_tests.harness.waiting import wait_until

HERE = Path(__file__).resolve().parent
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
STOP_TIMEOUT_S = 40.0
# A rebalance may have to wait until the session of a killed instance expires.
RUNNING_TIMEOUT_S = 90.0
SESSION_TIMEOUT_MS = 6000
CLASSIC_SETTINGS = {
    "num.standby.replicas": "1",
    "consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "consumer.heartbeat.interval.ms": "1000",
}
BROKER_SETTINGS = {
    "group.streams.num.standby.replicas": "1",
    "group.streams.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
}
"""The same for groups of the streams protocol (KIP-1071)."""
PROGRAMS = ("Application.java", "WordCount.java", "Joins.java")
ARCHIVE, PROGRAMS_JAR = "classes.jsa", "programs.jar"
OF_SMOKE_TEST = "SmokeDriver.java"
"""It needs the classes of Kafka's own smoke test, which were last published for the release before."""


def build(version: str = KAFKA_VERSION) -> Path:
    """The folder with the jars of Streams in lib and the compiled programs in classes. The jars include a compiler."""
    java, maven = require_program("java"), require_program("mvn")
    programs = [*PROGRAMS, *([OF_SMOKE_TEST] if version == BEFORE else [])]
    jars = ["slf4j-api-1.7.36", f"kafka-streams-{version}", f"kafka-clients-{version}"]
    if version == BEFORE:
        jars.append(f"kafka-streams-{version}-test")
    compiler = ["-cp", "lib/*", COMPILER, "--release", "17", "-nowarn", "-proc:none"]
    compiler += ["-classpath", ":".join(f"lib/{jar}.jar" for jar in jars), "-d", "classes"]
    copy = [maven, "-q", "-B", "dependency:copy-dependencies", f"-Dstreams={version}"]
    return build_once(
        f"kafka_streams-{version}",
        [HERE / name for name in (*programs, "pom.xml", "log4j2.properties")],
        lambda folder: [[*copy, f"-DoutputDirectory={folder}/lib"], [java, *compiler, *programs]],
    )


def java_command(version: str = KAFKA_VERSION) -> list[str]:
    """Java with the programs of `build`, and with the archive of `class_archive` if there is one. Append a class."""
    folder = build(version)
    archive = folder / ARCHIVE
    if archive.exists():
        return archived_command(folder, f"-XX:SharedArchiveFile={archive}")
    return _java(folder, [], f"{folder}/classes:{folder}/lib/*")


def archived_command(folder: Path, option: str) -> list[str]:
    """The same with an option of archives, for which the class path has to be jars, always in the same order."""
    jars = [folder / PROGRAMS_JAR, *sorted((folder / "lib").glob("*.jar"))]
    return _java(folder, [*SHARED, option], ":".join(map(str, jars)))


def _java(folder: Path, options: Sequence[str], classpath: str) -> list[str]:
    return [
        *(require_program("java"), "-Xmx256m", *QUICK_JVM, *options),
        f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
        *("-cp", classpath),
    ]


class Run(NamedTuple):
    """What a process is told of an application: the path of these settings, and the arguments."""

    settings: Mapping[str, str]
    arguments: Sequence[str]


class Instances:
    """Processes by number, each with one instance of an application. With Application.java it has one of each of
    several applications."""

    def __init__(self, root: Path, name: str, command: Sequence[str], *runs: Run) -> None:
        self.root = root
        self.name = name
        self.command = command
        self._runs = runs
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[int, int] = {}

    @property
    def running(self) -> list[int]:
        return sorted(self._processes)

    def start(self, number: int = 0, threads: int = 1) -> None:
        """Start an instance. It continues with its folder."""
        folder = self._folder(number)
        folder.mkdir(parents=True, exist_ok=True)
        own = {"state.dir": str(folder / "stores"), "num.stream.threads": str(threads)}
        command = list(self.command)
        for place, run in enumerate(self._runs):
            path = folder / f"streams{place}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in {**run.settings, **own}.items()))
            command += [*(["--"] if place else []), str(path), *run.arguments]
        self._log_starts[number] = len(self.log_text(number))
        with open(self.log_path(number), "ab") as log:
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    def wait_until_running(self, *numbers: int) -> None:
        """Wait until each instance, since its last start, has said that it runs."""

        def probe() -> bool:
            self.assert_runs()
            return all("RUNNING" in self.log_text(each)[self._log_starts[each] :] for each in numbers)

        wait_until(probe, f"instances {numbers} of {self.name} run", RUNNING_TIMEOUT_S)

    def log_path(self, number: int) -> Path:
        return self._folder(number) / "log"

    def log_text(self, number: int) -> str:
        path = self.log_path(number)
        return path.read_text(errors="replace") if path.exists() else ""

    def assert_runs(self) -> None:
        """Check that no instance has given up."""
        for number, process in self._processes.items():
            assert process.poll() is None, f"instance {number} ended:\n{self.log_text(number)[-6000:]}"

    def kill(self, number: int = 0) -> None:
        """kill -9."""
        process = self._processes.pop(number)
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """SIGCONT."""
        self._processes[number].send_signal(signal.SIGCONT)

    def stop(self, number: int = 0) -> int:
        """Send SIGTERM. Returns the exit status."""
        process = self._processes.pop(number)
        process.terminate()
        return process.wait(STOP_TIMEOUT_S)

    def lose_stores(self, number: int) -> None:
        """Remove the stores of an instance that does not run, as if it came to another machine."""
        assert number not in self._processes
        shutil.rmtree(self._folder(number) / "stores")

    def close(self) -> None:
        for number in list(self._processes):
            self.kill(number)

    def _folder(self, number: int) -> Path:
        return self.root / f"{self.name}-{number}"
