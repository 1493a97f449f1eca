"""The page of measurements is read and written without loss. A run of some loads does not change the results of the
others."""

from __future__ import annotations

import itertools
import json
import math
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import tiers, warm
from benchmarks.__main__ import measured_commit
from benchmarks.raw import raw_exchanges
from benchmarks.report import (
    BEGIN,
    END,
    FIRST_TABLE,
    Row,
    Section,
    is_less_better,
    rows,
    sections_in,
    sections_of,
    update_document,
    update_first_table,
    written,
)
from benchmarks.scenarios import SCENARIOS
from interop_tests.harness.broker import APACHE
from interop_tests.harness.wire import frame

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


def test_warm_loads_of_the_same_brokers_follow_one_another() -> None:
    for loads in (warm.LOADS, tiers.LOADS):
        started = [up for up, _ in itertools.groupby(load.up for load in loads)]
        assert len(started) == len(set(started))


def test_names_of_loads_are_unique() -> None:
    names = [each.name for each in (*warm.LOADS, *tiers.LOADS)] + [each.name for each in SCENARIOS]
    assert len(names) == len(set(names))


def test_only_the_brokers_of_one_kind_of_load_are_up() -> None:
    up: list[str] = []

    def of(name: str) -> Callable[[str], AbstractContextManager[warm.Side]]:
        @contextmanager
        def start(kind: str) -> Iterator[warm.Side]:
            if name == "broken" and kind == APACHE:
                raise OSError("no such program")
            up.append(f"{name} {kind}")
            yield warm.Side(kind, "", Path(), ())
            up.remove(f"{name} {kind}")

        return start

    one, other, broken = (replace(warm.PLAIN, up=of(name)) for name in ("one", "other", "broken"))
    with closing(warm.WarmBrokers()) as brokers:
        sides, first_s = brokers.of(one)
        assert brokers.of(one) == (sides, warm.UNMEASURED_AT_LEAST_S)
        assert first_s == warm.FIRST_UNMEASURED_AT_LEAST_S
        assert up == ["one kafkacompat", "one apache"]
        brokers.of(other)
        assert up == ["other kafkacompat", "other apache"]
        with pytest.raises(OSError, match="no such program"):
            brokers.of(broken)
        assert up == []
        assert brokers.of(one)[1] == warm.FIRST_UNMEASURED_AT_LEAST_S
    assert up == []


def test_a_repeated_request_must_get_the_response_that_was_kept(tmp_path: Path) -> None:
    """The broker is a socket that answers with what it gets."""
    exchanges = tmp_path / "exchanges.json"
    listening = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            # A client that goes away may leave responses unread.
            with connection, suppress(ConnectionResetError):
                while said := connection.recv(1 << 16):
                    connection.sendall(said)

    threading.Thread(target=echo, daemon=True).start()

    def repeat(*replies: bytes) -> dict[str, float]:
        pairs = [
            (frame(content).hex(), reply.hex()) for content, reply in zip((b"a", b"b"), replies, strict=True)
        ]
        exchanges.write_text(json.dumps(pairs), "utf-8")
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        return raw_exchanges(
            {"bootstrap": address, "exchanges": str(exchanges), "requests": 7, "in_flight": 3}
        )

    with listening:
        assert repeat(b"a", b"b")["requests_per_s"] > 0
        with pytest.raises(RuntimeError, match="the response is 62 and no longer 63"):
            repeat(b"a", b"c")


def test_the_commit_that_is_measured_is_told(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    assert measured_commit(tmp_path) == ""
    git("init")
    (tmp_path / "file").write_text("one", "utf-8")
    git("add", ".")
    git("commit", "-m", "one")
    commit = measured_commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{7,}", commit)
    (tmp_path / "file").write_text("two", "utf-8")
    assert measured_commit(tmp_path) == f"{commit}-dirty"


@pytest.mark.parametrize(
    "figure", ["records/s", "catch-up MB/s, with the start", "requests/s, times the plain", "% of the quota"]
)
def test_more_of_a_rate_is_better(figure: str) -> None:
    assert not is_less_better(figure)


@pytest.mark.parametrize(
    "figure",
    [
        "one leaves, s",
        "one is lost: its tasks are active, s after its session",
        "CPU % at 1,000 records/s",
        "broker CPU s/million records",
        "overhead of the job in time a record %",
        "idle memory MB",
        "p99 ms",
    ],
)
def test_less_time_memory_or_cpu_is_better(figure: str) -> None:
    assert is_less_better(figure)
