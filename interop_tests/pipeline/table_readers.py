"""Other engines than Spark, in a folder of the checkout's cache, and the program of docs/how-to/read-tables.md in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from interop_tests.cli.pages import blocks, section, text_of
from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.harness.programs import build_once

PAGE = text_of("docs/how-to/read-tables.md")
PAGES_TABLE = "tables/logs/events"
RELEASES = (
    "deltalake==1.6.6",
    "duckdb==2.0.1",
    "pandas==3.1.1",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pyiceberg==0.12.0",
)
TIME_LIMIT_S = 240.0


def reader_packages() -> Path:
    """The folder of the packages. They are not in the environment of the suite, where Spark would load some of them."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    folder = build_once(
        "table-readers-" + "-".join(each.rpartition("==")[2] for each in RELEASES),
        [],
        lambda folder: [[*pip, "--only-binary", ":all:", "--target", str(folder / "site"), *RELEASES]],
    )
    return folder / "site"


def program_of(heading: str, table: Path) -> str:
    """What the page has below a heading, for this table."""
    written = "\n".join(blocks(section(PAGE, heading), "python"))
    assert PAGES_TABLE in written
    return written.replace(PAGES_TABLE, str(table))


CONTENT = {
    "parquet": (
        "frame.to_dict('records')",
        "of_duckdb(table)",
        "polars.concat(frames, how='diagonal').to_dicts()",
    ),
    "delta": ("frame.to_dict('records')", "of_duckdb(table)", "polars.read_delta(PLACE).to_dicts()"),
    "iceberg": (
        "rows.to_pylist()",
        "of_duckdb(duckdb.from_arrow(rows))",
        "polars.from_arrow(rows).to_dicts()",
    ),
}
"""The rows of each format, by what its programs have made: with pandas or pyarrow, DuckDB and Polars."""

BEGINNING = """
import json

def of_duckdb(table):
    return [dict(zip(table.columns, row)) for row in table.fetchall()]

def tell(columns, rows):
    # pandas has a number that is none for a text that is absent.
    told = [[str(row[name]) if row[name] == row[name] and row[name] is not None else None for name in columns] for row in rows]
    print("content", json.dumps(sorted(told)))
"""

Content = list[list[str | None]]


def rows_read(
    tables: Path, columns: tuple[str, ...]
) -> tuple[dict[str, list[list[int]]], dict[str, list[Content]]]:
    """The numbers of rows that the page's programs print for each format, by line. Then these columns of all rows, as text, by
    each engine."""
    headings = {"parquet": "## Parquet", "delta": "## Delta", "iceberg": "## Iceberg"}
    program = BEGINNING
    for form, heading in headings.items():
        program += (
            f"print('read {form}')\nPLACE = {str(tables / form)!r}\n{program_of(heading, tables / form)}\n"
        )
        program += "".join(f"tell({columns!r}, {rows})\n" for rows in CONTENT[form])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=tables,
        env=os.environ | {"PYTHONPATH": f"{reader_packages()}{os.pathsep}{CHECKOUT}"},
    )
    assert done.returncode == 0, (done.stdout[-4000:], done.stderr[-4000:])
    found: dict[str, list[list[int]]] = {}
    content: dict[str, list[Content]] = {form: [] for form in headings}
    form = ""
    for line in done.stdout.splitlines():
        if line.startswith("read "):
            form = line.removeprefix("read ")
            found[form] = []
        elif line.startswith("content "):
            content[form].append(json.loads(line.removeprefix("content ")))
        else:
            found[form].append(sorted(map(int, re.findall(r"(?<=: )\d+|\b\d+(?= |$)", line))))
    return found, content
