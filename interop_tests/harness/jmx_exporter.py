"""The Prometheus JMX exporter as an agent of Apache Kafka's nodes, resolved once by Maven into the checkout's cache."""

from __future__ import annotations

import fcntl
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT, RESOLVE_TIMEOUT_S, download, require_program

VERSION = "1.0.1"
CACHE_DIR = CHECKOUT / ".cache" / f"jmx-exporter-{VERSION}"
RULES = CHECKOUT / "interop_tests" / "metrics" / "jmx_rules.yml"


def jmx_exporter_jar() -> Path:
    """The agent's jar; resolved on the first call."""
    jar = CACHE_DIR / f"jmx_prometheus_javaagent-{VERSION}.jar"
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with open(CACHE_DIR / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            command = [
                require_program("mvn"),
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact=io.prometheus.jmx:jmx_prometheus_javaagent:{VERSION}:jar",
                f"-DoutputDirectory={CACHE_DIR}",
            ]
            download(command, "the JMX exporter", RESOLVE_TIMEOUT_S)
    return jar


def exporting(port: int) -> list[str]:
    """The option of a JVM that serves its MBeans on loopback, under our rules."""
    return [f"-javaagent:{jmx_exporter_jar()}=127.0.0.1:{port}:{RULES}"]
