"""Rows of a job as records of a result topic: a key by which the later record replaces the earlier, and a deterministic event id.

A batch that Spark runs again after a crash writes the same keys and ids again, by which consumers tell the copy. Knows keys
and JSON, not how rows come about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KEY_MARK: Final = "|"
EVENT_ID_CHARACTERS: Final = 32
LAYOUT_COLUMNS: Final = ("date", "hour")
"""Partition columns of tables; no part of what a row says."""


def joined(columns: Iterable[Column]) -> Column:
    """Columns as one text, as a record's key."""
    return F.concat_ws(KEY_MARK, *(column.cast("string") for column in columns))


def _json(columns: Iterable[Column]) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def event_id(place: str, key: Column, told: Iterable[Column]) -> Column:
    """A digest of where a row goes, its key and what it says: the same whenever the row is made again."""
    text = F.concat_ws(KEY_MARK, F.lit(place), key, _json(told))
    return F.substring(F.sha2(text.cast("binary"), 256), 1, EVENT_ID_CHARACTERS)


def record(
    topic: str, fields: dict[str, Column], key: Sequence[str], told_by: Sequence[str] | None = None
) -> Column:
    """A struct of topic, key and value; value is JSON of event_id and all fields.

    key names the fields that make the key. told_by names the fields by which the event id goes, all unless given: a row that
    says more of the same thing need not be a new event.
    """
    named = [column.alias(name) for name, column in fields.items()]
    told = [fields[name].alias(name) for name in told_by or fields]
    key_text = joined(fields[name] for name in key)
    value = _json([event_id(topic, key_text, told).alias("event_id"), *named])
    return F.struct(F.lit(topic).alias("topic"), key_text.alias("key"), value.alias("value"))


def row_record(
    topic: str, columns: Sequence[str], key: Sequence[str], told_by: Sequence[str] | None = None
) -> Column:
    """The record of a row whose columns of these names are its fields; told_by as in `record`."""
    return record(topic, {name: F.col(name) for name in columns}, key, told_by)


def as_records(rows: DataFrame, made: Column) -> DataFrame:
    """Each row as the records in this array column: columns topic, key, value."""
    return rows.select(F.explode(made).alias("made")).select("made.*")


def one_record_each(topic: str, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Each row as one record with all its columns."""
    return as_records(rows, F.array(row_record(topic, rows.columns, key)))


def with_event_id(table: str, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Rows of a table with the same kind of event id as their first column."""
    told = [F.col(name) for name in rows.columns if name not in LAYOUT_COLUMNS]
    made = event_id(table, joined(F.col(name) for name in key), told)
    return rows.select(made.alias("event_id"), *rows.columns)


def rejected_records(topic: str, rows: DataFrame) -> DataFrame:
    """Rejected rows as records; they bring their own event id, and the key is the bad record's."""
    value = _json(F.col(name) for name in rows.columns)
    return rows.select(F.lit(topic).alias("topic"), F.col("source").alias("key"), value.alias("value"))
