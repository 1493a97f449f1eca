"""Topics as clients name and see them: legal names, and the leader and replicas of a partition for a client of one listener.

Pure functions of names and an image.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkacompat.ids import NO_LEADER, is_reserved_uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration

MAX_LENGTH = 249
LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_LENGTH}}}")


def is_legal_topic_name(name: str) -> bool:
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")


def leader_for(
    image: MetadataImage, partition: PartitionRegistration, listener_name: str, knows_listener_not_found: bool
) -> tuple[ErrorCode, int]:
    """Return (error, leader id). The id is -1, with the reason as the error, if there is no leader or it lacks the listener."""
    broker = image.brokers.get(partition.leader)
    if broker is None:
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    if listener_name not in broker.endpoints:
        if knows_listener_not_found:
            return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
        return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    return ErrorCode.NONE, partition.leader


def offline_replicas(image: MetadataImage, partition: PartitionRegistration, listener_name: str) -> list[int]:
    """Return replicas on brokers that are unknown, fenced or lack the listener, or in a directory that is offline."""
    offline = []
    for position, replica in enumerate(partition.replicas):
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced or listener_name not in broker.endpoints:
            offline.append(replica)
        elif position < len(partition.directories):
            directory = partition.directories[position]
            if directory not in broker.directories and broker.directories and not _is_undecided(directory):
                offline.append(replica)
    return offline


def _is_undecided(directory: bytes) -> bool:
    """Whether the directory is unassigned, or the replica is older than directory ids. LOST is neither."""
    return is_reserved_uuid(directory) and directory[15] != 2
