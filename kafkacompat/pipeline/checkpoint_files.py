"""How Spark writes the files of checkpoints and of the tables' commit logs where they lie in local folders.

Spark's own choice, by Hadoop's FileContext, starts ten programs (readlink, chmod) for each such file, this one two: on two cores a
quarter of the work of small batches. Both write aside and rename into place, and what one has written the other reads. But this
one looks whether the name is free and then renames, so two runs on one checkpoint can both succeed: a run holds the checkpoint's
lock before it chooses. Elsewhere (HDFS, S3) only Spark's own choice knows how to rename. Knows Spark 4.0's setting, nothing of
queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.places import scheme_of
from kafkacompat.pipeline.session import is_jvm_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM: Final = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
LOCAL: Final = "file"


def choose_checkpoint_files(session: SparkSession, options: RunOptions) -> None:
    """For queries that start from now on. Who has set it already is obeyed."""
    if session.conf.get(SETTING, None) is not None:
        return
    try:
        schemes = {scheme_of(session, place) for place in (options.checkpoint, options.output)}
    except Exception as error:
        if is_jvm_gone(error):
            raise
        # A file system that cannot be had is told of by the first query.
        return
    if schemes == {LOCAL}:
        session.conf.set(SETTING, BY_FILE_SYSTEM)
