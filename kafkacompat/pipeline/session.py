"""The Spark session of a run: the connector, small-machine defaults, RocksDB for state, and plain words for what is missing.

Follows Spark 4.0's settings. Knows nothing of jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.options import CONNECTOR, RunOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# All RocksDB instances of a process together.
STATE_MEMORY_MB_MAX: Final = 256
# Old batches kept in a checkpoint; Spark's own 100 keeps ten times the files.
BATCHES_RETAINED: Final = 10
LOG_NAME: Final = "spark.log"
SAID_CHARACTERS_MAX: Final = 400


def local_path(place: str) -> Path | None:
    """The path of a folder on this machine; None for one on another file system (hdfs://, s3a://)."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(parts.path)
    return Path(place) if parts.scheme == "" else None


def require_writable(place: str, what: str) -> None:
    """PipelineFailed unless the folder exists or can be made, and a file in it. Other file systems are left to Spark."""
    path = local_path(place)
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise PipelineFailed(f"{what} folder {place} cannot be written: {error.strerror}") from None


def require_java() -> None:
    """PipelineFailed unless there is a Java that Spark would find."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(Path(home) / "bin" / "java", os.X_OK):
            raise PipelineFailed(
                f"JAVA_HOME is {home}, where there is no bin/java; Spark 4.0 needs Java 17 or 21"
            )
    elif shutil.which("java") is None:
        raise PipelineFailed("java is not on PATH and JAVA_HOME is not set; Spark 4.0 needs Java 17 or 21")


def settings(options: RunOptions) -> dict[str, str]:
    """Spark's settings of this run, those of `--conf` last."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(options.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": str(STATE_MEMORY_MB_MAX),
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_RETAINED),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.scheduler.mode": "FAIR",
    }
    if options.master is not None:
        chosen["spark.jars.packages"] = CONNECTOR
        if options.ivy is not None:
            chosen["spark.jars.ivy"] = str(Path(options.ivy).absolute())
        if options.master.startswith("local"):
            chosen |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
            }
    if "spark.jars" in options.spark_conf:
        chosen.pop("spark.jars.packages", None)
    return chosen | options.spark_conf


@contextlib.contextmanager
def _spoken_into(log: Path | None) -> Iterator[None]:
    """What this process and the JVM that it starts write on standard error goes to a file, from now on for the JVM."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _why(log: Path | None, start: int) -> str:
    """The line of Spark's own words that says most about a failed start."""
    if log is None:
        return "its own words are above"
    with open(log, "rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    if any("unresolved dependenc" in line for line in lines):
        return (
            f"the Kafka connector {CONNECTOR} could not be had: without network give its jars with "
            f"--conf spark.jars=FILES, or a filled cache with --ivy DIR (Spark's words: {log})"
        )
    # A warning's own line says only that there is one below.
    telling = [
        line.strip() for line in lines if ("Exception" in line or "rror:" in line) and " WARN " not in line
    ]
    said = telling[0][:SAID_CHARACTERS_MAX] if telling else "it said nothing"
    return f"{said} (all of its words: {log})"


def start_session(options: RunOptions) -> SparkSession:
    """A session with the connector loaded. PipelineFailed in one line where Spark or the connector cannot be had."""
    require_extra("spark", "pyspark", "confluent_kafka")
    require_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # py4j logs a traceback of each call that got no answer, by the root logger; here a line tells of it.
    logging.getLogger().addHandler(logging.NullHandler())
    builder = SparkSession.builder.appName("kafkacompat-pipeline-" + "-".join(options.jobs))
    if options.master is not None:
        builder = builder.master(options.master)
        if options.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings(options).items():
        builder = builder.config(key, value)
    folder = local_path(options.checkpoint)
    # Under spark-submit the JVM runs already and has its own place to write to.
    log = folder / LOG_NAME if folder is not None and options.master is not None else None
    start = log.stat().st_size if log is not None and log.exists() else 0
    try:
        with _spoken_into(log):
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
    except (PySparkException, OSError) as error:
        raise PipelineFailed(f"Spark did not start: {_why(log, start)}") from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise PipelineFailed(f"Spark did not start: {_why(log, start)}") from error
        raise
    _require_connector(session)
    return session


def _require_connector(session: SparkSession) -> None:
    """PipelineFailed when the session has no Kafka source, as after spark-submit without --packages."""
    from pyspark.errors import PySparkException

    try:
        session.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option(
            "subscribe", "any"
        ).load()
    except PySparkException as error:
        session.stop()
        if "kafka" in str(error).lower():
            raise PipelineFailed(
                f"Spark has no Kafka connector; give spark-submit --packages {CONNECTOR}"
            ) from None
        raise


def is_jvm_gone(error: BaseException) -> bool:
    """Whether a call of Spark failed because its JVM is no more."""
    if isinstance(error, ConnectionError):
        return True
    if type(error).__module__ != "py4j.protocol":
        return False
    # A call that got no answer is a plain Py4JError without words from the other side.
    name = type(error).__name__
    return name == "Py4JNetworkError" or (name == "Py4JError" and "Trace:" not in str(error))


def stop_session(session: SparkSession) -> None:
    """Stop it; one whose JVM is gone has stopped."""
    try:
        session.stop()
    except Exception as error:
        if not is_jvm_gone(error):
            raise
