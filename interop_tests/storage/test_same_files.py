"""After the same life, kafkacompat's directory has the files that Apache Kafka's has: their names, modes, and what is in
small ones.

Each difference is listed here with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.storage.contents import (
    READERS,
    read_some,
    write_topics,
    write_transactions,
)
from interop_tests.storage.test_round_trip import change
from kafkacompat.raft.snapshot import parse_snapshot

pytestmark = pytest.mark.needs_control

PRIVATE = "its keys of users and passwords are its user's alone"
WITHOUT_MODE = {"__cluster_metadata-0": PRIVATE}
"""Folders whose mode is another one."""
OTHER_CONTENTS = {
    "segments-0/leader-epoch-checkpoint": "after DeleteRecords, epochs stay as long as their segments",
}
NUMBER = re.compile(r"\d{20}")
DELETED = re.compile(r"\.[0-9a-f]{32}-delete")
ADDRESS = re.compile(r"[A-Za-z0-9_-]{22}")
TEXTS = ("checkpoint", "partition.metadata", "meta.properties", "quorum-state", ".kafka_cleanshutdown")
SAME_SIZE = (".index", ".snapshot")
"""Files whose size says how many entries they have. Those of times depend on the clock, and logs on the clients' batches."""
FIRST_SNAPSHOT = "__cluster_metadata-0/0-0000000000.checkpoint"
"""Written by the format (KIP-1170)."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[SwitchingBroker]]:
    made = [SwitchingBroker(kind, tmp_path / kind, dynamic=True) for kind in (APACHE, KAFKACOMPAT)]
    yield made
    for each in made:
        each.kill()


def live(node: SwitchingBroker) -> None:
    node.start()
    write_topics(node.bootstrap)
    read_some(node.bootstrap, READERS, "zstd", 15)
    open_transaction = write_transactions(node.bootstrap)
    change(node.bootstrap)
    node.stop()
    del open_transaction


def told_files(root: Path) -> dict[str, tuple[object, ...]]:
    """What is compared of each file, by its name with any offset but 0 as N."""
    found: dict[str, list[object]] = {}
    for path in sorted(root.rglob("*")):
        if DELETED.search(str(path)):
            continue  # kafkacompat removes the logs of deleted topics at its stop, Kafka at its next start
        name = NUMBER.sub(lambda number: "N" if int(number[0]) else "0", str(path.relative_to(root)))
        mode = None if name in WITHOUT_MODE else path.stat().st_mode & 0o777
        found.setdefault(name, []).append((mode, told(name, path)))
    return {name: tuple(each) for name, each in found.items()}


def told(name: str, path: Path) -> object:
    if not path.is_file():
        return "a folder"
    if name in OTHER_CONTENTS:
        return "other contents"
    if path.name.endswith(TEXTS) and not re.search(r"-\d{10}\.checkpoint$", path.name):
        return _told_text(path)
    if name == FIRST_SNAPSHOT:
        found = parse_snapshot(path.read_bytes())
        return found.kraft_version, [each.id for each in found.voters], sorted(found.values)
    if name.startswith("__cluster_metadata-0/"):
        return "depends on the time that the node runs"
    return path.stat().st_size if path.suffix in SAME_SIZE else "depends on the clock"


def _told_text(path: Path) -> object:
    text = ADDRESS.sub("ID", path.read_text())
    if path.name in (".kafka_cleanshutdown", "quorum-state"):
        return {name: value for name, value in json.loads(text).items() if name != "brokerEpoch"}
    if not text:
        text = "0\n0\n"  # Kafka's checkpoint before it is written first
    # Kafka writes partitions in the order of a hash table, and the time of the format.
    return sorted(line for line in text.splitlines() if not line.startswith("#"))


def test_the_same_life_leaves_the_same_files(nodes: list[SwitchingBroker]) -> None:
    for node in nodes:
        live(node)
    apache, ours = (told_files(node.data_dir) for node in nodes)
    assert {name: (apache.get(name), ours.get(name)) for name in sorted({*apache, *ours})
            if apache.get(name) != ours.get(name)} == {}  # fmt: skip
    assert len(ours) > 60
    ((mode, (kraft_version, voters, values)),) = ours[FIRST_SNAPSHOT]
    assert (mode, kraft_version, voters, len(values)) == (0o400, 1, [1], 6)
