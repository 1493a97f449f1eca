"""The text of `wire/tables.py`: facts about every API and record type that are needed before any message is imported.

apis.tsv is joined with the definitions. Part of `wire.generate`.
"""

import csv

from kafkacompat.wire.definition import NO_VERSION, ROOT, MessageSpec, snake_case

HEADER = '''"""API keys and record types of Kafka 4.3.

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


APIS: dict[int, Api] = {
'''


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
        request = _flexible_min(by_name.get(f"{name}Request"))
        response = _flexible_min(by_name.get(f"{name}Response"))
        if name == "ApiVersions":
            # A client that does not know our versions yet must be able to read the header (KIP-511).
            response = NO_VERSION
        places = row["listeners"]
        flags = ("BROKER" in places, "CONTROLLER" in places, row["cluster_action"] == "true")
        flag_text = ", ".join(str(flag) for flag in (*flags, row["forwardable"] == "true"))
        lines.append(
            f'    {row["key"]}: Api(ApiKey({row["key"]}), "{name}", {row["oldest"]}, {row["latest"]}, '
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
