"""Records in a schema registry's wire format as a column of Spark: each is read in a Python worker, by `schemas`.

A worker keeps the schemas of a registry, and asks for each once. A registry that does not answer ends the query: its records
are read when the run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafkacompat.pipeline.fields import Field, Value
from kafkacompat.pipeline.schemas.client import RegistrySettings, registry_at
from kafkacompat.pipeline.schemas.reading import EventReader, Format, Schemas

REASON: Final = "reason"
JOBS_MAX: Final = 8
"""Maximum number of jobs and registries that a worker keeps."""


@dataclass(frozen=True, slots=True)
class SchemaDecoder:
    """What a worker needs: the topics with their formats, the fields of the job, and the registry."""

    formats: tuple[tuple[str, Format], ...]
    fields: tuple[Field, ...]
    registry: RegistrySettings

    @property
    def topics(self) -> list[str]:
        """The topics whose records it reads."""
        return [topic for topic, _ in self.formats]

    def column(self, topic: Column, value: Column) -> Column:
        """Return a struct with a record's fields, and with `reason`, which is null for those that are events. Null for a
        null topic."""
        made = ", ".join(
            [f"{REASON} string", *(f"`{each.name}` {each.kind.column_type}" for each in self.fields)]
        )
        decoder = self

        def decoded(topic: str | None, value: bytearray | None) -> tuple[Value | None, ...] | None:
            return None if topic is None else decoder.read(topic, value)

        return F.udf(decoded, made)(topic, value)

    def read(self, topic: str, value: bytes | bytearray | None) -> tuple[Value | None, ...]:
        """Return the reason and the fields of a record."""
        reader, columns = _readers(self)[topic]
        reason, values = reader.read(None if value is None else bytes(value))
        return reason, *(None if column is None else values[column] for column in columns)


@lru_cache(JOBS_MAX)
def _schemas(registry: RegistrySettings) -> Schemas:
    return Schemas(registry_at(registry))


@lru_cache(JOBS_MAX)
def _readers(decoder: SchemaDecoder) -> dict[str, tuple[EventReader, list[int | None]]]:
    """Return for each topic its reader, and for each field of the job its place in what the reader returns."""
    schemas = _schemas(decoder.registry)
    readers = {}
    for topic, form in decoder.formats:
        here = [field for field in decoder.fields if field.topic in (None, topic)]
        columns = [here.index(field) if field in here else None for field in decoder.fields]
        readers[topic] = EventReader(form, here, schemas), columns
    return readers
