"""Makes Spark load the classes that the suite's queries need: it writes a stream with state and windows to a table,
and reads it.

python spark_classes.py OPTIONS_OF_THE_JVM FOLDER
"""

from __future__ import annotations

import sys
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafkacompat.pipeline.checkpoint_files import by_file_system

BATCHES = 3
TIMEOUT_S = 120.0
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "600m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.checkpointFileManagerClass": by_file_system(),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def main(options: str, folder: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        counted = (
            stream.withWatermark("timestamp", "1 second")
            .groupBy(F.window("timestamp", "2 seconds"), F.col("value") % 7)
            .agg(F.count("*").alias("count"), F.approx_count_distinct("value").alias("values"))
        )
        writer = counted.writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", f"{place}/table").option("checkpointLocation", f"{place}/checkpoint")
        query = writer.start()
        deadline = time.monotonic() + TIMEOUT_S
        while query.isActive and len(query.recentProgress) < BATCHES and time.monotonic() < deadline:
            time.sleep(0.1)
        query.stop()
        rows = session.createDataFrame([(1, '{"a": "b"}')], "number int, text string")
        parsed = rows.select(
            "number", F.from_json("text", "a string").alias("parsed"), F.to_json(F.struct("*"))
        )
        parsed.drop_duplicates(["number"]).collect()
        session.read.parquet(f"{place}/table").selectExpr("to_json(struct(*))").collect()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
