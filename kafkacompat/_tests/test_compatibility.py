"""docs/reference/compatibility.md says what the broker declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkacompat.api.registry import BROKER_APIS_WITH_TELEMETRY
from kafkacompat.cli import compatibility


def test_the_page_is_up_to_date() -> None:
    assert compatibility.main(["--check"]) == 0, "run python -m kafkacompat.cli.compatibility"


def test_drift_is_noticed_and_mended(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = compatibility.PAGE.read_text("utf-8")
    page.write_text(text.replace("| 18 | ApiVersions |", "| 18 | ApiVersion |"), "utf-8")
    assert compatibility.main(["--check", str(page)]) == 1
    assert compatibility.main([str(page)]) == 0
    assert page.read_text("utf-8") == text


def test_a_page_without_a_marker_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers", "utf-8")
    with pytest.raises(ValueError, match="apis"):
        compatibility.main([str(page)])


def test_every_api_served_has_its_row_or_is_named_among_those_of_brokers() -> None:
    lines = compatibility.apis().splitlines()
    served = [line for line in lines if re.match(r"\| \d", line) and not line.endswith("| - |")]
    (to_each_other,) = [line for line in lines if line.startswith("Brokers also serve")]
    keys = [int(row.split("|")[1]) for row in served]
    keys += [int(key) for key in re.findall(r"\((\d+)\)", to_each_other)]
    assert sorted(keys) == [entry.key for entry in BROKER_APIS_WITH_TELEMETRY.entries]
