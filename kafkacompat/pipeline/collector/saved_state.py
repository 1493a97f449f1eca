"""The collector's state as text and back. Pure: the shell decides where it is stored.

JSON with a version. A person can read how far each file is shipped.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kafkacompat.pipeline.collector.followed import Mark, Saved
from kafkacompat.pipeline.collector.following import Held
from kafkacompat.pipeline.formats.w3c import names_of

VERSION: Final = 1


class StateUnreadable(Exception):
    """The text was not written by this collector. The message gives the reason."""


def encode(saved: list[Saved], held: list[Held]) -> str:
    """Encode the state. Each file is an object with `position`, where to continue, and `marks`, its [position, digest] pairs.

    `fields` are the names that are in force at the position. A mark with others has them as its third element.
    """
    files = [
        {
            **entry._asdict(),
            "marks": [_encoded(mark, entry.fields) for mark in entry.marks],
            "fields": entry.fields.decode("ascii"),
        }
        for entry in saved
    ]
    return json.dumps({"version": VERSION, "files": files, "held": [list(one) for one in held]}, indent=1)


def decode(text: str) -> tuple[list[Saved], list[Held]]:
    """Return the arguments of `encode`. Raises StateUnreadable."""
    try:
        whole = json.loads(text)
        if whole["version"] != VERSION:
            raise StateUnreadable(f"its version is {whole['version']!r}, not {VERSION}")
        return [_saved(entry) for entry in whole["files"]], [
            Held(int(device), int(inode), int(size)) for device, inode, size in whole["held"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateUnreadable(f"{type(error).__name__}: {error}") from error


def _encoded(mark: Mark, fields: bytes) -> list[int | str]:
    if mark.fields == fields:
        return [mark.position, mark.digest]
    return [mark.position, mark.digest, mark.fields.decode("ascii")]


def _saved(entry: dict[str, Any]) -> Saved:
    fields = _fields(entry.get("fields", ""))
    marks = tuple(
        Mark(int(position), str(digest), _fields(other[0]) if other else fields)
        for position, digest, *other in entry["marks"]
    )
    position = int(entry["position"])
    if not 0 <= position <= (marks[-1].position if marks else 0):
        raise ValueError(f"no usable position for {entry['path']!r}")
    return Saved(
        str(entry["identity"]),
        int(entry["device"]),
        int(entry["inode"]),
        str(entry["fingerprint"]),
        str(entry["path"]),
        position,
        marks,
        bool(entry["left"]),
        bool(entry.get("sought", False)),
        fields,
    )


def _fields(text: object) -> bytes:
    fields = str(text).encode("ascii")
    if fields and names_of(fields) is None:
        raise ValueError(f"no usable fields {text!r}")
    return fields
