"""Where two values differ: a path through fields and elements, and what is there on each side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

VALUE_CHARACTERS = 900


class Told(NamedTuple):
    """A message as its fields, which can be an element of a set."""

    kind: str
    fields: tuple[tuple[str, Any], ...]


def differing(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """`theirs` is of Apache Kafka."""
    if ours == theirs:
        return
    if isinstance(ours, Told) and isinstance(theirs, Told) and ours.kind == theirs.kind:
        for (name, other), (_, mine) in zip(theirs.fields, ours.fields, strict=True):
            yield from differing(other, mine, f"{path}.{name}")
    elif isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name in ours:
            yield from differing(theirs[name], ours[name], f"{path}.{name}")
    elif is_list(ours) and is_list(theirs) and len(ours) == len(theirs):
        for index, (other, mine) in enumerate(zip(theirs, ours, strict=True)):
            yield from differing(other, mine, f"{path}[{index}]")
    else:
        yield f"{path}: Kafka {shortened(theirs)}\n      ours {shortened(ours)}"


def is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and not isinstance(value, Told)


def shortened(value: Any) -> str:
    return f"{value!r:.{VALUE_CHARACTERS}}"
