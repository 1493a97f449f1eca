"""The switch of the modules in C."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kafkacompat.compiled import SWITCH

USED = """
from kafkacompat.log import unified_log
from kafkacompat.partition import plain_appends
from kafkacompat.records import plain_produce, scan
print([unified_log.append_next_compiled, plain_appends.compiled, plain_produce.compiled, scan._scan].count(None))
"""


def run(value: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: each for name, each in os.environ.items() if name != SWITCH}
    if value is not None:
        environment[SWITCH] = value
    return subprocess.run(
        [sys.executable, "-c", USED], env=environment, capture_output=True, text=True, timeout=60
    )


def test_a_process_that_is_told_so_uses_no_module_in_c() -> None:
    assert run("off").stdout == "4\n"


def test_the_switch_changes_nothing_else() -> None:
    assert run("on").stdout == run(None).stdout != ""


@pytest.mark.parametrize("value", ["", "0", "no"])
def test_another_value_is_named(value: str) -> None:
    assert f"{SWITCH} is {value!r}, and not on or off" in run(value).stderr
