"""The commands and programs of docs/tutorials, run as they stand.

Those of the first cluster are what cli/test_cluster.py and cluster/test_commands.py do at length; those of the first pipeline are
pipeline/test_demo.py's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacompat.testing import running_broker

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
TIME_LIMIT_S = 120

pytestmark = pytest.mark.needs_control


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (TUTORIALS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each with the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def test_the_first_topic(tmp_path: Path) -> None:
    with running_broker() as broker:
        command = f"{sys.executable} -m kafkacompat"
        for line, shown in (
            each for block in blocks("first-topic.md", "console") for each in commands(block)
        ):
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
        (program,) = blocks("first-topic.md", "python")
        done = subprocess.run(
            [sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap_servers)],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
        )
        assert done.stdout == "10 pages, the last one is page 9\n", done.stderr


def test_the_first_test(tmp_path: Path) -> None:
    programs = blocks("first-test.md", "python")
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
    assert f"{len(programs)} passed" in done.stdout, done.stdout[-3000:]
