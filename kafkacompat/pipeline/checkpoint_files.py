"""Chooses how Spark writes the files of checkpoints and of tables' commit logs in local folders.

Spark's default, Hadoop's FileContext, starts ten programs (readlink, chmod) for each such file. The alternative starts
two. On two cores that saves a quarter of the work of small batches. Both write a temporary file and rename it, and
each can read the other's files. But the alternative checks that the name is free and then renames, so two runs on one
checkpoint could both succeed. Therefore a run locks the checkpoint before it makes this choice. On other file systems
(HDFS, S3) only Spark's default can rename safely. This module knows the settings of Spark 4.0 to 4.2, but no queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.file_systems import scheme_of
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.packages import spark_minor
from kafkacompat.pipeline.session import is_jvm_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
STREAMING: Final = "org.apache.spark.sql.execution.streaming"
LOCAL: Final = "file"


def by_file_system() -> str:
    """Return the class of the alternative. Spark 4.1 has moved it."""
    package = STREAMING if spark_minor() < (4, 1) else f"{STREAMING}.checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def choose_checkpoint_files(session: SparkSession, options: RunOptions) -> None:
    """Choose for all queries that start from now on. A setting by the user is kept."""
    if session.conf.get(SETTING, None) is not None:
        return
    try:
        schemes = {scheme_of(session, place) for place in (options.checkpoint, options.output)}
    except Exception as error:
        if is_jvm_gone(error):
            raise
        # If a file system is not available, the first query reports it.
        return
    if schemes == {LOCAL}:
        session.conf.set(SETTING, by_file_system())
