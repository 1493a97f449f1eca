"""Spark's packages follow from the installed PySpark, and from the formats of the tables. No Spark."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import packages
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.tables import FORMATS, format_in

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference" / "pipeline.md"
FORMATS_HEAD = "| format | package on Spark {} | read it in Spark with | the batch that a commit names |"
RELEASES_HEAD = "| PySpark | what is tested | what stands in the way |"
DELTA_OR_ICEBERG = re.compile(r"\b(?:io\.delta|org\.apache\.iceberg):[\w.-]+:[\d.]+")
RELEASE_OF_SPARK = re.compile(
    r"spark-sql-kafka-0-10_2\.13:([\d.]*\d)|pyspark(?:\[\w+\])?==([\d.]*\d)|PySpark (\d+\.\d+\.\d+)"
)

MINOR_OF_SPARK = re.compile(r"Spark (\d+\.\d+)(?!\.?\d| and later)")
"""What a page says of the extra's release. What begins with a release is called `and later`."""


def rows_below(head: str) -> list[list[str]]:
    """The rows of the table with this head, in the reference."""
    lines = REFERENCE.read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines[lines.index(head) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def of_the_extra() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (release,) = (
        name.removeprefix("pyspark==")
        for name in project["optional-dependencies"]["spark"]
        if name.startswith("pyspark==")
    )
    return str(release)


def releases_tested() -> list[str]:
    """By the reference, in its order."""
    return [row[0].split(",")[0] for row in rows_below(RELEASES_HEAD) if not row[1].startswith("nothing")]


def test_the_first_release_of_the_reference_is_that_of_the_extra() -> None:
    first, *_ = rows_below(RELEASES_HEAD)
    assert first[0] == f"{of_the_extra()}, of the extra `spark`"


def test_the_documents_name_tested_releases_only() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, release)
        for page in pages
        for match in RELEASE_OF_SPARK.findall(page.read_text(encoding="utf-8"))
        for release in match
        if release
    }
    assert {release for _, release in named} == {*releases_tested()}
    assert {release for page, release in named if page == "README.md"} == {of_the_extra()}


def test_what_documents_say_of_a_line_of_releases_is_of_that_of_the_extra() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, minor) for page in pages for minor in MINOR_OF_SPARK.findall(page.read_text("utf-8"))
    }
    assert {minor for _, minor in named} == {of_the_extra().rsplit(".", 1)[0]}, named


def test_the_reference_has_the_packages_of_each_tested_release() -> None:
    """Those of the extra's release in the table of formats, those of other releases in their rows."""
    minors = {release.rsplit(".", 1)[0]: release for release in releases_tested()}
    assert set(packages.FORMAT_PACKAGES) <= set(minors)
    minor_of_the_extra = of_the_extra().rsplit(".", 1)[0]
    formats = rows_below(FORMATS_HEAD.format(minor_of_the_extra))
    releases = {row[0]: row for row in rows_below(RELEASES_HEAD)}
    for minor, found in packages.FORMAT_PACKAGES.items():
        if minor == minor_of_the_extra:
            told = {row[0].strip("`"): row[1].strip("`") for row in formats}
            assert told == {"parquet": "none", **found}
        else:
            row = releases[minors[minor]]
            assert DELTA_OR_ICEBERG.findall(row[1]) == list(found.values())


def test_the_connector_is_that_of_the_installed_spark() -> None:
    assert packages.connector().endswith(f":{version('pyspark')}")
    assert packages.packages() == packages.packages(["parquet"]) == packages.connector()
    assert packages.format_settings(["parquet"]) == {}


def test_each_format_has_a_package_for_the_installed_spark() -> None:
    assert len(packages.packages(FORMATS).split(",")) == len(FORMATS)
    assert len(packages.format_settings(FORMATS)["spark.sql.extensions"].split(",")) == len(FORMATS) - 1


def test_a_format_that_has_no_package_for_this_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "spark_version", lambda: "9.1.0")
    assert packages.packages() == "org.apache.spark:spark-sql-kafka-0-10_2.13:9.1.0"
    with pytest.raises(PipelineFailed, match=r"format delta need Spark 4\.0 or 4\.2, and PySpark 9\.1\.0"):
        packages.packages(["delta"])
    assert packages.formats_here() == ("parquet",)


def test_a_spark_without_a_package_of_iceberg_writes_the_other_formats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "spark_version", lambda: "4.2.0")
    assert packages.formats_here() == ("parquet", "delta")
    assert packages.packages(["delta"]).endswith(":4.2.0,io.delta:delta-spark_4.2_2.13:4.4.0")
    with pytest.raises(PipelineFailed, match=r"format iceberg need Spark 4\.0, and PySpark 4\.2\.0"):
        packages.packages(["iceberg"])


def test_a_table_is_known_by_its_commits() -> None:
    assert format_in(["_delta_log", "date=2026-11-20"]) == "delta"
    assert format_in(["_spark_metadata", "date=2026-11-20"]) == "parquet"
    assert format_in(["data", "metadata"]) == "iceberg"
    assert format_in(["date=2026-11-20"]) is None
