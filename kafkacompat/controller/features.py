"""The supported feature levels, and the record versions of each metadata.version.

Pure tables from Kafka 4.3 (Feature, MetadataVersion). Nodes and images are unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (7, 30),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
}
"""Name -> (lowest, highest) level, as a Kafka 4.3.0 node registers them."""

DEFAULT_LEVELS: tuple[tuple[str, int], ...] = (
    (METADATA_VERSION, 30),
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
    (GROUP_VERSION, 1),
    (SHARE_VERSION, 1),
    (STREAMS_VERSION, 1),
    (TRANSACTION_VERSION, 2),
)
"""The levels that `format` writes, in the order of Kafka's bootstrap.checkpoint."""

METADATA_CHANGING_LEVELS = (7, 8, 11, 13, 14, 15, 17, 23, 30)
"""Levels of metadata.version that introduced records or fields which lower levels do not have."""
FEATURE_DEPENDENCIES: Mapping[tuple[str, int], Mapping[str, int]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: 23}
}
"""(feature, level) -> required levels of other features."""


def metadata_version(features: Mapping[str, int]) -> int:
    """The finalized level. The lowest of 4.x if the image has none."""
    return features.get(METADATA_VERSION, SUPPORTED_FEATURES[METADATA_VERSION][0])


def register_broker_version(level: int) -> int:
    if level >= 30:
        return 4
    if level >= 17:
        return 3
    return 2 if level >= 8 else 1


def partition_version(level: int) -> int:
    """The version of PartitionRecord and PartitionChangeRecord."""
    if level >= 23:
        return 2
    return 1 if level >= 17 else 0


def directories_supported(level: int) -> bool:
    return level >= 17


def cordoned_directories_supported(level: int) -> bool:
    return level >= 30


def cidr_acls_supported(level: int) -> bool:
    return level >= 32


def metadata_transactions_supported(level: int) -> bool:
    return level >= 13


def controller_registration_supported(level: int) -> bool:
    return level >= 15


def leader_epoch_bump_on_isr_shrink(level: int) -> bool:
    return level < 12


def elr_enabled(features: Mapping[str, int]) -> bool:
    return features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1 and metadata_version(features) >= 23


def loses_metadata(old: int, new: int) -> bool:
    """Whether a downgrade from old to new loses metadata, because a level in between introduced records or fields."""
    return any(new < level <= old for level in METADATA_CHANGING_LEVELS)
