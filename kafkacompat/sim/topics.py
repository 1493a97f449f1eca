"""The topics of a simulated cluster: compacted ones, ones with retention, and ones that allow unclean leaders.

Clients and oracles derive a topic's purpose from its name alone.
"""

from __future__ import annotations

from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkacompat.sim.cluster_options import MIN_ISR, ClusterOptions

MADE_ANEW = "again"
"""The topic that is deleted and created again, each time with a new id."""
COMPACTED, RETAINED, UNCLEAN = "latest", "recent", "unclean"
COORDINATORS_TOPICS = (OFFSETS_TOPIC, TRANSACTION_TOPIC)
DEAD_LETTERS = "dlq.jobs"
"""Takes the dead letters of the share group."""
APART = (COMPACTED, RETAINED, UNCLEAN)
"""Topics with their own oracles. Transactions and groups do not use them."""
DELETE_RETENTION_MS = 2_500
"""The retention time of tombstones in a compacted topic."""


def is_for_producers(topic: str) -> bool:
    """Whether producers use the topic. Internal topics belong to the coordinators, dead letters to the brokers."""
    return not topic.startswith("__") and topic != DEAD_LETTERS


def is_for_transactions(topic: str) -> bool:
    """Whether transactions use the topic. Deleting a topic would delete a part of a transaction."""
    return is_for_producers(topic) and topic != MADE_ANEW and topic not in APART


def is_compacted(topic: str) -> bool:
    return topic == COMPACTED or topic in COORDINATORS_TOPICS


def min_isr(topic: str) -> int:
    """If records may be lost, a leader accepts writes alone, so that some are lost."""
    return 1 if topic == UNCLEAN else MIN_ISR


def kept_topics(options: ClusterOptions) -> dict[str, dict[str, str]]:
    """Return the settings of the additional topics that are created at the beginning."""
    segments = {"internal.segment.bytes": str(options.segment_bytes)}
    topics = {}
    if options.segment_bytes:
        topics[COMPACTED] = {
            **segments,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.2",
            "delete.retention.ms": str(DELETE_RETENTION_MS),
        }
        topics[RETAINED] = {
            **segments,
            "retention.ms": str(options.retention_ms),
            "retention.bytes": str(options.retention_bytes),
        }
    if options.unclean:
        topics[UNCLEAN] = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    return topics


def coordinators_settings(options: ClusterOptions) -> dict[str, str]:
    """Return the settings that the coordinators' topics get once they exist."""
    return {
        "internal.segment.bytes": str(options.segment_bytes),
        "min.cleanable.dirty.ratio": "0.2",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
    }
