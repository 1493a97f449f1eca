"""Runs the commands and programs of docs/tutorials, and the tests of the pages about testing, without changes.

cli/test_cluster.py and cluster/test_commands.py test the commands of the first cluster. pipeline/test_demo.py tests
those of the first pipeline.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.cli.pages import blocks, commands, text_of
from interop_tests.conftest import MakeBroker
from kafkacompat.testing import running_broker

FIRST_TOPIC = text_of("docs/tutorials/first-topic.md")
FIRST_QUEUE = text_of("docs/tutorials/first-queue.md")
FIRST_TEST = text_of("docs/tutorials/first-test.md")
TESTING = text_of("docs/reference/testing.md")
FAILURES = text_of("docs/how-to/test-failures.md")
TIME_LIMIT_S = 120

pytestmark = pytest.mark.needs_control


def test_the_first_topic(tmp_path: Path) -> None:
    with running_broker() as broker:
        command = f"{sys.executable} -m kafkacompat"
        for line, shown in (each for block in blocks(FIRST_TOPIC, "console") for each in commands(block)):
            spoken = re.sub(
                r"\bkafkacompat (topics|produce|consume|groups)\b",
                rf"{command} \1 --bootstrap {broker.bootstrap_servers}",
                line,
            )
            assert spoken != line
            done = subprocess.run(
                spoken, shell=True, capture_output=True, text=True, timeout=TIME_LIMIT_S, cwd=tmp_path
            )
            assert done.returncode == 0, (line, done.stderr)
            said = (done.stdout + done.stderr).splitlines()
            assert said[: len(shown)] == shown, line
            assert shown or not said, line
        (program,) = blocks(FIRST_TOPIC, "python")
        done = subprocess.run(
            [sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap_servers)],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
        )
        assert done.stdout == "10 pages, the last one is page 9\n", done.stderr


def test_the_first_queue(make_broker: MakeBroker, tmp_path: Path) -> None:
    where = f"--bootstrap {make_broker().bootstrap}"
    (program,) = blocks(FIRST_QUEUE, "python")
    name, _ = program.removeprefix("# ").split("\n", 1)
    (tmp_path / name).write_text(program)
    command = f"{sys.executable} -m kafkacompat"
    for line, shown in (each for block in blocks(FIRST_QUEUE, "console") for each in commands(block)):
        spoken = re.sub(r"\bkafkacompat (topics|produce|consume|groups)\b", rf"{command} \1 {where}", line)
        done = subprocess.run(
            spoken, shell=True, capture_output=True, text=True, timeout=TIME_LIMIT_S, cwd=tmp_path
        )
        assert done.returncode == 0, (line, done.stderr)
        said = (done.stdout + done.stderr).splitlines()
        if "wait" in line:
            # How the jobs divide between the workers is different each time.
            counts = [
                int(re.sub(r"kafkacompat: (\d+) accepted, 0 released, 0 rejected", r"\1", each))
                for each in said
            ]
            assert sum(counts) == 20
            assert all(counts)
        else:
            assert said[: len(shown)] == shown, line
            assert shown or not said, line


@pytest.mark.parametrize("page", [FIRST_TEST, TESTING, FAILURES], ids=["first-test", "testing", "failures"])
def test_the_tests_of_a_page(tmp_path: Path, page: str) -> None:
    programs = blocks(page, "python")
    for program in programs:
        name = re.match(r"# (test_\w+\.py)\n", program)
        assert name is not None
        (tmp_path / name.group(1)).write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=tmp_path,
    )
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE), done.stdout[-3000:]
