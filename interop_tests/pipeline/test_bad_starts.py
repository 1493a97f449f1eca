"""The run command without something that it needs: one line names it, and the exit status is not zero."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.ports import free_port
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.pipeline.runs import JobRun, is_soak, quick_spark
from kafkacompat.pipeline.options import DEFAULT_WATERMARK_S

END_TIMEOUT_S = 180.0
Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Started:
    """The logs job as a separate command, with its output."""

    def __init__(self, bootstrap: str, folder: Path, *options: str, **environment: str) -> None:
        words = [sys.executable, "-m", "kafkacompat", "pipeline", "run", "logs", "--until-caught-up"]
        words += ["--bootstrap", bootstrap, "--master", "local[1]", "--ivy", str(ivy_dir())]
        words += ["--checkpoint", str(folder / "checkpoint"), "--output", str(folder / "tables")]
        self._process = subprocess.Popen(
            [*words, *quick_spark(), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=spark_environment() | {"JAVA_TOOL_OPTIONS": quick_jvm()} | environment,
        )

    def end(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end."""
        with self._process:
            try:
                said, errors = self._process.communicate(timeout=END_TIMEOUT_S)
            except BaseException:
                self._process.kill()
                raise
        return subprocess.CompletedProcess(self._process.args, self._process.returncode, said, errors)

    def kill(self) -> None:
        """Kill it if it still runs."""
        with self._process:
            self._process.kill()


@pytest.fixture
def run(bootstrap: str, tmp_path: Path) -> Run:
    """run("--output", ..., NAME=value) starts the logs job with these options and environment, and waits for its end."""

    def command(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return Started(bootstrap, tmp_path, *options, **environment).end()

    return command


@pytest.fixture(scope="module", autouse=True)
def unanswered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Started]]:
    """A run with an address where no broker listens. It starts before the other tests, so that they need not wait for
    its timeout."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        started = Started(address, tmp_path_factory.mktemp("unanswered"))
        yield address, started
        started.kill()


def assert_said(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that it failed, and printed one line with these words and without a traceback."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("kafkacompat: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("option", ["--output", "--checkpoint"])
def test_a_folder_that_cannot_be_written(option: str, run: Run, tmp_path: Path) -> None:
    """There is a file in place of the folder, so not even root can write there."""
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "folder")
    assert_said(run(option, place), place, "cannot be written")


def test_no_java(run: Run, tmp_path: Path) -> None:
    """Java is neither on PATH nor in JAVA_HOME."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if not program.name.startswith("java") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    assert_said(run(PATH=str(programs), JAVA_HOME=""), "java", "Java 17")
    assert_said(run(JAVA_HOME=str(tmp_path)), "JAVA_HOME", str(tmp_path))


def test_no_connector(run: Run, tmp_path: Path) -> None:
    """An empty cache, an empty home directory and no network."""
    require_program("java")
    options = f"-Duser.home={tmp_path} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={free_port()}"
    done = run("--ivy", str(tmp_path / "ivy"), JAVA_TOOL_OPTIONS=options)
    assert_said(done, "connector", "spark-sql-kafka", "--ivy")


def begun(run: JobRun) -> psutil.Process:
    """The JVM of a run that has planned its first batches."""
    assert run.begin().wait_for_batches(1), run.said()
    # Its children are not meant. Some of them were just forked and have the same name, or have just ended.
    (jvm,) = (each for each in psutil.Process(run.pid).children() if "java" in each.name())
    return jvm


def assert_refused_beside(run: JobRun, bootstrap: str) -> None:
    """A second run on the checkpoint of a running one is refused, and the first run continues."""
    second = Started(bootstrap, run.root, "--output", str(run.root / "other"))
    assert_said(second.end(), "is in use by another run", str(run.checkpoint))
    assert run.is_alive


@pytest.mark.parametrize(
    "end", ["the JVM is killed", "both are terminated"] if is_soak() else ["the JVM is killed"]
)
def test_a_jvm_that_ends_by_itself(end: str, bootstrap: str, tmp_path: Path) -> None:
    """If only the JVM is killed, the error names it. If the JVM is stopped together with the command, as by a service
    manager, it is a clean stop."""
    run = JobRun("logs", bootstrap, tmp_path / "run", is_endless=True)
    try:
        jvm = begun(run)
        if end == "the JVM is killed":
            assert_refused_beside(run, bootstrap)
            jvm.kill()
            assert run.end(END_TIMEOUT_S) == 1
            assert "kafkacompat: Spark's JVM has ended" in run.said()
            # Nothing remains that would refuse the next run, but that run must not have other windows.
            changed = Started(bootstrap, run.root, "--watermark", "7")
            assert_said(changed.end(), f"--watermark {DEFAULT_WATERMARK_S}", "--watermark 7")
        else:
            os.kill(run.pid, signal.SIGTERM)
            jvm.terminate()
            assert run.end(END_TIMEOUT_S) == 0, run.said()
        assert "Traceback" not in run.log.read_text()
    finally:
        run.kill()


def test_no_broker(unanswered: tuple[str, Started]) -> None:
    """An address where no broker listens."""
    address, started = unanswered
    assert_said(started.end(), address)
