"""The options of a run of jobs (folders, times, bounds), and the options of all commands for the cluster's address. No Spark."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Final

from kafkacompat.config import ConfigError
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.formats.server_formats import AUTO
from kafkacompat.pipeline.schemas.client import RegistrySettings
from kafkacompat.pipeline.topics import LOGS_RAW
from kafkacompat.security.cluster_address import DEFAULT_SERVERS, ClusterAddress

DEFAULT_TRIGGER_S: Final = 5.0
DEFAULT_TABLE_TRIGGER_S: Final = 30.0
DEFAULT_WINDOW_S: Final = 60
DEFAULT_SESSION_GAP_S: Final = 30 * 60
DEFAULT_WATERMARK_S: Final = 10 * 60
"""The watermark of all jobs. For one job alone, run it by itself with --watermark."""

DEFAULT_DUPLICATE_HORIZON_S: Final = 60 * 60
DEFAULT_SHUFFLE_PARTITIONS: Final = 2
DEFAULT_GROUP_PREFIX: Final = "pipeline-"
READ_COMMITTED: Final = "read_committed"
ISOLATION_LEVELS: Final = (READ_COMMITTED, "read_uncommitted")
FROM_GROUP: Final = "group"
"""Start from what the query's group has committed."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run. Folders may be on any file system that Spark supports. A checkpoint belongs to one output folder and one broker."""

    jobs: tuple[str, ...]
    checkpoint: str
    output: str
    bootstrap: ClusterAddress = field(default_factory=ClusterAddress)
    # None: spark-submit decides.
    master: str | None = "local[*]"
    # earliest, latest or FROM_GROUP.
    starting: str = "earliest"
    # Before the name of a query: its group, and its transactional ids.
    group_prefix: str = DEFAULT_GROUP_PREFIX
    commits_to_groups: bool = True
    # Whether records of transactions that are aborted, or not ended yet, are read. One of ISOLATION_LEVELS.
    isolation_level: str = READ_COMMITTED
    fail_on_data_loss: bool = True
    until_caught_up: bool = False
    trigger_s: float = DEFAULT_TRIGGER_S
    table_trigger_s: float = DEFAULT_TABLE_TRIGGER_S
    window_s: int = DEFAULT_WINDOW_S
    session_gap_s: int = DEFAULT_SESSION_GAP_S
    watermark_s: int = DEFAULT_WATERMARK_S
    duplicate_horizon_s: int = DEFAULT_DUPLICATE_HORIZON_S
    # None: a batch reads everything available. A bound is divided among the partitions by their backlog, not by age.
    records_per_batch_max: int | None = None
    shuffle_partitions: int = DEFAULT_SHUFFLE_PARTITIONS
    files_per_batch: int = 1
    # The run maintains each of its tables after this time. None: it does not.
    maintain_every_s: float | None = None
    # What is older is removed by that. None: nothing.
    keep_days: int | None = None
    # None: that of each table of the job, or else Parquet.
    table_format: str | None = None
    # A name, or the text of a format (formats/registry).
    log_format: str = AUTO
    # Topics of lines with the format of each. Empty: logs.raw with log_format.
    sources: tuple[tuple[str, str], ...] = ()
    # Where the schemas of topics with Avro and Protobuf are.
    registry: RegistrySettings | None = None
    progress: str | None = None
    ivy: str | None = None
    spark_conf: dict[str, str] = field(default_factory=dict)


OPTIONS: Final = {
    "--window": "window_s",
    "--session-gap": "session_gap_s",
    "--watermark": "watermark_s",
    "--duplicate-horizon": "duplicate_horizon_s",
}
"""The options that a job's state may depend on (Job.settings), with their names in RunOptions."""

OF_EVERY_JOB: Final = ("--watermark",)
"""Those that every job depends on, and no job names. A backfill has the options of a run from the job's manifest alone."""


def log_sources(options: RunOptions) -> dict[str, str]:
    """Return the topics that the job logs reads, with the text of the format of each."""
    return dict(options.sources) or {LOGS_RAW: options.log_format}


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Add the options that `address_of` reads."""
    parser.add_argument(
        "--bootstrap",
        default=DEFAULT_SERVERS,
        metavar="HOST:PORT",
        help="bootstrap brokers, separated by commas (%(default)s)",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a file of Kafka's client properties that says how to connect: security.protocol, sasl.*, ssl.*",
    )


def address_of(arguments: argparse.Namespace) -> ClusterAddress:
    """Return the cluster's address. PipelineFailed names a wrong property."""
    try:
        return ClusterAddress.of_file(arguments.bootstrap, arguments.command_config)
    except ConfigError as error:
        raise PipelineFailed(str(error)) from None


def add_isolation_level(parser: argparse.ArgumentParser) -> None:
    """Add --isolation-level, which says what of transactions is read."""
    parser.add_argument(
        "--isolation-level",
        choices=ISOLATION_LEVELS,
        default=READ_COMMITTED,
        help="read_uncommitted: read also the records of transactions that are aborted or have not ended (%(default)s)",
    )


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Add the options that `registry_of` reads."""
    parser.add_argument(
        "--registry",
        metavar="URL",
        help="the schema registry of topics with Avro or Protobuf, such as http://127.0.0.1:8081",
    )
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="a file of properties that says how to connect to it: schema.registry.url, basic.auth.user.info or "
        "bearer.auth.token, schema.registry.ssl.*",
    )


def registry_of(arguments: argparse.Namespace) -> RegistrySettings | None:
    """Return where the registry is. PipelineFailed names a wrong property."""
    try:
        return RegistrySettings.given(arguments.registry, arguments.registry_config)
    except ConfigError as error:
        raise PipelineFailed(str(error)) from None
