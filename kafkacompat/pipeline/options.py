"""What a run of jobs may be told: places, times, bounds. Knows no Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kafkacompat.pipeline.jobs.log_formats import AUTO
from kafkacompat.pipeline.topics import DEFAULT_BOOTSTRAP

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
DEFAULT_TRIGGER_S: Final = 5.0
DEFAULT_TABLE_TRIGGER_S: Final = 30.0
DEFAULT_WINDOW_S: Final = 60
DEFAULT_SESSION_GAP_S: Final = 30 * 60
DEFAULT_WATERMARK_S: Final = 10 * 60
DEFAULT_DUPLICATE_HORIZON_S: Final = 60 * 60
DEFAULT_SHUFFLE_PARTITIONS: Final = 2


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run. Folders may be of any file system that Spark knows; a checkpoint belongs to one output folder and one broker."""

    jobs: tuple[str, ...]
    checkpoint: str
    output: str
    bootstrap: str = DEFAULT_BOOTSTRAP
    # None leaves the choice to spark-submit.
    master: str | None = "local[*]"
    starting: str = "earliest"
    fail_on_data_loss: bool = True
    until_caught_up: bool = False
    trigger_s: float = DEFAULT_TRIGGER_S
    table_trigger_s: float = DEFAULT_TABLE_TRIGGER_S
    window_s: int = DEFAULT_WINDOW_S
    session_gap_s: int = DEFAULT_SESSION_GAP_S
    watermark_s: int = DEFAULT_WATERMARK_S
    duplicate_horizon_s: int = DEFAULT_DUPLICATE_HORIZON_S
    # None: a batch reads all there is. A bound is shared out over the partitions by what they hold, not by age.
    records_per_batch_max: int | None = None
    shuffle_partitions: int = DEFAULT_SHUFFLE_PARTITIONS
    files_per_batch: int = 1
    # A name, or a format in the words of nginx or Apache httpd (jobs/log_formats).
    log_format: str = AUTO
    progress: str | None = None
    ivy: str | None = None
    spark_conf: dict[str, str] = field(default_factory=dict)
