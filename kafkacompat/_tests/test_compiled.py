"""The switch of the modules in C."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from kafkacompat.compiled import SWITCH

IMPORT_ALL = """
import sys
from kafkacompat.log import unified_log
from kafkacompat.partition import plain_appends
from kafkacompat.records import plain_produce, scan
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
COMPILED = sorted(each["name"] for each in PROJECT["tool"]["setuptools"]["ext-modules"])
BUILT = [name for name in COMPILED if find_spec(name) is not None]


def run(value: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: each for name, each in os.environ.items() if name != SWITCH}
    if value is not None:
        environment[SWITCH] = value
    return subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *COMPILED],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_process_that_is_told_so_uses_no_module_in_c() -> None:
    assert run("off").stdout == "\n"


def test_all_modules_in_c_that_were_built_are_used_otherwise() -> None:
    assert run("on").stdout.split() == run(None).stdout.split() == BUILT


def test_make_sees_the_sources_of_all_modules_in_c() -> None:
    top = Path(__file__).parents[2]
    sources = {*top.joinpath("kafkacompat").rglob("*.[ch]")}
    assert sources == {*top.glob("kafkacompat/*/*.[ch]")}, "COMPILED and clean of the Makefile see no others"


@pytest.mark.parametrize("value", ["", "0", "no"])
def test_another_value_is_named(value: str) -> None:
    assert f"{SWITCH} is {value!r}, and not on or off" in run(value).stderr
