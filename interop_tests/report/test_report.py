"""The report counts all results that pytest wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.report.results import (
    APACHES,
    BEGIN,
    END,
    OURS,
    Column,
    Run,
    column_of,
    columns_in,
    read_run,
    results_part,
    rewritten,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compatibility.md"

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" time="61.5">
<testcase classname="interop_tests.raw.test_fetch" name="test_one" time="1"/>
<testcase classname="interop_tests.raw.test_fetch" name="test_two[x]" time="1">{two}</testcase>
<testcase classname="interop_tests.cli.test_start" name="test_three" time="1"><skipped message="ours only"/></testcase>
<testcase classname="interop_tests.storage.test_trip" name="test_four" time="1"/>
{more}
</testsuite></testsuites>
"""


def write(path: Path, two: str = "", more: str = "") -> Path:
    path.write_text(JUNIT.format(two=two, more=more), "utf-8")
    return path


def columns(ours: Run, apaches: Run) -> tuple[Column, Column]:
    return column_of(OURS, ours, "2030-01-02"), column_of(APACHES, apaches, "2029-12-31")


def test_counts_failures_and_reasons(tmp_path: Path) -> None:
    ours = read_run(write(tmp_path / "a.xml", two='<failure message="no"/>'))
    apache = read_run(
        write(
            tmp_path / "b.xml",
            more='<testcase classname="" name="interop_tests.raw.test_gone"><error message="no"/></testcase>'
            '<testcase classname="interop_tests.raw.test_fetch" name="test_one"><error message="end"/></testcase>',
        )
    )
    part = results_part(*columns(ours, apache), frozenset({"storage"}))
    assert f"\non kafkacompat (2030-01-02, 0 minutes of tests) and on {APACHES} (2029-12-31, 0 " in part
    assert "| raw/test_fetch | 1 passed, 1 failed | 1 passed, 1 failed |" in part
    assert "| raw/test_gone | - | 1 failed |" in part
    assert "| cli/test_start | 1 skipped | 1 skipped |" in part
    assert "| storage/test_trip | 1 passed | run once; both brokers take part |" in part
    assert "| **all** | **2 passed, 1 failed, 1 skipped** |" in part
    assert f"- skipped on {APACHES}, 1: ours only" in part
    before, after = part.split(f"Failed on {APACHES}:")
    assert "- `raw/test_fetch::test_two[x]`" in before
    assert "- `raw/test_fetch::test_one`" in after
    assert "- `raw/test_gone::interop_tests.raw.test_gone`" in after


def test_no_failures_are_said_to_be_none(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a.xml"))
    part = results_part(*columns(run, run), frozenset())
    assert "Failed on kafkacompat: none." in part
    assert f"Failed on {APACHES}: none." in part


def test_the_page_changes_between_the_markers_only() -> None:
    page = f"before\n{BEGIN}old\n{END}\nafter\n"
    assert rewritten(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="begin results"):
        rewritten("no markers", "new")


def test_a_group_run_by_itself_replaces_what_was_said_of_it(tmp_path: Path) -> None:
    whole = read_run(write(tmp_path / "a.xml", two='<failure message="no"/>'))
    group = tmp_path / "b.xml"
    group.write_text(
        '<testsuites><testsuite name="pytest" time="200"><testcase classname="interop_tests.raw.test_new" '
        'name="test_five" time="120.5"/></testsuite></testsuites>',
        "utf-8",
    )
    both = whole.with_group("raw", read_run(group))
    assert sorted(both.outcomes) == ["cli/test_start", "raw/test_new", "storage/test_trip"]
    assert sum(both.seconds.values()) == 122.5
    assert both.failures() == []
    part = results_part(*columns(both, whole), frozenset())
    assert "kafkacompat (2030-01-02, 2 minutes of tests)" in part
    assert "- run by themselves on kafkacompat, after the rest: raw" in part
    assert "by themselves on Apache Kafka" not in part
    assert "- skipped on kafkacompat, 1: ours only" in part


def test_what_a_page_shows_is_read_as_it_was_written(tmp_path: Path) -> None:
    """So a run on one broker keeps what the page shows of the other."""
    ours = read_run(write(tmp_path / "a.xml", two='<failure message="no"/>')).with_group("raw", Run({}, {}))
    apaches = read_run(write(tmp_path / "b.xml", two='<failure message="no"/>'))
    written = columns(ours, apaches)
    part = results_part(*written, frozenset())
    assert columns_in(rewritten(f"{BEGIN}{END}", part)) == written
    (kept,) = written[1].without_others({"raw/test_fetch"}).cells
    assert kept == "raw/test_fetch"


def test_results_of_an_earlier_release_keep_its_name(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "a.xml"))
    written = column_of(OURS, run, "2030-01-02"), column_of("Apache Kafka 3.9.2", run, "2029-12-31")
    assert columns_in(rewritten(f"{BEGIN}{END}", results_part(*written, frozenset()))) == written


def test_the_real_page_can_be_read() -> None:
    page = PAGE.read_text("utf-8")
    ours, apaches = columns_in(page)
    assert f"| **all** | **{ours.total()}** | **{apaches.total()}** |" in page
    assert rewritten(page, results_part(ours, apaches, frozenset({"storage"}))) == page
