"""The options of Spark's JVMs, which are short-lived in this suite: little is compiled, and classes come from an
archive.

A driver loads 15,000 classes. With an archive of them, which is created once, it starts a session in half the time. If
the archive cannot be created or does not fit the command, the classes come from the jars. An archive costs as much CPU time as
ten starts save, so only the PySpark of the environment has one, with which most drivers start.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.harness.kafka_jvm import SHARED

# The first option alone reduces the code cache to 48 MB, which is too small for all jobs. The last option is for the
# programs that Spark's local file system starts by the hundred: they need no helper process each.
LITTLE_COMPILED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)
FOLDER = CHECKOUT / ".cache" / "spark" / version("pyspark")
ARCHIVE = FOLDER / "classes.jsa"
TRIED = FOLDER / "classes-tried"
PROGRAM = Path(__file__).with_name("spark_classes.py")
TIMEOUT_S = 240.0


@cache
def quick_jvm() -> str:
    """The value for JAVA_TOOL_OPTIONS and extraJavaOptions. The first caller creates the archive."""
    if not _is_of_the_environment():
        return " ".join((LITTLE_COMPILED, *SHARED))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not TRIED.exists():
            _archive()
            TRIED.touch()
    archived = f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
    return " ".join((LITTLE_COMPILED, *SHARED)) + archived


def _is_of_the_environment() -> bool:
    """Whether PySpark is that of the environment, and not one in a folder that PYTHONPATH names."""
    found = find_spec("pyspark")
    return found is not None and found.origin is not None and Path(found.origin).is_relative_to(sys.prefix)


def _archive() -> None:
    """The JVM of a program that uses every feature a little. It writes the classes that it has loaded when it ends."""
    part = FOLDER / f"part-{os.getpid()}.jsa"
    options = " ".join((LITTLE_COMPILED, *SHARED, f"-XX:ArchiveClassesAtExit={part}"))
    command = [sys.executable, str(PROGRAM), options, str(FOLDER)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        command,
        cwd=FOLDER,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            # The program's JVM also holds the pipe. It lives longer than the program, while it writes the archive.
            process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The machine is too busy to create the archive, so JVMs read the jars.
            process.kill()
            return
    if process.returncode == 0 and part.exists():
        part.rename(ARCHIVE)
