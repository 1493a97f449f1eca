"""Programs whose Spark has the packages of all table formats: how they begin, and what they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interop_tests.harness.kafka_jars import CHECKOUT, require_program
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment
from interop_tests.harness.spark_jvm import quick_jvm
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.packages import formats_here
from kafkacompat.pipeline.session import start_session
from kafkacompat.pipeline.table_formats import TABLE_FORMATS
from kafkacompat.security.cluster_address import ClusterAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_LIMIT_S = 900.0


def begun(
    job: str, bootstrap: str, folder: str, conf: dict[str, str] | None = None
) -> tuple[SparkSession, RunOptions]:
    """A session, and a run of a job with its checkpoint and its tables in a folder."""
    root = Path(folder)
    options = RunOptions(
        jobs=(job,),
        checkpoint=str(root / "checkpoint"),
        output=str(root / "tables"),
        bootstrap=ClusterAddress(bootstrap),
        master="local[2]",
        until_caught_up=True,
        shuffle_partitions=1,
        ivy=str(ivy_dir()),
        spark_conf={
            "spark.driver.extraJavaOptions": quick_jvm(),
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.streaming.fileSink.log.compactInterval": "2",
            # Delta's default is 50 tasks for each look at a table.
            "spark.databricks.delta.snapshotPartitions": "1",
            **(conf or {}),
        },
    )
    root.joinpath("checkpoint").mkdir(parents=True)
    session = start_session(options, formats_here())
    for form in formats_here():
        TABLE_FORMATS[form].use_output(session, options.output)
    return session, options


def told_by(program: str, bootstrap: str, folder: Path, site: Path | None = None) -> Any:
    """Run a program of this package to its end. Return the JSON of its last line. site: the folder of another PySpark."""
    require_program("java")
    environment = spark_environment()
    if site is not None:
        environment |= {"SPARK_HOME": str(site / "pyspark"), "PYTHONPATH": f"{site}{os.pathsep}{CHECKOUT}"}
    done = subprocess.run(
        [sys.executable, "-m", f"interop_tests.pipeline.{program}", bootstrap, str(folder)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=CHECKOUT,
        env=environment,
    )
    assert done.returncode == 0, (done.stdout[-4000:], done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])
