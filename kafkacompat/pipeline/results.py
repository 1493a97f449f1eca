"""Rows of a job as records of a result topic. Each has a key, by which a later record replaces it, and a deterministic
event id.

If Spark repeats a batch after a crash, it writes the same keys and ids again, so consumers can detect the copies. This
module knows keys and JSON, not the origin of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.tables import PARTITION_COLUMNS

KEY_MARK: Final = "|"
NULL_PART: Final = "\\N"
EVENT_ID: Final = "event_id"
EVENT_ID_CHARACTERS: Final = 32


def quoted(name: str) -> str:
    """Return the name of a column as Spark's functions take it. Without quotes a dot in it begins the name of a field."""
    return "`{}`".format(name.replace("`", "``"))


def joined(columns: Iterable[Column]) -> Column:
    """Join columns into one text, as a record's key. One column is its text.

    Of several, a | or \\ within a text has a \\ before it, and null is \\N, so that different values have different keys.
    """
    texts = [column.cast("string") for column in columns]
    if len(texts) > 1:
        texts = [F.coalesce(_marked(text), F.lit(NULL_PART)) for text in texts]
    return F.concat_ws(KEY_MARK, *texts)


def _marked(text: Column) -> Column:
    for mark in ("\\", KEY_MARK):
        text = F.replace(text, F.lit(mark), F.lit("\\" + mark))
    return text


def _json(columns: Iterable[Column]) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def event_id(place: str, key: Column, told: Iterable[Column]) -> Column:
    """A digest of the row's destination, key and content. It is the same whenever the row is computed again."""
    text = F.concat_ws(KEY_MARK, F.lit(place), key, _json(told))
    return F.substring(F.sha2(text.cast("binary"), 256), 1, EVENT_ID_CHARACTERS)


def record(
    topic: str, fields: dict[str, Column], key: Sequence[str], told_by: Sequence[str] | None = None
) -> Column:
    """A struct of topic, key and value. The value is JSON with event_id and all fields.

    `key` names the fields of the key. `told_by` names the fields that determine the event id, by default all. A row
    that only adds details then keeps its event id. A field event_id is the id itself.
    """
    named = [column.alias(name) for name, column in fields.items()]
    told = [fields[name].alias(name) for name in told_by or fields]
    key_text = joined(fields[name] for name in key)
    made = [] if EVENT_ID in fields else [event_id(topic, key_text, told).alias(EVENT_ID)]
    value = _json([*made, *named])
    return F.struct(F.lit(topic).alias("topic"), key_text.alias("key"), value.alias("value"))


def row_record(
    topic: str, columns: Sequence[str], key: Sequence[str], told_by: Sequence[str] | None = None
) -> Column:
    """The record of a row, with the columns of these names as fields. `told_by` is as in `record`."""
    return record(topic, {name: F.col(quoted(name)) for name in columns}, key, told_by)


def as_records(rows: DataFrame, made: Column) -> DataFrame:
    """Turn each row into the records in this array column: columns topic, key, value."""
    return rows.select(F.explode(made).alias("made")).select("made.*")


def one_record_each(topic: str, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Turn each row into one record with all its columns."""
    return as_records(rows, F.array(row_record(topic, rows.columns, key)))


def with_event_id(table: str, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Add an event id of the same kind to rows of a table, as their first column, unless they have one. Partition columns do not
    enter it."""
    if EVENT_ID in rows.columns:
        return rows
    told = [F.col(quoted(name)) for name in rows.columns if name not in PARTITION_COLUMNS]
    made = event_id(table, joined(F.col(quoted(name)) for name in key), told)
    return rows.select(made.alias(EVENT_ID), *map(quoted, rows.columns))


def rejected_records(topic: str, rows: DataFrame) -> DataFrame:
    """Turn rejected rows into records. They already have an event id, and the key is the bad record's key."""
    value = _json(F.col(name) for name in rows.columns)
    return rows.select(F.lit(topic).alias("topic"), F.col("source").alias("key"), value.alias("value"))
