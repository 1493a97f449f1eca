"""The Spark session of a run: the connector, defaults for small machines, RocksDB for state, and clear messages about
missing parts.

Independent of jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.packages import connector, format_settings, packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# For all RocksDB instances of a process together.
STATE_MEMORY_MB_MAX: Final = 256
# Old batches that a checkpoint keeps. Spark's default of 100 keeps ten times as many files.
BATCHES_RETAINED: Final = 10
# Classes of generated code that are kept. The job activity has 200. With Spark's default of 100 each batch compiles them again.
COMPILED_KEPT: Final = 1000
LOG_NAME: Final = "spark.log"
SAID_CHARACTERS_MAX: Final = 400


def local_path(place: str) -> Path | None:
    """Return the path of a folder on this machine, or None for a folder on another file system (hdfs://, s3a://)."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(parts.path)
    return Path(place) if parts.scheme == "" else None


def require_writable(place: str, what: str) -> None:
    """Raise PipelineFailed unless the folder exists or can be created, and a file in it too. Spark checks other file systems."""
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
    """Raise PipelineFailed unless there is a Java that Spark would find."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(Path(home) / "bin" / "java", os.X_OK):
            raise PipelineFailed(
                f"JAVA_HOME is {home}, where there is no bin/java; Spark needs Java 17 or 21"
            )
    elif shutil.which("java") is None:
        raise PipelineFailed("java is not on PATH and JAVA_HOME is not set; Spark needs Java 17 or 21")


def settings(options: RunOptions, formats: Collection[str] = ()) -> dict[str, str]:
    """Return Spark's settings of a run with tables of these formats. Those of `--conf` come last."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(options.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": str(STATE_MEMORY_MB_MAX),
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_RETAINED),
        "spark.sql.codegen.cache.maxEntries": str(COMPILED_KEPT),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.scheduler.mode": "FAIR",
    }
    chosen |= format_settings(formats)
    if options.master is not None:
        chosen["spark.jars.packages"] = packages(formats)
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


def _opened(log: Path) -> IO[bytes]:
    try:
        return open(log, "ab")
    except OSError as error:
        raise PipelineFailed(f"Spark's log {log} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _spoken_into(log: Path | None) -> Iterator[None]:
    """Redirect standard error of this process, and of the JVM that it starts, to a file. For the JVM the redirection
    is permanent."""
    if log is None:
        yield
        return
    with _opened(log) as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _why(log: Path | None, start: int) -> str:
    """Return the line of Spark's output that explains a failed start best."""
    if log is None:
        return "its messages are above"
    with open(log, "rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    if any("unresolved dependenc" in line for line in lines):
        return (
            f"the Kafka connector {connector()} or a table format could not be downloaded: without network, pass its jars with "
            f"--conf spark.jars=FILES, or a filled cache with --ivy DIR (Spark's messages: {log})"
        )
    # The line of a warning only announces the exception below it.
    telling = [
        line.strip() for line in lines if ("Exception" in line or "rror:" in line) and " WARN " not in line
    ]
    said = telling[0][:SAID_CHARACTERS_MAX] if telling else "it said nothing"
    return f"{said} (all messages: {log})"


def start_session(options: RunOptions, formats: Collection[str] = ()) -> SparkSession:
    """Start a session with the connector and these table formats loaded. PipelineFailed says in one line what is missing."""
    require_extra("spark", "pyspark", "confluent_kafka")
    require_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # py4j logs a traceback for each failed call through the root logger. Here, one line reports the failure.
    logging.getLogger().addHandler(logging.NullHandler())
    builder = SparkSession.builder.appName("kafkacompat-pipeline-" + "-".join(options.jobs))
    if options.master is not None:
        builder = builder.master(options.master)
        if options.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Python workers read Avro and Protobuf by this package, and write in transactions.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in settings(options, formats).items():
        builder = builder.config(key, value)
    folder = local_path(options.checkpoint)
    # Under spark-submit the JVM already runs and has its own log.
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
    """Raise PipelineFailed if the session has no Kafka source, for example after spark-submit without --packages."""
    from pyspark.errors import PySparkException

    try:
        session.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option(
            "subscribe", "any"
        ).load()
    except PySparkException as error:
        session.stop()
        if "kafka" in str(error).lower():
            raise PipelineFailed(
                f"Spark has no Kafka connector; give spark-submit --packages {connector()}"
            ) from None
        raise


def is_jvm_gone(error: BaseException) -> bool:
    """Whether a call to Spark failed because its JVM has ended."""
    if isinstance(error, ConnectionError):
        return True
    if type(error).__module__ != "py4j.protocol":
        return False
    # A call without an answer raises a plain Py4JError without a trace from the JVM.
    name = type(error).__name__
    return name == "Py4JNetworkError" or (name == "Py4JError" and "Trace:" not in str(error))


def stop_session(session: SparkSession) -> None:
    """Stop the session. If its JVM has ended, nothing is left to stop."""
    try:
        session.stop()
    except Exception as error:
        if not is_jvm_gone(error):
            raise
