"""The coordinator key of a share-partition: `group:topic id:partition`. Read from the right, because the group's name may
have colons."""

from __future__ import annotations

import re

from kafkacompat.ids import uuid_from_text
from kafkacompat.share.service import SharePartitionKey

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_UUID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


def share_partition_key(text: str) -> SharePartitionKey:
    """Raises ValueError where Kafka's SharePartitionKey does."""
    tokens = text.split(":")
    while tokens and not tokens[-1]:  # as Java's String.split does
        tokens.pop()
    if len(tokens) < 3:
        raise ValueError(f"{text!r} is not group:topic id:partition")
    *group, topic_id, partition = tokens
    group_id = ":".join(group)
    if not group_id.strip(_JAVA_BLANKS):
        raise ValueError(f"{text!r} names no group")
    number = int(partition) if _INTEGER.fullmatch(partition) else 1 << 31
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{partition!r} is not a partition")
    if not _UUID.fullmatch(topic_id):
        raise ValueError(f"{topic_id!r} is not a topic id")
    return SharePartitionKey(group_id, uuid_from_text(topic_id[:22]), number)
