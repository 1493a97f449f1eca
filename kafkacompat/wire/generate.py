"""Writes the typed message modules from the definitions: `python -m kafkacompat.wire.generate`.

It writes `wire/messages/*.py`, one module for each definition, and `wire/tables.py`: facts about every API and record type
that are needed before any message is imported, from apis.tsv joined with the definitions. With `--check` nothing is
written, and the exit status says whether the files are up to date.
"""

import csv
import json
import sys
from pathlib import Path

from kafkacompat.wire.definition import (
    NEVER,
    NO_VERSION,
    ROOT,
    FieldSpec,
    MessageSpec,
    StructSpec,
    Versions,
    definition_paths,
    load_definition,
    snake_case,
)

HEADER = '''"""API keys and record types of Kafka 4.4.

Written by `python -m kafkacompat.wire.generate` from apis.tsv and definitions/."""

import enum
from typing import NamedTuple


class ApiKey(enum.IntEnum):
    """The APIs of the protocol by key, those that Kafka 4 removed included."""

'''
API_CLASS = '''

class Api(NamedTuple):
    """One API: its stable version range (empty for a removed one) and first flexible versions (32767 if none)."""

    key: ApiKey
    name: str
    oldest: int
    latest: int
    request_flexible_min: int
    response_flexible_min: int
    on_broker: bool
    on_controller: bool
    cluster_action: bool
    forwardable: bool
    changes: bool
    """Whether a request changes something, so that an error can be told although the work was done. All others only read."""


APIS: dict[int, Api] = {
'''


_FLAGS = {"true": True, "false": False}


def tables_text(specs: list[MessageSpec]) -> str:
    """Return the module's text for all valid definitions."""
    by_name = {spec.name: spec for spec in specs}
    with (ROOT.parent / "apis.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    lines = [HEADER.rstrip("\n"), ""]
    lines += [f"    {_constant(row['name'])} = {row['key']}" for row in rows]
    lines.append(API_CLASS.rstrip("\n"))
    for row in rows:
        name = row["name"]
        versions = _stable_versions(by_name.get(f"{name}Request"))
        request = _flexible_min(by_name.get(f"{name}Request"))
        response = _flexible_min(by_name.get(f"{name}Response"))
        if name == "ApiVersions":
            # A client that does not know our versions yet must be able to read the header (KIP-511).
            response = NO_VERSION
        places = row["listeners"]
        flags = [_FLAGS[row[name]] for name in ("cluster_action", "forwardable", "changes")]
        flag_text = ", ".join(str(flag) for flag in ("BROKER" in places, "CONTROLLER" in places, *flags))
        lines.append(
            f'    {row["key"]}: Api(ApiKey({row["key"]}), "{name}", {versions.low}, {versions.high}, '
            f"{request}, {response}, {flag_text}),"
        )
    lines.append("}")
    lines += _record_lines("METADATA_RECORDS", "Records of the metadata log", specs, "metadata")
    lines += _pair_lines("GROUP_RECORDS", "Keys and values of __consumer_offsets", specs, "group")
    lines += _pair_lines(
        "TRANSACTION_RECORDS", "Keys and values of __transaction_state", specs, "transaction"
    )
    lines += _pair_lines("SHARE_RECORDS", "Keys and values of __share_group_state", specs, "share")
    return "\n".join(lines) + "\n"


def _constant(name: str) -> str:
    return snake_case(name).upper()


def _stable_versions(request: MessageSpec | None) -> Versions:
    """Return the versions that Kafka serves by default: the valid ones, less the latest while it is unstable.

    An API that Kafka removed has a definition without valid versions.
    """
    if request is None:
        return NEVER
    valid = request.valid_versions
    return Versions(valid.low, valid.high - 1) if request.latest_version_unstable else valid


def _flexible_min(spec: MessageSpec | None) -> int:
    if spec is None or spec.flexible_versions.low > spec.flexible_versions.high:
        return NO_VERSION
    return spec.flexible_versions.low


def _record_lines(table: str, what: str, specs: list[MessageSpec], folder: str) -> list[str]:
    chosen = sorted((s for s in specs if s.path.startswith(f"{folder}/")), key=lambda s: s.api_key or 0)
    body = [f'    {s.api_key}: "{s.name}",' for s in chosen]
    return ["", f"{table}: dict[int, str] = {{", *body, "}", f'"""{what}: message names by type."""']


def _pair_lines(table: str, what: str, specs: list[MessageSpec], folder: str) -> list[str]:
    chosen = [s for s in specs if s.path.startswith(f"{folder}/")]
    keys = {s.api_key or 0: s.name for s in chosen if s.category == "coordinator-key"}
    values = {s.api_key or 0: s.name for s in chosen if s.category == "coordinator-value"}
    body = [f'    {number}: ("{keys[number]}", "{values[number]}"),' for number in sorted(keys)]
    return [
        "",
        f"{table}: dict[int, tuple[str, str]] = {{",
        *body,
        "}",
        f'"""{what}: message names by type."""',
    ]


TARGET = Path(__file__).parent
SCALARS = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Any",
}
PACKAGE_TEXT = (
    '"""Typed messages, one module a definition; written by `python -m kafkacompat.wire.generate`."""\n'
)


def generate_all() -> dict[str, str]:
    """Return the text of every generated module, by its path below `wire/`."""
    specs = [spec for path in definition_paths() if (spec := load_definition(path)) is not None]
    modules = {"messages/__init__.py": PACKAGE_TEXT, "tables.py": tables_text(specs)}
    for spec in specs:
        name = f"messages/{snake_case(spec.name)}.py"
        if name in modules:
            raise ValueError(f"two definitions are called {spec.name}")
        modules[name] = module_text(spec)
    return modules


def module_text(spec: MessageSpec) -> str:
    """Return the module of one definition: its nested structs first, the message last."""
    typing_names = "Any, ClassVar" if _uses_any(spec) else "ClassVar"
    base_names = ["Message"]
    if any(_needs_empty(f) for s in spec.structs for f in s.fields):
        base_names.insert(0, "EMPTY")
    if len(spec.structs) > 1:
        base_names.append("Struct")
    lines = [
        f'"""{spec.name}, versions {spec.valid_versions.low} to {spec.valid_versions.high}.',
        "",
        f'Written by `python -m kafkacompat.wire.generate` from definitions/{spec.path}."""',
        "",
        "from __future__ import annotations",
        "",
        f"from typing import {typing_names}",
        "",
        f"from kafkacompat.wire.message import {', '.join(base_names)}",
    ]
    for struct in spec.structs:
        lines += ["", ""]
        lines += _class_lines(struct, spec if struct is spec.root else None)
    return "\n".join(lines) + "\n"


def definition_text(path: str) -> str:
    """Return the definition at `path` below `definitions/` without its white space."""
    return json.dumps(json.loads((ROOT / path).read_text(encoding="utf-8")), separators=(",", ":"))


def _uses_any(spec: MessageSpec) -> bool:
    return any(f.kind == "records" for s in spec.structs for f in s.fields)


def _needs_empty(field: FieldSpec) -> bool:
    return field.is_array and field.default is not None


def _class_lines(struct: StructSpec, spec: MessageSpec | None) -> list[str]:
    lines = [f"class {struct.name}({'Struct' if spec is None else 'Message'}):"]
    names = "".join(f'"{f.name}", ' for f in struct.fields)
    lines.append(f"    __slots__ = ({names.rstrip(' ') if len(struct.fields) == 1 else names.rstrip(', ')})")
    if spec is not None:
        flexible = spec.flexible_versions
        minimum = 32767 if flexible.low > flexible.high else flexible.low
        lines += [
            f"    API_KEY: ClassVar[int | None] = {spec.api_key}",
            f"    MIN_VERSION: ClassVar[int] = {spec.valid_versions.low}",
            f"    MAX_VERSION: ClassVar[int] = {spec.valid_versions.high}",
            f"    FLEXIBLE_MIN: ClassVar[int] = {minimum}",
            f"    DEFINITION: ClassVar[str] = {definition_text(spec.path)!r}",
        ]
    if not struct.fields:
        return lines
    lines += ["", "    def __init__(", "        self,", "        *,"]
    lines += [f"        {f.name}: {annotation(f)} = {_argument_default(f)}," for f in struct.fields]
    lines.append("    ) -> None:")
    lines += [f"        self.{f.name} = {_assigned(f)}" for f in struct.fields]
    return lines


def annotation(field: FieldSpec) -> str:
    """Return the Python type of a field, as written in the source."""
    if field.struct is not None:
        text = field.struct.name
    else:
        text = SCALARS.get(field.kind, "int")
    if field.is_array:
        text = f"list[{text}]"
    if text == "Any":
        return text
    if field.optional or _makes_struct(field):
        text += " | None"
    return text


def _makes_struct(field: FieldSpec) -> bool:
    return field.struct is not None and not field.is_array and not field.optional


def _argument_default(field: FieldSpec) -> str:
    if field.default is None or (field.struct is not None and not field.is_array):
        return "None"
    if field.is_array:
        return "EMPTY"
    if field.kind == "uuid":
        return "bytes(16)"
    return f'"{field.default}"' if isinstance(field.default, str) else repr(field.default).replace("'", '"')


def _assigned(field: FieldSpec) -> str:
    if _needs_empty(field):
        return f"[] if {field.name} is EMPTY else {field.name}"
    if _makes_struct(field) and field.struct is not None:
        return f"{field.struct.name}() if {field.name} is None else {field.name}"
    return field.name


def main(arguments: list[str]) -> int:
    modules = generate_all()
    present = {f"messages/{path.name}" for path in (TARGET / "messages").glob("*.py")}
    stale = sorted(name for name in modules.keys() | present if _on_disk(name) != modules.get(name))
    if "--check" in arguments:
        for name in stale:
            print(f"out of date: kafkacompat/wire/{name}")
        return 1 if stale else 0
    (TARGET / "messages").mkdir(exist_ok=True)
    for name in stale:
        if name in modules:
            (TARGET / name).write_text(modules[name], encoding="utf-8")
        else:
            (TARGET / name).unlink()
    print(f"{len(modules)} modules, {len(stale)} rewritten")
    return 0


def _on_disk(name: str) -> str | None:
    path = TARGET / name
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
