"""The fields of a job's events: their kinds, where they are in a record, and their bounds. The same for all formats. No Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafkacompat.pipeline.formats.named_fields import Place, json_place
from kafkacompat.pipeline.formats.patterns import FormatProblem

INTEGER_LEAST: Final = -(1 << 63)
INTEGER_MOST: Final = (1 << 63) - 1

Value = str | int | float | bool


class Kind(Enum):
    """The type of a field: the type of the column, what Spark's variant calls a JSON value of it, and what it is for people."""

    TEXT = ("string", "^STRING$", "text")
    INTEGER = ("bigint", "^BIGINT$", "a whole number")
    NUMBER = ("double", "^(BIGINT|DOUBLE|DECIMAL.*)$", "a number")
    BOOLEAN = ("boolean", "^BOOLEAN$", "true or false")

    @property
    def column_type(self) -> str:
        """The SQL type of the column."""
        return self.value[0]

    @property
    def variant_type(self) -> str:
        """A regular expression for the result of `schema_of_variant`."""
        return self.value[1]

    @property
    def text(self) -> str:
        """As a message has it."""
        return self.value[2]

    @property
    def is_number(self) -> bool:
        """Whether a field of it may have bounds."""
        return self in (Kind.INTEGER, Kind.NUMBER)

    def takes(self, value: object) -> bool:
        """Whether a value has this type, as a value in JSON would."""
        if self is Kind.TEXT:
            return isinstance(value, str)
        if self is Kind.BOOLEAN:
            return isinstance(value, bool)
        if isinstance(value, bool):
            return False
        if self is Kind.NUMBER and isinstance(value, float):
            return math.isfinite(value)
        return isinstance(value, int) and INTEGER_LEAST <= value <= INTEGER_MOST


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event. `least` and `most` are inclusive bounds of a number. `topic` is the only topic with the field.

    `names` means that this text identifies the event or its group. It must not be empty, because all events with an
    empty text would be the same. path: where the field is in a record, such as `customer.address[0]`, if not under its
    name. default: its value in records without it.
    """

    name: str
    kind: Kind
    required: bool = True
    least: float | None = None
    most: float | None = None
    topic: str | None = None
    names: bool = False
    path: str = ""
    default: Value | None = None

    @property
    def is_needed(self) -> bool:
        """Whether a record without it is no event."""
        return self.required and self.default is None

    @property
    def path_problem(self) -> str | None:
        """Why its path is none."""
        try:
            json_place(self.path or "name")
        except FormatProblem as problem:
            return str(problem)
        return None

    @property
    def place(self) -> Place:
        """Where it is in a record."""
        return json_place(self.path) if self.path else Place((self.name,), self.name)
