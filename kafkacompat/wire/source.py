"""The part that the two code generators share: lines of source, the names they refer to, and runs of fixed-size
fields.

Runs of fixed-size values become one struct call.
"""

from abc import ABC, abstractmethod
from functools import cache
from struct import Struct as Layout
from struct import calcsize
from typing import Any

from kafkacompat.wire.definition import FIXED_TYPES, FieldSpec, MessageSpec

TABLE_SIZE = 17
"""Arrays with fewer numbers than this use a struct that is made once for each length."""


class Source:
    """Source under construction. `namespace` has the objects that the source refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.depth = 0
        self._names = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """Return an unused local name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def refer(self, prefix: str, value: object) -> str:
        """Return the name under which the source sees `value`."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def define(self, name: str, title: str) -> Any:
        """Run the source and return the object that it defined under `name`. Tracebacks call it `title`."""
        code = compile(self.text(), f"<{title}>", "exec")
        exec(code, self.namespace)  # noqa: S102 - the source is ours, made from our own definitions
        return self.namespace[name]


class FieldsSource(Source, ABC):
    """Source that iterates over the fields of one message at one version."""

    def __init__(self, spec: MessageSpec, version: int, classes: dict[str, type]) -> None:
        super().__init__()
        self.version = version
        self.flexible = version in spec.flexible_versions
        self.classes = classes
        self.run: list[tuple[str, str]] = []
        """Fixed-size values that wait for the struct call: variable or expression, and format letter."""

    def value(self, target: str, field: FieldSpec) -> None:
        """Read a field that is present into `target`, or write it from there."""
        compact = self.flexible
        if field.flexible_versions is not None:
            compact = compact and self.version in field.flexible_versions
        nullable = field.nullable(self.version)
        if field.is_array:
            self.array(target, field, compact, nullable)
        elif field.struct is not None:
            self.nested(target, field, nullable)
        elif field.kind in FIXED_TYPES:
            self.run.append((target, FIXED_TYPES[field.kind]))
        else:
            self.variable(target, field.kind, compact, nullable)

    @abstractmethod
    def array(self, target: str, field: FieldSpec, compact: bool, nullable: bool) -> None: ...

    @abstractmethod
    def nested(self, target: str, field: FieldSpec, nullable: bool) -> None: ...

    @abstractmethod
    def variable(self, target: str, kind: str, compact: bool, nullable: bool) -> None: ...


@cache
def layout(letters: str) -> Layout:
    """Return the big-endian struct of some format letters. The letters come from definitions, so there are few combinations."""
    return Layout(f">{letters}")


@cache
def unpackers(letter: str) -> tuple[Any, ...]:
    """Return `unpack_from` for 0, 1, 2 ... values of one format letter."""
    return tuple(Layout(f">{n}{letter}").unpack_from for n in range(TABLE_SIZE))


@cache
def packers(prefix: str, letter: str) -> tuple[Any, ...]:
    """Return `pack` for a length of format `prefix` followed by 0, 1, 2 ... values of one format letter."""
    return tuple(Layout(f">{prefix}{n}{letter}").pack for n in range(TABLE_SIZE))


def size_of(letters: str) -> int:
    """Return the size of a big-endian struct in bytes."""
    return calcsize(f">{letters}")
