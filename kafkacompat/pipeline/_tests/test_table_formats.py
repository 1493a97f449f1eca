"""Each format of tables has what every place needs of it."""

from __future__ import annotations

from kafkacompat.pipeline import packages, tables
from kafkacompat.pipeline.table_formats import LAKES, TABLE_FORMATS


def test_each_format_has_a_value() -> None:
    assert set(TABLE_FORMATS) == set(tables.FORMATS)


def test_each_format_besides_sparks_own_has_packages_and_extensions() -> None:
    assert set(packages.EXTENSIONS) == set(LAKES)
    found = packages.FORMAT_PACKAGES
    assert {name for here in found.values() for name in here} == set(found["4.0"]) == set(LAKES)
