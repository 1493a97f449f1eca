"""The metadata hash of a group of a newer kind: whether the topics that its members subscribe to have changed.

Only equality matters. The hash is Kafka's own nevertheless, because it is in the group's records: a broker of another
kind that takes over the group would otherwise compute another hash and start a needless epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import pack
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from kafkacompat.group.consumer.assignor import string_order
from kafkacompat.ids import Uuid

if TYPE_CHECKING:
    from kafkacompat.group.environment import Environment
    from kafkacompat.group.topics import Topic
    from kafkacompat.tasks import Work

MAGIC = 0
"""The version of the hash function."""
HASH_COST = 6
"""To hash one topic."""
HASHED_PARTITIONS_A_UNIT = 20
"""Partitions of a topic that are hashed for a cost of 1."""


def metadata_hash(env: Environment, names: Iterable[str]) -> int:
    """Of the topics that exist. It changes when one of them does."""
    found = {name: topic for name in names if (topic := env.topics.by_name.get(name)) is not None}
    return group_hash({name: _hash_of(env, topic) for name, topic in found.items()})


def hash_topics(env: Environment, names: Iterable[str]) -> Work[None]:
    """Hash these topics beside the requests, so that `metadata_hash` finds what is still true of it."""
    for name in names:
        topic = env.topics.by_name.get(name)
        if topic is not None:
            _hash_of(env, topic)
            yield HASH_COST + len(topic.partitions) // HASHED_PARTITIONS_A_UNIT


def _hash_of(env: Environment, topic: Topic) -> int:
    cached = env.topic_hashes.get(topic.name)
    if cached is None or cached[0] is not topic:
        known = topic_hash(topic.id, topic.name, len(topic.partitions), env.topics.racks(topic))
        cached = env.topic_hashes[topic.name] = (topic, known)
    return cached[1]


def topic_hash(
    topic_id: Uuid, name: str, partition_count: int, racks: Sequence[Sequence[str]] | None = None
) -> int:
    """A topic's hash as a signed number of 64 bits. A topic without metadata counts as 0.

    `racks`: for each partition the rack ids of its replicas in any order, each as often as it has replicas. None if no
    replica has one.
    """
    parts = [pack("<b", MAGIC), topic_id[7::-1], topic_id[:7:-1], _string(name), pack("<i", partition_count)]
    if racks is None or not any(racks):
        parts.append(pack(f"<{partition_count}i", *range(partition_count)))
    else:
        # The partitions of a topic have few different sets of racks.
        encoded: dict[tuple[str, ...], bytes] = {}
        for partition in range(partition_count):
            key = tuple(racks[partition])
            if key not in encoded:
                encoded[key] = b"".join(map(_rack, sorted(key, key=string_order)))
            parts.append(partition.to_bytes(4, "little") + encoded[key])
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def group_hash(hashes: Mapping[str, int]) -> int:
    """The hash of a group, from the hashes of its topics by name. A signed number of 64 bits. 0 without topics."""
    if not hashes:
        return 0
    ordered = [hashes[name] for name in sorted(hashes)]
    return _signed(xxh3_64_intdigest(pack(f"<{len(ordered)}q", *ordered)))


def _string(text: str) -> bytes:
    """UTF-16 code units and their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + pack("<i", len(units) // 2)


def _rack(rack: str) -> bytes:
    """The length comes first as well: a rack id may contain any separator."""
    string = _string(rack)
    return string[-4:] + string


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
