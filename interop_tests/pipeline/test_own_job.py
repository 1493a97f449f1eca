"""Follows docs/tutorials/first-job.md from an empty folder: its job, test and commands. Runs the SQL of docs/reference/jobs.md."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.pipeline.runs import read_topic, run_words, typed

PAGE = text_of("docs/tutorials/first-job.md")
LINES_MAX = 30

pytestmark = pytest.mark.needs_control


class Folder:
    """A folder with the page's files, in which its commands run with this Python and broker."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        require_program("java")
        self.root = root
        job, test = blocks(PAGE, "python")
        (root / "shop_orders.py").write_text(job)
        (root / "test_shop_orders.py").write_text(test)
        self._bootstrap = bootstrap

    def type(self, line: str) -> str:
        """Run a line of the page. It must succeed. Returns its output."""
        asked = re.sub(
            r"\bkafkacompat (topics|produce|consume) ",
            rf"{sys.executable} -m kafkacompat \1 --bootstrap {self._bootstrap} ",
            line,
        )
        quick = run_words()
        asked = asked.replace(
            "kafkacompat pipeline run shop_orders:job",
            f"{sys.executable} -m kafkacompat pipeline run shop_orders:job --bootstrap {self._bootstrap} {quick}",
        )
        asked = re.sub(r"^python ", f"{sys.executable} ", asked)
        assert asked != line
        done = typed(asked, self.root)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


@pytest.mark.usefixtures("no_orders")
def test_a_job_is_written_tested_and_run_as_the_page_says(bootstrap: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path, bootstrap)
    ((test, _),) = commands(blocks(section(PAGE, "## Test it"))[0])
    assert "1 passed" in folder.type(test)
    (run,) = blocks(section(PAGE, "## Run it"))
    lines = [line for line, _ in commands(run)]
    given = "; ".join(line for line in lines if "kafkacompat" not in line)
    said = {line: folder.type(f"{given}; {line}") for line in lines if "kafkacompat" in line}
    windows, rejects = (
        [json.loads(line) for line in text.splitlines()] for line, text in said.items() if " consume " in line
    )
    assert {row["shop"] for row in windows} == {"north"}
    assert (windows[-1]["orders"], windows[-1]["amount_cents"]) == (3, 750)
    assert [(row["reason"], row["line"]) for row in rejects] == [("malformed JSON", "no order")]
    assert json.loads((tmp_path / "run/checkpoint/orders.manifest.json").read_text())["job"] == "orders"
    # Each query has committed what it has finished to a group of its name.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for query in ("orders-windows", "orders-windows-live", "orders-rejected"):
        group = f"pipeline-{query}"
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        read = sum(each.offset for each in asked.result().topic_partitions)
        ends = list((tmp_path / f"run/checkpoint/{query}/offsets").glob("[0-9]*"))
        planned = max(ends, key=lambda each: int(each.name)).read_text().splitlines()[-1]
        assert read == sum(json.loads(planned)["orders.raw"].values()), query


def test_the_job_of_the_page_is_thirty_lines() -> None:
    job, _ = blocks(PAGE, "python")
    written = [line for line in job.splitlines() if line.strip()]
    assert len(written) <= LINES_MAX, len(written)


def test_the_file_of_sql_of_the_page_is_run(bootstrap: str, tmp_path: Path) -> None:
    require_program("java")
    (text,) = blocks(section(text_of("docs/reference/jobs.md"), "## A file of SQL"), "sql")
    (tmp_path / "sqlorders.sql").write_text(text.replace("orders", "sqlorders"))
    at_ms = int(time.time() * 1000) // 60_000 * 60_000 - 120_000
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, shop in enumerate(["north", "south", "north", "north"]):
        order = {"event_id": f"o-{number}", "event_time_ms": at_ms + number, "shop": shop, "cents": number}
        producer.produce("sqlorders.raw", json.dumps(order), timestamp=at_ms + number)
    producer.produce("sqlorders.raw", "no order", "no key", timestamp=at_ms)
    assert producer.flush(30) == 0
    done = typed(
        f"{sys.executable} -m kafkacompat pipeline run sqlorders.sql --until-caught-up --bootstrap {bootstrap} "
        f"--checkpoint run/checkpoint --output run/tables {run_words()}",
        tmp_path,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    rows = {
        value["shop"]: (value["sqlorders"], value["cents"])
        for _, value in read_topic(bootstrap, "sqlorders.windows")
    }
    assert rows == {"north": (3, 5), "south": (1, 1)}
    assert [value["reason"] for _, value in read_topic(bootstrap, "sqlorders.rejected")] == ["malformed JSON"]
    assert (tmp_path / "run/tables/sqlorders/windows/_spark_metadata").is_dir()
