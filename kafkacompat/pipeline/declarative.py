"""Jobs in Spark Declarative Pipelines (Spark 4.1 and later), in a file of definitions that `spark-pipelines` imports:

    declare(job, spark, "127.0.0.1:9092")

declares the job's tables and topics, and its rejected records. `checked` is for pipelines of one's own: the valid events and the
rejected rows of records.

A pipeline's query functions must not ask for the columns of a frame, and a job does. So frames are made when the file is
imported, and the functions return them.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from kafkacompat.pipeline.fields import Field
from kafkacompat.pipeline.job import APPEND, Job, JobProblem, Query
from kafkacompat.pipeline.jobs.validation import rejected, valid_events, validate_json
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.runner import source
from kafkacompat.security.cluster_address import ClusterAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def declare(
    job: Job,
    spark: SparkSession,
    bootstrap: str,
    *,
    leave_out: Collection[str] = (),
    properties: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Declare what a job writes. The table JOB/NAME is JOB_NAME in the pipeline's database.

    leave_out: names of sinks that are not declared. properties: Kafka's client properties for the cluster. settings: of
    RunOptions, such as window_s. JobProblem for a sink that a pipeline cannot have.
    """
    pipelines: Any = importlib.import_module("pyspark.pipelines")
    address = ClusterAddress(bootstrap, dict(properties or {}))
    options = RunOptions(jobs=(job.name,), checkpoint="", output="", bootstrap=address, **settings)
    names = {sink.name for sink in job.sinks}
    for name in leave_out:
        if name not in names:
            raise JobProblem(f"job {job.name}: leave_out has {name}, which is none of its sinks")
    left_out = {sink.name for sink in job.sinks if sink.name in leave_out}
    for query in declarable(job, left_out):
        frame = query.build(source(spark, job.for_run(query, options), options), options)
        name = dataset_of(query)
        if query.table is not None:
            # Without folders: the writer of a pipeline makes none, and readers of a table with partition columns look there.
            pipelines.table(name=name, format=query.format)(_returned(frame))
        else:
            pipelines.create_sink(name, "kafka", address.spark())
            pipelines.append_flow(target=name, name=f"{name}_flow")(_returned(frame))


def _returned(frame: DataFrame) -> Any:
    return lambda: frame


def dataset_of(query: Query) -> str:
    """Return the name of a query's table or sink in a pipeline."""
    return query.name.replace("-", "_")


def declarable(job: Job, left_out: Collection[str]) -> Sequence[Query]:
    """Return the queries of a job without those of these sinks. JobProblem names a sink that a pipeline cannot have."""
    found = []
    sinks: list[Any] = [*job.sinks, None]
    for sink, query in zip(sinks, job.queries, strict=True):
        if sink is not None and sink.name in left_out:
            continue
        why = None
        if query.output_mode != APPEND:
            why = "it is in update mode, and pipelines have append mode alone"
        elif query.writer is not None:
            why = "it writes each batch itself, as a topic that is exactly once does"
        if why is not None:
            raise JobProblem(
                f"job {job.name}: {sink.name if sink is not None else query.name} cannot be in a declarative pipeline: {why}. "
                "Name it in leave_out"
            )
        found.append(query)
    return found


def checked(records: DataFrame, fields: Sequence[Field]) -> tuple[DataFrame, DataFrame]:
    """Return the valid events of records of Spark's Kafka source, and the others as rows with their reason.

    Both have the columns that docs/reference/pipeline.md lists: those of the fields with `event_time`, and those of rejected
    records. Call it outside of query functions.
    """
    validated = validate_json(records, fields)
    return valid_events(validated), rejected(validated)
