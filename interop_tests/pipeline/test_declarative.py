"""Follows docs/how-to/use-declarative-pipelines.md on the Spark that it names, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.cli.pages import blocks, text_of
from interop_tests.harness.kafka_jars import CHECKOUT, require_program
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.pipeline.declarative_spark import PAGE, declarative_spark
from interop_tests.pipeline.runs import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUTORIAL = text_of("docs/tutorials/first-job.md")
PAGES_BROKER, PAGES_FOLDER = "127.0.0.1:9092", "/srv/orders"
RUN_TIMEOUT_S = 280.0

pytestmark = pytest.mark.needs_control


class Pipeline:
    """The page's files in a folder, and its command with this broker."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        require_program("java")
        self.root, self.bootstrap, self.site = root, bootstrap, declarative_spark()
        orders, own = blocks(PAGE, "python")
        (spec,) = blocks(PAGE, "yaml")
        (defaults,) = [block for block in blocks(PAGE) if block.startswith("spark.jars")]
        packages = self.site.parent / "ivy"
        quick = {
            "spark.jars.ivy": packages,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "800m",
        }
        for name, text in {
            "shop_orders.py": blocks(TUTORIAL, "python")[0],
            "transformations/orders.py": orders,
            "transformations/own.py": own,
            "spark-pipeline.yml": spec,
            "conf/spark-defaults.conf": defaults
            + "".join(f"{key} {value}\n" for key, value in quick.items()),
        }.items():
            place = root / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(text.replace(PAGES_BROKER, bootstrap).replace(PAGES_FOLDER, str(root)))

    def run(self) -> subprocess.CompletedProcess[str]:
        words = [
            "kafkacompat",
            "pipeline",
            "declarative",
            "--remote",
            "local[2]",
            "--bootstrap",
            self.bootstrap,
        ]
        return subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            cwd=self.root,
            env=os.environ
            | {
                "SPARK_HOME": str(self.site / "pyspark"),
                "SPARK_CONF_DIR": str(self.root / "conf"),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join([str(self.site), str(CHECKOUT), "."]),
                "JAVA_TOOL_OPTIONS": quick_jvm(),
            },
        )


def lags(bootstrap: str, groups: tuple[str, ...], end: int) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = {}
    for group in groups:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        found[group] = end - sum(each.offset for each in asked.result().topic_partitions)
    return found


GROUPS = ("pipeline-orders_windows", "pipeline-amounts_of_orders", "pipeline-rejected_orders")


@pytest.mark.usefixtures("no_orders")
def test_a_job_and_an_own_pipeline_run_as_the_page_says(
    bootstrap: str, spark: SparkSession, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders.raw", 1)])["orders.raw"].result()
    pipeline = Pipeline(tmp_path, bootstrap)
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap})

    def order(number: int, shop: str, at_ms: int, amount: int) -> None:
        told = {"event_id": f"o-{number}", "shop": shop, "event_time_ms": at_ms, "amount_cents": amount}
        producer.produce("orders.raw", json.dumps(told))

    for number, amount in enumerate((250, 50)):
        order(number, "north", now_ms - 3_600_000, amount)
    order(1, "north", now_ms - 3_600_000, 50)
    producer.produce("orders.raw", "no order", "no key")
    order(2, "south", now_ms, 7)
    assert producer.flush(30) == 0
    done = pipeline.run()
    assert done.returncode == 0, (done.stdout[-4000:], done.stderr[-4000:])

    def table(name: str) -> list[dict[str, object]]:
        return [row.asDict() for row in spark.read.parquet(str(tmp_path / "warehouse" / name)).collect()]

    assert [(row["shop"], row["orders"], row["amount_cents"]) for row in table("orders_windows")] == [
        ("north", 2, 300)
    ]
    assert sorted(row["event_id"] for row in table("amounts_of_orders")) == ["o-0", "o-1", "o-1", "o-2"]
    assert [(row["reason"], row["offset"]) for row in table("rejected_orders")] == [("malformed JSON", 3)]
    assert [value["reason"] for _, value in read_topic(bootstrap, "orders.rejected")] == ["malformed JSON"]
    assert lags(bootstrap, GROUPS, 5) == dict.fromkeys(GROUPS, 0)

    order(3, "south", now_ms, 8)
    assert producer.flush(30) == 0
    assert lags(bootstrap, GROUPS, 6) == dict.fromkeys(GROUPS, 1)
    done = pipeline.run()
    assert done.returncode == 0, (done.stdout[-4000:], done.stderr[-4000:])
    assert len(table("amounts_of_orders")) == 5
    assert len(table("orders_windows")) == len(table("rejected_orders")) == 1
    assert lags(bootstrap, GROUPS, 6) == dict.fromkeys(GROUPS, 0)

    admin.delete_topics(["orders.raw"])["orders.raw"].result()
    for _ in range(100):
        try:
            admin.create_topics([NewTopic("orders.raw", 1)])["orders.raw"].result()
            break
        except Exception:
            time.sleep(0.1)
    done = pipeline.run()
    assert done.returncode == 1
    assert "topics orders.raw were deleted and created again. Use --full-refresh-all" in done.stderr
