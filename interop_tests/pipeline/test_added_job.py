"""Follows docs/how-to/add-a-job.md in a copy of the package: its changes, its commands and its test."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.cli.pages import CHECKOUT, blocks, commands, section, text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.pipeline.runs import quick_spark

PAGE = text_of("docs/how-to/add-a-job.md")
TIME_LIMIT_S = 240.0

pytestmark = pytest.mark.needs_control


def changed(root: Path) -> None:
    """Make the page's changes below a folder with a copy of the package."""
    for block in blocks(PAGE, "python"):
        said, code = block.split("\n", 1)
        place = re.fullmatch(r"# (\S+), (a new file|before|at the beginning of)(?: (\w+))?", said)
        assert place is not None, said
        path = root / place[1]
        if place[2] == "a new file":
            assert not path.exists(), path
            path.write_text(code)
            continue
        lines = path.read_text().splitlines(keepends=True)
        (at,) = [number for number, line in enumerate(lines) if re.match(rf"{place[3]}\b.* = ", line)]
        assert place[2] == "before" or lines[at].endswith("{\n"), said
        lines.insert(at + (place[2] != "before"), code)
        path.write_text("".join(lines))


class Copy:
    """The package with the page's changes, and the commands that use it."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        require_program("java")
        self.root = root
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / "kafkacompat", root / "kafkacompat", ignore=ignored)
        shutil.copy(CHECKOUT / "pyproject.toml", root)
        changed(root)
        self._bootstrap = bootstrap
        self._environment = spark_environment() | {"PYTHONPATH": str(root), "JAVA_TOOL_OPTIONS": quick_jvm()}

    def type(self, line: str) -> str:
        """Run a line of the page with this Python and broker. It must succeed. Returns its output."""
        asked = re.sub(
            r"\bkafkacompat (topics|produce|consume) ",
            rf"{sys.executable} -m kafkacompat \1 --bootstrap {self._bootstrap} ",
            line,
        )
        quick = " ".join(
            f"'{word}'" for word in ("--master", "local[2]", "--ivy", str(ivy_dir()), *quick_spark())
        )
        asked = asked.replace(
            "kafkacompat pipeline run orders",
            f"{sys.executable} -m kafkacompat pipeline run orders --bootstrap {self._bootstrap} {quick}",
        )
        asked = re.sub(r"^python ", f"{sys.executable} ", asked)
        assert asked != line
        done = subprocess.run(
            ["bash", "-c", asked],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            cwd=self.root,
            env=self._environment,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


def test_a_job_is_added_as_the_page_says(bootstrap: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path, bootstrap)
    (tried,) = blocks(section(PAGE, "## Try it"))
    lines = [line for line, _ in commands(tried)]
    given = "; ".join(line for line in lines if "kafkacompat" not in line)
    assert len(given.split("; ")) == 2
    said = {line: copy.type(f"{given}; {line}") for line in lines if "kafkacompat" in line}
    windows, rejects = (
        [json.loads(line) for line in text.splitlines()] for line, text in said.items() if " consume " in line
    )
    assert {row["shop"] for row in windows} == {"north"}
    assert (windows[-1]["orders"], windows[-1]["amount_cents"]) == (3, 750)
    assert [(row["reason"], row["line"]) for row in rejects] == [("malformed JSON", "no order")]
    ((line, _),) = commands(blocks(PAGE)[-1])
    assert " passed" in copy.type(line)


def test_the_page_installs_the_checkout_itself() -> None:
    """Without -e, pip copies the package, and the reader's changes have no effect."""
    (install,) = blocks(section(PAGE, "## Install the checkout so that your changes have an effect"))
    lines = [line for line, _ in commands(install)]
    assert [line.split()[:3] for line in lines if line.startswith("pip ")] == [["pip", "install", "-e"]]
