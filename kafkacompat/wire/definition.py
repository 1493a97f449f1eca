"""Message definitions as values: Kafka's JSON, parsed into frozen specifications.

One definition file (names, types, version ranges, tags, defaults) is parsed. The result answers questions about one
version. Follows the rules of Kafka's message generator: a field without versions has its tagged versions, and a `null`
default must be explicit.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkacompat.dataclass import dataclass

ROOT = Path(__file__).parent / "definitions"
NO_VERSION = 32767
FIXED_TYPES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions. Empty if `low > high`."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str | None, default: "Versions") -> "Versions":
        if text is None:
            return default
        text = text.strip()
        if text in ("", "none"):
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), NO_VERSION)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))


NEVER = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field. `kind` is the type, or the type of the elements if `is_array`. `struct` is set for structs."""

    name: str
    kind: str
    is_array: bool
    struct: "StructSpec | None"
    versions: Versions
    nullable_versions: Versions
    tagged_versions: Versions
    tag: int
    default: Any
    ignorable: bool
    flexible_versions: Versions | None

    def nullable(self, version: int) -> bool:
        return version in self.nullable_versions

    def tagged(self, version: int) -> bool:
        return version in self.tagged_versions and version in self.versions

    @property
    def ever_tagged(self) -> bool:
        return self.tag >= 0

    @property
    def optional(self) -> bool:
        """Whether the typed message may have None here.

        A tagged struct may also be None if Kafka does not call it nullable. None then means the default, which is not
        written.
        """
        return (
            self.nullable_versions.low <= self.nullable_versions.high
            or self.default is None
            or (self.struct is not None and not self.is_array and self.ever_tagged)
        )

    @property
    def absent_is_none(self) -> bool:
        """Whether None means the default: for a struct that is tagged and not nullable."""
        return (
            self.struct is not None
            and not self.is_array
            and self.ever_tagged
            and self.nullable_versions.low > self.nullable_versions.high
        )


@dataclass(frozen=True, slots=True)
class StructSpec:
    """A struct with its fields in the order of the definition."""

    name: str
    fields: tuple[FieldSpec, ...]

    def plain(self, version: int) -> list[FieldSpec]:
        return [f for f in self.fields if version in f.versions and not f.tagged(version)]

    def tagged(self, version: int) -> list[FieldSpec]:
        return sorted((f for f in self.fields if f.tagged(version)), key=lambda f: f.tag)

    def absent(self, version: int) -> list[FieldSpec]:
        return [f for f in self.fields if version not in f.versions]


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """A whole definition. `structs` has every struct in it, the innermost first and the message last."""

    name: str
    path: str
    category: str
    api_key: int | None
    valid_versions: Versions
    flexible_versions: Versions
    root: StructSpec
    structs: tuple[StructSpec, ...]
    listeners: tuple[str, ...]
    latest_version_unstable: bool


def snake_case(name: str) -> str:
    """Convert Kafka's CamelCase name of a field or message to a Python name."""
    name = name.replace("KRaft", "Kraft").replace("2Pc", "_2pc")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def definition_paths() -> Iterator[str]:
    """Yield every definition's path below `definitions/`, sorted."""
    for path in sorted(ROOT.glob("*/*.json")):
        yield path.relative_to(ROOT).as_posix()


def load_definition(path: str) -> MessageSpec | None:
    """Return the definition at `path` below `definitions/`, or None if no version of it is valid any more."""
    return parse_definition((ROOT / path).read_text(encoding="utf-8"), path)


def parse_definition(text: str, path: str) -> MessageSpec | None:
    """Return the definition with this text, which comes from `path`. None if no version of it is valid any more."""
    raw = json.loads(text)
    valid = Versions.parse(raw["validVersions"], NEVER)
    if valid.low > valid.high:
        return None
    structs: dict[str, StructSpec] = {}
    pending = {common["name"]: common["fields"] for common in raw.get("commonStructs", ())}

    def build_struct(name: str, fields: list[dict[str, Any]]) -> StructSpec:
        struct = StructSpec(name, tuple(build_field(field) for field in fields))
        structs[name] = struct
        return struct

    def find_struct(kind: str, field: dict[str, Any]) -> StructSpec:
        if field.get("fields"):
            return build_struct(kind, field["fields"])
        if kind not in structs:
            build_struct(kind, pending[kind])
        return structs[kind]

    def build_field(field: dict[str, Any]) -> FieldSpec:
        is_array = field["type"].startswith("[]")
        kind = field["type"].removeprefix("[]")
        tagged = Versions.parse(field.get("taggedVersions"), NEVER)
        flexible = field.get("flexibleVersions")
        return FieldSpec(
            name=snake_case(field["name"]),
            kind=kind,
            is_array=is_array,
            struct=find_struct(kind, field) if kind[0].isupper() else None,
            versions=Versions.parse(field.get("versions"), tagged),
            nullable_versions=Versions.parse(field.get("nullableVersions"), NEVER),
            tagged_versions=tagged,
            tag=field.get("tag", -1),
            default=_default(kind, is_array, field.get("default")),
            ignorable=bool(field.get("ignorable", False)),
            flexible_versions=None if flexible is None else Versions.parse(flexible, NEVER),
        )

    root = build_struct(raw["name"], raw["fields"])
    return MessageSpec(
        name=raw["name"],
        path=path,
        category=raw["type"],
        api_key=raw.get("apiKey"),
        valid_versions=valid,
        flexible_versions=Versions.parse(raw.get("flexibleVersions"), NEVER),
        root=root,
        structs=tuple(structs.values()),
        listeners=tuple(raw.get("listeners", ())),
        latest_version_unstable=bool(raw.get("latestVersionUnstable", False)),
    )


def _default(kind: str, is_array: bool, raw: Any) -> Any:
    """Return a field's default: Kafka's, otherwise the zero of its type, `[]` for arrays and `{}` for structs."""
    if raw == "null" or (kind == "records" and not is_array):
        return None
    if is_array:
        return []
    if kind[0].isupper():
        return {}
    if kind == "string":
        return raw or ""
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "bool":
        return str(raw).lower() == "true"
    if kind == "float64":
        return float(raw or 0)
    return 0 if raw in (None, "") else int(str(raw), 0)
