"""A Spark standalone cluster on loopback. Master, workers, and the executors that workers start are separate
processes.

Only the programs of the pyspark wheel are used, as a user would use them. All processes are killed by process id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import psutil

from interop_tests.harness.kafka_jars import CHECKOUT, MissingTool, download, require_program
from interop_tests.harness.ports import free_port
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.harness.waiting import wait_until
from kafkacompat.pipeline.packages import formats_here, packages

IVY_DIR = CHECKOUT / ".cache" / "ivy"
RESOLVE_TIMEOUT_S = 300.0
EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0


def spark_home() -> Path:
    """The folder of the installed pyspark, which contains all of Spark."""
    try:
        import pyspark
    except ImportError as error:
        raise MissingTool("pyspark is not installed") from error
    return Path(pyspark.__file__).parent


def ivy_dir() -> Path:
    """The value of spark.jars.ivy: Spark's cache, with the connector and the table formats. Ivy fails if two processes
    fill it at once."""
    home = spark_home()
    wanted = packages(formats_here())
    complete = IVY_DIR / f"has-{wanted.replace(':', '-')}"
    IVY_DIR.mkdir(parents=True, exist_ok=True)
    with open(IVY_DIR / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            require_program("java")
            program = IVY_DIR / "nothing.py"
            program.write_text("")
            words = ["--packages", wanted, "--master", "local[1]"]
            for setting in (f"spark.jars.ivy={IVY_DIR}", f"spark.pyspark.python={sys.executable}"):
                words += ["--conf", setting]
            submit = str(home / "bin" / "spark-submit")
            download(
                [submit, *words, str(program)], "Spark's Kafka connector and table formats", RESOLVE_TIMEOUT_S
            )
            complete.touch()
    return IVY_DIR


def spark_environment() -> dict[str, str]:
    """The environment of Spark's programs in this suite."""
    return os.environ | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick_jvm(),
    }


class SparkCluster:
    """A master and its workers. Logs and work folders are below `root`."""

    def __init__(self, root: Path, workers: int = 2, cores: int = 1, memory: str = "1100m") -> None:
        """Each worker offers `cores` cores and `memory` to executors."""
        self.root = root
        self.port = free_port()
        self._workers, self._cores, self._memory = workers, cores, memory
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master_url(self) -> str:
        """The URL for --master."""
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> SparkCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> SparkCluster:
        """Start the master and the workers, and wait until the workers are registered."""
        require_program("java")
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._spawn(
                "master",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"),
            )
            for number in range(self._workers):
                self._spawn(
                    f"worker-{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "--cores", str(self._cores)),
                    *("--memory", self._memory, "--work-dir", str(self.root / f"work-{number}")),
                    self.master_url,
                )
            wait_until(
                lambda: all(
                    "Successfully registered with master" in self.log_text(f"worker-{number}")
                    for number in range(self._workers)
                ),
                "the workers are registered",
                START_TIMEOUT_S,
            )
        except BaseException:
            self.close()
            raise
        return self

    def log_text(self, name: str) -> str:
        """The output of `master` or `worker-N`."""
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def executors(self) -> list[psutil.Process]:
        """The processes of the executors that run now."""
        found = []
        for process in self._processes[1:]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        # A process that an executor has just forked has the same command line.
                        if EXECUTOR_CLASS in child.cmdline() and child.ppid() not in {
                            each.pid for each in found
                        }:
                            found.append(child)
        return found

    def close(self) -> None:
        """Kill all processes, executors first."""
        for executor in self.executors():
            with contextlib.suppress(psutil.NoSuchProcess):
                executor.kill()
        for process in reversed(self._processes):
            process.kill()
            process.wait(END_TIMEOUT_S)
        self._processes.clear()

    def _spawn(self, name: str, main_class: str, *arguments: str) -> None:
        with open(self.root / f"{name}.log", "ab") as log:
            self._processes.append(
                subprocess.Popen(
                    ["bash", str(spark_home() / "bin" / "spark-class"), main_class, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.root,
                    env=spark_environment(),
                )
            )
