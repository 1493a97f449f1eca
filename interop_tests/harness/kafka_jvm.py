"""The command of a JVM with Kafka's jars that starts as cheaply as possible, because tests start dozens of them.

A JVM can read Kafka's classes from an archive (class data sharing) that contains the classes of a broker. This saves a
third of the CPU time of its start. If the archive cannot be created or does not fit the installed Java, the classes
come from the jars.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from interop_tests.harness.kafka_jars import CACHE_DIR, KAFKA_VERSION, kafka_classpath, require_program
from interop_tests.harness.ports import free_port

# The programs are short-lived, so less compilation costs less CPU on a small machine.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Otherwise JVM messages about its archive would be read as the tool's output.
SHARED = ("-Xshare:auto", "-Xlog:disable")
TIMEOUT_S = 120.0


def kafka_java(*options: str, jvm: Sequence[str] = QUICK_JVM, version: str = KAFKA_VERSION) -> list[str]:
    """Java with the jars of this release of Kafka and these options. Append a class or a source file. Benchmarks change
    `jvm`."""
    classpath = kafka_classpath(version)
    return [
        require_program("java"),
        *SHARED,
        *_archived(version, classpath),
        *jvm,
        *options,
        "-cp",
        classpath,
    ]


def _archived(version: str, classpath: str) -> list[str]:
    """The JVM option that names the release's archive. The first caller creates the archive. Empty if that failed."""
    archive, tried = (CACHE_DIR / version / name for name in ("classes.jsa", "classes-tried"))
    with open(CACHE_DIR / version / "classes.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tried.exists():
            # The machine is too busy to create the archive, so JVMs read the jars.
            with (
                contextlib.suppress(subprocess.TimeoutExpired),
                tempfile.TemporaryDirectory(prefix="kafka-classes-") as folder,
            ):
                _archive(classpath, Path(folder), archive)
            tried.touch()
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _archive(classpath: str, folder: Path, archive: Path) -> None:
    """Format and start a node, and stop it when it listens. The JVM then writes the classes that it has loaded."""
    port, controller_port = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller_port}\nlog.dirs={folder / 'data'}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n"
    )
    part = folder / "classes.jsa"
    java = [require_program("java"), *SHARED, *QUICK_JVM, "-Xmx256m"]
    format_it = ["kafka.tools.StorageTool", "format", "-t", "aW50ZXJvcC1jbHVzdGVyLQ", "-c", str(settings)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*java, "-cp", classpath, *format_it], check=False, timeout=TIMEOUT_S, cwd=folder, **quiet)
    command = [*java, f"-XX:ArchiveClassesAtExit={part}", "-cp", classpath, "kafka.Kafka", str(settings)]
    with subprocess.Popen(command, cwd=folder, **quiet) as node:
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while node.poll() is None and time.monotonic() < deadline:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        node.terminate()
                        break
                time.sleep(0.1)
            node.wait(TIMEOUT_S)
        finally:
            node.kill()
    if part.exists():
        # No other process may find an incomplete archive. A plain rename fails if /tmp is another file system.
        beside = archive.with_suffix(".part")
        beside.write_bytes(part.read_bytes())
        beside.rename(archive)
