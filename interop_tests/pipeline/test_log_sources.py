"""Follows docs/how-to/read-log-formats.md: what `pipeline try` shows, and one run with three topics of lines, a format each."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.pipeline.runs import run_words, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = text_of("docs/how-to/read-log-formats.md")

pytestmark = pytest.mark.needs_control


def run_line(line: str, folder: Path, bootstrap: str = "") -> tuple[int, str]:
    """Run a line of the page with this Python and broker. Returns its status and output."""
    quick = run_words()
    command = f"{sys.executable} -m kafkacompat"
    asked = line.replace(
        "kafkacompat pipeline run logs", f"{command} pipeline run logs {quick} --bootstrap {bootstrap}"
    )
    asked = asked.replace(
        "kafkacompat pipeline collect", f"{command} pipeline collect --bootstrap {bootstrap}"
    )
    asked = re.sub(r"^kafkacompat consume", f"{command} consume --bootstrap {bootstrap}", asked)
    asked = asked.replace("kafkacompat pipeline try", f"{command} pipeline try")
    done = typed(asked, folder)
    if " try " not in line:
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.returncode, done.stdout


def tried(folder: Path) -> None:
    """Run the commands before those that need a broker."""
    for block in blocks(PAGE)[:-2]:
        for line, shown in commands(block):
            status, said = run_line(line, folder)
            assert said.splitlines() == shown
            assert status == (1 if " refused 1" in said else 0)


def test_the_page_shows_what_try_says(tmp_path: Path) -> None:
    tried(tmp_path)


def test_one_run_reads_three_topics_with_a_format_each(
    bootstrap: str, spark: SparkSession, tmp_path: Path
) -> None:
    require_program("java")
    tried(tmp_path)
    said: dict[str, str] = {}
    for block in blocks(section(PAGE, "## Run several sources")):
        for line, _ in commands(block):
            if " run logs " in line:
                # The page says that a source can be added to a checkpoint later.
                run_line(re.sub(r" --source 'logs\.own=[^']*'", "", line), tmp_path, bootstrap)
            said[line] = run_line(line, tmp_path, bootstrap)[1]
    rejects, summaries = (
        [json.loads(value) for value in text.splitlines()]
        for line, text in said.items()
        if " consume " in line
    )
    assert [(row["topic"], row["reason"], row["column"]) for row in rejects] == [
        ("logs.web", "malformed line: it is not one JSON object", None)
    ]
    assert max(row["requests"] for row in summaries) == 4
    events = spark.read.parquet(str(tmp_path / "run/tables/logs/events")).collect()
    assert sorted((row["path"], row["status"], row["extra"]) for row in events) == [
        ("/a", 200, {"stream": "stdout"}),
        ("/c", 200, {"level": "INFO", "took": "3"}),
        ("/d", 200, None),
        ("/e?a=b", 404, {"time-taken": "15"}),
    ]
