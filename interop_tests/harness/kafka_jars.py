"""Apache Kafka's jars, resolved once by Maven into the checkout's cache.

`kafka_classpath()` is what `java -cp` takes. Several test processes may ask at once: a file lock lets one of
them resolve. A missing Java or Maven raises `MissingTool`; the conftest turns that into a failure under CI.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.3.0"
CHECKOUT = Path(__file__).resolve().parents[2]
CACHE_DIR = CHECKOUT / ".cache" / f"kafka-{KAFKA_VERSION}"
RESOLVE_TIMEOUT_S = 300


class MissingTool(RuntimeError):
    """A program that the test needs is not installed, or Kafka's jars do not resolve."""


def require_program(name: str) -> str:
    """The path of a program on PATH."""
    path = shutil.which(name)
    if path is None:
        raise MissingTool(f"{name} is not on PATH")
    return path


def kafka_lib_dir() -> Path:
    """The folder that holds every jar of Apache Kafka's broker and tools; resolved on the first call."""
    lib_dir = CACHE_DIR / "lib"
    complete = CACHE_DIR / "complete"
    if complete.exists():
        return lib_dir
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with open(CACHE_DIR / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            return lib_dir
        command = [
            require_program("mvn"),
            "-q",
            "-B",
            "-f",
            str(Path(__file__).with_name("pom.xml")),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={lib_dir}",
        ]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S)
        except subprocess.TimeoutExpired as expired:
            raise MissingTool(f"Maven did not resolve Kafka's jars in {RESOLVE_TIMEOUT_S} s") from expired
        if result.returncode != 0:
            raise MissingTool(f"Maven could not resolve Kafka's jars:\n{result.stdout}\n{result.stderr}")
        complete.touch()
    return lib_dir


def kafka_classpath() -> str:
    """What to give `java -cp` to run any class of Apache Kafka's broker or tools."""
    require_program("java")
    return f"{kafka_lib_dir()}/*"
