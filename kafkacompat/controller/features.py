"""The supported feature levels, and the record versions of each metadata.version.

Pure tables from Kafka 4.4 (Feature, MetadataVersion). Nodes and images are unknown here.
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

METADATA_VERSIONS: Mapping[int, str] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}
"""The names of the levels of metadata.version."""
LATEST_METADATA_VERSION = max(METADATA_VERSIONS)

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (min(METADATA_VERSIONS), LATEST_METADATA_VERSION),
    SHARE_VERSION: (0, 2),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
}
"""Name -> (lowest, highest) level, as a Kafka 4.4.0 node registers them."""

_DEFAULT_FROM: tuple[tuple[str, int, int], ...] = (
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, 26),
    (GROUP_VERSION, 1, 22),
    (SHARE_VERSION, 1, 28),
    (SHARE_VERSION, 2, 31),
    (STREAMS_VERSION, 1, 29),
    (TRANSACTION_VERSION, 2, 24),
)
"""(feature, level, the metadata.version from which on new clusters have this level), in the order of Kafka's format."""


def default_levels(level: int = LATEST_METADATA_VERSION) -> tuple[tuple[str, int], ...]:
    """The levels that `format` writes for a new cluster of this metadata.version, in Kafka's order."""
    others = {name: each for name, each, since in _DEFAULT_FROM if level >= since}
    return ((METADATA_VERSION, level), *others.items())


def level_of_release(text: str) -> int | None:
    """The level that `4.3`, `4.3.1` or `4.3-IV0` means. None if it is no name, or one of a later release."""
    release = ".".join(text.split(".")[:2])
    levels = [level for level, name in METADATA_VERSIONS.items() if release in (name, name.partition("-")[0])]
    return max(levels, default=None)


METADATA_CHANGING_LEVELS = (7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33)
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


def bootstrap_snapshot_supported(level: int) -> bool:
    """Whether every release with this level reads the first records of a cluster from the 0-0 snapshot (KIP-1170)."""
    return level >= 31


def controller_unregistration_supported(level: int) -> bool:
    return level >= 33


CORDONED_LOG_DIRS_SINCE = 30


def cordoned_directories_supported(level: int) -> bool:
    return level >= CORDONED_LOG_DIRS_SINCE


def cidr_acls_supported(level: int) -> bool:
    return level >= 32


def scram_supported(level: int) -> bool:
    return level >= 11


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
