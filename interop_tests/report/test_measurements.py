"""The page of measurements is read and written without loss. A run of some loads does not change the results of the
others."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks import tiers, warm
from benchmarks.report import (
    BEGIN,
    END,
    FIRST_TABLE,
    Row,
    Section,
    rows,
    sections_in,
    sections_of,
    update_document,
    update_first_table,
    written,
)
from benchmarks.scenarios import SCENARIOS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "measurements.md"


def inside(text: str) -> str:
    return text.partition(BEGIN)[2].partition(END)[0]


def row(scenario: str, ours: float) -> Row:
    return Row(scenario, "records/s", ours, 10.0, ours / 10.0)


def test_the_page_is_what_is_written_of_what_is_read() -> None:
    marked = inside(PAGE.read_text("utf-8"))
    note, sections = sections_in(marked)
    assert len(sections) > 10
    assert all(section.rows for section in sections)
    assert f"\n{written(note, sections)}\n" == marked


def test_a_ratio_is_read_as_it_was_written() -> None:
    exact = Row("start", "s", 2.6556, 2.7238, 2.6556 / 2.7238)
    assert f"{exact.ratio:.2f}" == "0.97"
    text = written("", [Section("start", "", [exact])])
    ((read,),) = (section.rows for section in sections_in(text)[1])
    assert f"{read.ratio:.2f}" == "0.97"
    assert f"{read.ours / read.theirs:.2f}" == "0.98"


def test_a_figure_beside_nothing_has_no_ratio() -> None:
    results = {"start": {"p50 ms": {"kafkacompat": [0.0], "apache": [0.0]}}}
    text = written("", sections_of(rows(results)))
    assert text.endswith("| start | p50 ms | 0 | 0 | - |")
    assert written(*sections_in(text)) == text


def test_a_note_that_a_section_has_is_not_written_twice(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n", "utf-8")
    for load, note in (("logs", "on Monday"), ("metrics", "on Tuesday"), ("activity", "on Tuesday")):
        update_document([row(f"pipeline: {load}", 1.0)], page, note, whole=False)
    (section,) = sections_in(inside(page.read_text("utf-8")))[1]
    assert section.note == "on Monday\n\non Tuesday"


def test_a_run_of_some_loads_takes_their_place_and_says_so_there(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n", "utf-8")
    whole = [row("pipeline: logs", 1.0), row("pipeline: metrics", 2.0), row("start and idle", math.nan)]
    update_document(whole, page, "all on Monday", whole=True)
    update_document(
        [row("pipeline: logs", 5.0), row("held up by: nothing", 6.0)], page, "some on Tuesday", whole=False
    )
    update_document([row("held up by: nothing", 7.0)], page, "again on Wednesday", whole=False)
    text = page.read_text("utf-8")
    note, sections = sections_in(inside(text))
    assert note == "all on Monday"
    assert [(section.family, section.note) for section in sections] == [
        ("pipeline", "some on Tuesday"),
        ("start and idle", ""),
        ("held up by", "again on Wednesday"),
    ]
    assert [
        (each.scenario, each.ours) for section in sections for each in section.rows if each.ours == each.ours
    ] == [
        ("pipeline: logs", 5.0),
        ("pipeline: metrics", 2.0),
        ("held up by: nothing", 7.0),
    ]
    assert "| start and idle | records/s | failed | 10 | failed |" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_a_spread_is_read_as_it_was_written() -> None:
    spread = Row("warm: base", "MB/s", 55.0, 66.0, 55.0 / 66.0, (54.0, 56.5), (60.0, 70.0))
    text = written("", [Section("warm", "", [spread])])
    assert "| base | MB/s | 55 (54 to 56.5) | 66 (60 to 70) | 0.83 |" in text
    ((read,),) = (section.rows for section in sections_in(text)[1])
    assert (read.our_spread, read.their_spread) == (spread.our_spread, spread.their_spread)
    assert written("", [Section("warm", "", [read])]) == text


def test_rounds_of_a_warm_load_have_a_spread_and_others_have_none() -> None:
    rounds = {"records/s": {"kafkacompat": [3.0, 1.0, 2.0], "apache": [4.0, 4.0, 5.0]}}
    warm, cold = rows({"warm: base": rounds, "start and idle": rounds})
    assert (warm.ours, warm.our_spread, warm.their_spread) == (2.0, (1.0, 3.0), (4.0, 5.0))
    assert (cold.ours, cold.our_spread) == (2.0, None)


def test_the_first_table_of_the_readme_has_the_figures_of_the_page(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    standing = [Row(scenario, figure, 1.25, 5.0, 0.25) for _, scenario, figure, _ in FIRST_TABLE]
    update_first_table(standing, readme)
    text = readme.read_text("utf-8")
    assert "| start to the first answer | 1.25 s | 5.00 s |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_the_first_table_stays_until_all_of_its_loads_are_measured(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    update_first_table([Row("start and idle", "idle memory MB", 49.0, 316.0, 0.16)], readme)
    assert readme.read_text("utf-8") == f"before\n{BEGIN}\nold\n{END}\nafter\n"


def test_the_first_table_names_loads_that_are_measured() -> None:
    names = {each.name for each in (*warm.LOADS, *tiers.LOADS)} | {each.name for each in SCENARIOS}
    assert {scenario for _, scenario, _, _ in FIRST_TABLE} <= names
