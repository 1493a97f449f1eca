"""Bugs that only failing nodes reveal, to be planted in a copy of the product, to check whether a history reveals
them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT

PACKAGE = "kafkacompat"


@dataclass(frozen=True)
class PlantedBug:
    name: str
    module: str
    """Below kafkacompat/."""
    right: str
    """Occurs exactly once in the module."""
    wrong: str


def with_bug(text: str, bug: PlantedBug) -> str:
    """AssertionError unless the bug's place is in the text exactly once."""
    found = text.count(bug.right)
    assert found == 1, f"{bug.name}: what is to be changed occurs {found} times in {bug.module}"
    return text.replace(bug.right, bug.wrong)


PLANTED = (
    PlantedBug(
        "a high watermark does not wait for the followers",
        "partition/core.py",
        "        if self.alone:\n            return self.advance_alone()",
        "        if self.alone or self.is_leader:\n            return self.advance_alone()",
    ),
    PlantedBug(
        "a produce that waits is answered well when its leader is deposed",
        "partition/produce_purgatory.py",
        "errors[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER",
        "errors[partition] = ErrorCode.NONE",
    ),
    PlantedBug(
        "consumers read to the end of a leader's log",
        "partition/fetch_reads.py",
        "    return log.last_stable_offset if parameters.read_committed else log.high_watermark",
        "    return log.log_end_offset",
    ),
    PlantedBug(
        "a follower does not cut off what its leader does not have",
        "partition/following.py",
        "    log.truncate_to(offset)\n    below",
        "    below",
    ),
    PlantedBug(
        "aborted transactions are not told",
        "log/lookup.py",
        "found = segments.aborted(fetch_offset, upper_bound_offset)",
        "found = segments.aborted(fetch_offset, fetch_offset)",
    ),
    PlantedBug(
        "read_committed reads to the high watermark",
        "partition/fetch_reads.py",
        "    return log.last_stable_offset if parameters.read_committed else log.high_watermark",
        "    return log.high_watermark",
    ),
    PlantedBug(
        "a coordinator that loads passes over batches of one record",
        "coordinator/loading.py",
        "                if header.last_offset < self.next_offset:",
        "                if header.last_offset <= self.next_offset:",
    ),
    PlantedBug(
        "offsets are shown before they are replicated",
        "coordinator/shard.py",
        "        pending = self._log.when_all_committed()\n        return Deferred.of(value)",
        "        pending = None\n        return Deferred.of(value)",
    ),
    PlantedBug(
        "a commit does not wait for replicas",
        "coordinator/shard.py",
        "            pending = self._log.when_committed(end_offset)\n        else:",
        "            pending = None\n        else:",
    ),
    PlantedBug(
        "pending offsets of transactions are not waited for",
        "group/commit.py",
        "machine.offsets.pending_of_group(group_id) if require_stable else {}",
        "{}",
    ),
    PlantedBug(
        "an aborted transaction's offsets are committed",
        "group/offsets.py",
        "        if committed:\n            for group_id, topics",
        "        if True:\n            for group_id, topics",
    ),
)


def named(part: str) -> PlantedBug:
    """AssertionError unless exactly one bug has this text in its name."""
    found = [bug for bug in PLANTED if part in bug.name]
    assert len(found) == 1, f"{part!r} is in the names of {[bug.name for bug in found]}"
    return found[0]


def copy_with_bug(bug: PlantedBug, folder: Path) -> None:
    """The product with the bug, as a package below the folder."""
    shutil.copytree(
        CHECKOUT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "_tests")
    )
    path = folder / PACKAGE / bug.module
    path.write_text(with_bug(path.read_text(), bug))
