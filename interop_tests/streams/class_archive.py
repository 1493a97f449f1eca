"""An archive of the classes of Kafka Streams (class data sharing), with which an instance starts in little more than half the
CPU time.

It is made before the tests (`harness/fetching.py`), by a word count with joins on a broker of ours. Without it instances read
their classes from the jars.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired

from interop_tests.harness.kafka_jars import KAFKA_VERSION
from interop_tests.streams.application import WordCount
from interop_tests.streams.instances import ARCHIVE, BROKER_SETTINGS, PROGRAMS_JAR, archived_command, build
from kafkacompat.testing.process import running_broker

BROKER = {
    **BROKER_SETTINGS,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def make(version: str = KAFKA_VERSION) -> None:
    """The first call makes it, unless the machine is too busy."""
    folder = build(version)
    archive = folder / ARCHIVE
    with open(folder / "classes.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _pack(folder / "classes", folder / PROGRAMS_JAR)
            part = folder / "classes.part"
            with suppress(AssertionError, TimeoutExpired):
                _run(version, archived_command(folder, f"-XX:ArchiveClassesAtExit={part}"))
                part.rename(archive)  # no JVM finds an incomplete one


def _pack(classes: Path, jar: Path) -> None:
    """An archive needs all classes to be in jars."""
    with zipfile.ZipFile(jar, "w") as packed:
        for path in sorted(classes.rglob("*.class")):
            packed.write(path, path.relative_to(classes))


def _run(version: str, java: list[str]) -> None:
    """An instance that runs and ends. The JVM then writes the classes that it has loaded."""
    with running_broker(BROKER) as broker, tempfile.TemporaryDirectory(prefix="streams-classes-") as folder:
        application = WordCount(
            Path(folder), broker.bootstrap_servers, "classes", 1, "streams", version, joins=True
        )
        application.command = [*java, "Application"]
        application.start()
        try:
            application.wait_until_running(0)
            application.stop()
        finally:
            application.close()


if __name__ == "__main__":
    make(*sys.argv[1:])
