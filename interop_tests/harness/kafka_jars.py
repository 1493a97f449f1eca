"""Apache Kafka's jars, of the reference release and of older ones. Maven resolves all once into the checkout's cache.

`kafka_classpath()` is the argument of `java -cp`. Several test processes may call it at once: a file lock lets one of
them resolve. If Java or Maven is missing, it raises `MissingTool`. Under CI the conftest turns that into a failure.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.4.0"
"""The reference: what kafkacompat is compared with, and whose tools and clients the tests use."""
BEFORE = "4.3.1"
"""The last release of the minor version before. Its nodes and directories are met with everything that it has."""
OLDEST = "3.9.2"
"""The last release of the major version before, from which people come."""
VERSIONS = (KAFKA_VERSION, BEFORE, OLDEST)
CHECKOUT = Path(__file__).resolve().parents[2]
CACHE_DIR = (CHECKOUT / ".cache" / "kafka").resolve()
POM = Path(__file__).with_name("jars") / "pom.xml"
RESOLVE_TIMEOUT_S = 300
ATTEMPTS = 2
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin"


class MissingTool(RuntimeError):
    """A program that the test needs is not installed, or Kafka's jars cannot be resolved."""


def require_program(name: str) -> str:
    """The path of a program on PATH."""
    path = shutil.which(name)
    if path is None:
        raise MissingTool(f"{name} is not on PATH")
    return path


def download(command: list[str], what: str, timeout_s: float, folder: Path | None = None) -> None:
    """Run a command that downloads, or builds downloaded sources, in a folder. It runs once more if it fails, because
    registries fail now and then.

    MissingTool contains the output of both attempts.
    """
    failures: list[str] = []
    while len(failures) < ATTEMPTS:
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            failures.append(f"not done in {timeout_s} s")
            continue
        if done.returncode == 0:
            return
        failures.append(f"status {done.returncode}\n{done.stdout}\n{done.stderr}")
    told = "\n".join(f"attempt {number}: {each}" for number, each in enumerate(failures, 1))
    raise MissingTool(f"{what} cannot be had, tried {ATTEMPTS} times: {' '.join(command)}\n{told}")


def kafka_lib_dir(version: str = KAFKA_VERSION) -> Path:
    """The folder with every jar of this release's broker and tools. The first call resolves those of all releases."""
    assert version in VERSIONS, version
    lib_dir = CACHE_DIR / version / "lib"
    complete = CACHE_DIR / f"complete-{'-'.join(VERSIONS)}"
    if complete.exists():
        return lib_dir
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with open(CACHE_DIR / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            return lib_dir
        command = [require_program("mvn"), "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        download([*command, f"-Dcache={CACHE_DIR}"], "Apache Kafka's jars", RESOLVE_TIMEOUT_S)
        complete.touch()
    return lib_dir


def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """The argument of `java -cp` to run any class of this release's broker or tools: every jar, always in the same
    order."""
    require_program("java")
    return os.pathsep.join(map(str, sorted(kafka_lib_dir(version).glob("*.jar"))))


def storage_test_jar() -> Path:
    """Kafka's tests of tiered storage, with its LocalTieredStorage. The last release that publishes them is the one before the
    reference."""
    folder = CACHE_DIR / BEFORE / "test"
    path = folder / f"kafka-storage-{BEFORE}-test.jar"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            command = [require_program("mvn"), "-q", "-B", f"{DEPENDENCY_PLUGIN}:copy"]
            command += [f"-Dartifact=org.apache.kafka:kafka-storage:{BEFORE}:jar:test"]
            download([*command, f"-DoutputDirectory={folder}"], "Kafka's tests of storage", RESOLVE_TIMEOUT_S)
    return path
