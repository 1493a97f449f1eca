"""The table of releases: a column for each release, a row for each API, feature and default that has changed since."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from interop_tests.harness.kafka_jars import require_program
from kafkacompat.api.registry import BROKER_APIS

PROGRAM = Path(__file__).with_name("Release.java")
TIMEOUT_S = 60
SEEN_BY_CLIENTS = (
    "group.consumer.migration.policy",
    "group.coordinator.rebalance.protocols",
    "group.max.session.timeout.ms",
    "group.share.partition.max.record.locks",
    "log.message.timestamp.after.max.ms",
    "message.max.bytes",
    "replica.lag.time.max.ms",
)
"""The settings whose default has changed since 2.1, but for those of encryption, of threads and of the node's own files."""
LISTENERS = re.compile(r"\b(ZK_)?BROKER\b")
"""Those of an API that clients of a broker may use. Releases before 2.8 name none for any API."""
NOT_THERE = "-"


class Said(NamedTuple):
    apis: Mapping[int, tuple[str, str]]
    """Name and versions, such as 0-8, by key."""
    features: Mapping[str, str]
    """Levels, such as 7-33, by name."""
    defaults: Mapping[str, str]


def said_by(classpath: str) -> Said:
    """Run the program with the jars of a release."""
    done = subprocess.run(
        [require_program("java"), "-cp", classpath, str(PROGRAM)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    apis: dict[int, tuple[str, str]] = {}
    features: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for kind, *cells in (line.split("\t") for line in done.stdout.splitlines()):
        if kind == "default":
            defaults[cells[0]] = cells[1].strip("[]").replace(", ", ",")
        elif kind == "feature":
            name, lowest, highest = cells
            features[name] = f"{lowest}-{highest}"
        else:
            key, name, oldest, latest, listeners = cells
            if int(oldest) <= int(latest) and (not listeners or LISTENERS.search(listeners)):
                apis[int(key)] = name, f"{oldest}-{latest}"
    return Said(apis, features, defaults)


def table_of(said: Mapping[str, Said]) -> str:
    """A line of tab-separated cells for each row. The last release is the one that kafkacompat follows."""
    releases = list(said.values())
    rows = [["kind", "name", *said]]
    for entry in BROKER_APIS.entries:
        rows.append(
            ["api", str(entry.key), *(each.apis.get(entry.key, ("", NOT_THERE))[1] for each in releases)]
        )
    for name in releases[-1].features:
        rows.append(["feature", name, *(each.features.get(name, NOT_THERE) for each in releases)])
    for name in SEEN_BY_CLIENTS:
        rows.append(["default", name, *(each.defaults.get(name, NOT_THERE) for each in releases)])
    return "".join("\t".join(row) + "\n" for row in rows)
