"""Runs the programs of docs/delivery.md without changes against the broker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "delivery.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
LAST_WORDS = ("seen 10", "seen 10", f"doubled {[2 * number for number in range(10)]}")
TOPIC = re.compile(r"\"((?:at-most|at-least|exactly)-once(?:-in|-out)?)\"")


def test_the_page_has_a_program_for_each_guarantee() -> None:
    assert len(PROGRAMS) == len(LAST_WORDS)


@pytest.mark.parametrize(("program", "expected"), list(zip(PROGRAMS, LAST_WORDS, strict=True)))
def test_a_program_does_what_the_page_says(
    program: str, expected: str, bootstrap: str, unique: Callable[[str], str]
) -> None:
    suffix = unique("page")
    program = program.replace("127.0.0.1:9092", bootstrap).replace('"doubler-1"', f'"doubler-{suffix}"')
    program = program.replace('"reader"', f'"reader-{suffix}"')
    program = TOPIC.sub(lambda found: f'"{found.group(1)}-{suffix}"', program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == expected
