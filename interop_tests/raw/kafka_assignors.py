"""What Kafka's own classes answer: the server-side assignors of consumer and share groups, and the metadata hash of a
group."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interop_tests.harness.java_tools import java_command
from kafkacompat.group.consumer.assignor import Assignment, GroupSpec
from kafkacompat.group.share.simple_assignor import ShareGroupSpec
from kafkacompat.ids import Uuid

PROGRAM = Path(__file__).resolve().parent / "Assignors.java"
TIMEOUT_S = 120.0


class HashedTopic(NamedTuple):
    topic_id: Uuid
    name: str
    racks: Sequence[Sequence[str]]
    """Of each partition."""


def kafkas_assignments(name: str, specs: Iterable[GroupSpec]) -> list[dict[str, Assignment]]:
    """The target assignment of each group by Kafka's assignor of this name.

    The members are in the group's order and their previous assignments are sorted. In Kafka's coordinator both are in
    the order of hash tables.
    """
    return _assignments([_group(name, spec) for spec in specs])


def kafkas_shares(specs: Iterable[ShareGroupSpec]) -> list[dict[str, Assignment]]:
    """The target assignment of each share group by Kafka's assignor "simple"."""
    return _assignments([_share_group(spec) for spec in specs])


def _assignments(questions: Sequence[Mapping[str, Any]]) -> list[dict[str, Assignment]]:
    return [
        {
            member_id: {bytes.fromhex(topic): frozenset(numbers) for topic, numbers in assigned.items()}
            for member_id, assigned in answer.items()
        }
        for answer in _ask(questions)
    ]


def kafkas_hashes(groups: Iterable[Sequence[HashedTopic]]) -> list[tuple[dict[str, int], int]]:
    """The hashes of each group's topics by name, and the group's."""
    asked = [
        {"topics": [{"id": each.topic_id.hex(), "name": each.name, "racks": each.racks} for each in topics]}
        for topics in groups
    ]
    return [(answer["topics"], answer["group"]) for answer in _ask(asked)]


def _group(name: str, spec: GroupSpec) -> dict[str, Any]:
    """A topic without metadata is left out, as Kafka's coordinator leaves it out before it calls an assignor."""
    known = spec.partition_counts
    members = [
        {
            "id": member_id,
            "instance": member.instance_id,
            "topics": [topic_id.hex() for topic_id in sorted(member.topic_ids) if topic_id in known],
            "assigned": {topic_id.hex(): sorted(numbers) for topic_id, numbers in member.assigned.items()},
        }
        for member_id, member in spec.members.items()
    ]
    counts = {topic_id.hex(): count for topic_id, count in known.items()}
    return {"assignor": name, "counts": counts, "homogeneous": spec.homogeneous, "members": members}


def _share_group(spec: ShareGroupSpec) -> dict[str, Any]:
    members = [
        {
            "id": member_id,
            "instance": None,
            "topics": [topic_id.hex() for topic_id in sorted(member.topic_ids)],
            "assigned": {topic_id.hex(): sorted(numbers) for topic_id, numbers in member.assigned.items()},
        }
        for member_id, member in spec.members.items()
    ]
    return {
        "assignor": "simple",
        "counts": {
            topic_id.hex(): max(numbers, default=0) + 1 for topic_id, numbers in spec.assignable.items()
        },
        "assignable": {topic_id.hex(): [*numbers] for topic_id, numbers in spec.assignable.items()},
        "homogeneous": spec.homogeneous,
        "members": members,
    }


def _ask(questions: Sequence[Mapping[str, Any]]) -> list[Any]:
    done = subprocess.run(
        [*java_command(), "-Dfile.encoding=UTF-8", str(PROGRAM)],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(questions), done.stderr
    return answers
