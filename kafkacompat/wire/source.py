"""What the two code generators share: lines of source, the names they refer to, and runs of fixed-size fields.

Runs of fixed-size values become one struct call.
"""

from functools import cache
from struct import Struct as Layout
from struct import calcsize
from typing import Any

TABLE_SIZE = 17
"""Arrays of fewer numbers than this have a struct of their own, made once."""


class Source:
    """Source under construction. `namespace` holds what the source refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.depth = 0
        self._names = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """A local name not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def refer(self, prefix: str, value: object) -> str:
        """The name under which the source sees `value`."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def define(self, name: str, title: str) -> Any:
        """Run the source; what it defined under `name`. Tracebacks call it `title`."""
        code = compile(self.text(), f"<{title}>", "exec")
        exec(code, self.namespace)  # noqa: S102 - the source is ours, made from our own definitions
        return self.namespace[name]


@cache
def layout(letters: str) -> Layout:
    """The big-endian struct of some format letters; the letters come from definitions, so these are few."""
    return Layout(f">{letters}")


@cache
def unpackers(letter: str) -> tuple[Any, ...]:
    """`unpack_from` for 0, 1, 2 ... values of one format letter."""
    return tuple(Layout(f">{n}{letter}").unpack_from for n in range(TABLE_SIZE))


@cache
def packers(prefix: str, letter: str) -> tuple[Any, ...]:
    """`pack` for a length of format `prefix` followed by 0, 1, 2 ... values of one format letter."""
    return tuple(Layout(f">{prefix}{n}{letter}").pack for n in range(TABLE_SIZE))


def size_of(letters: str) -> int:
    """Bytes that a big-endian struct takes."""
    return calcsize(f">{letters}")
