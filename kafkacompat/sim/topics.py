"""The topics of a simulated cluster: which are cleaned, which let old records go, which elect leaders that may lack records.

What a topic is for follows from its name alone, for clients and for oracles.
"""

from __future__ import annotations

from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkacompat.sim.cluster_options import MIN_ISR, ClusterOptions

MADE_ANEW = "again"
"""The one that comes and goes, and has another id each time."""
COMPACTED, RETAINED, UNCLEAN = "latest", "recent", "unclean"
COORDINATORS_TOPICS = (OFFSETS_TOPIC, TRANSACTION_TOPIC)
APART = (COMPACTED, RETAINED, UNCLEAN)
"""With oracles of their own: transactions and groups leave them alone."""
DELETE_RETENTION_MS = 2_500
"""Tombstones of a topic that is cleaned stay so long."""


def is_compacted(topic: str) -> bool:
    return topic == COMPACTED or topic in COORDINATORS_TOPICS


def min_isr(topic: str) -> int:
    """Where records may be lost, a leader goes on alone, and they are."""
    return 1 if topic == UNCLEAN else MIN_ISR


def kept_topics(options: ClusterOptions) -> dict[str, dict[str, str]]:
    """Topic -> its settings, of those that are made at the beginning besides the first."""
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
    """Of the coordinators' topics, once they are there."""
    return {
        "internal.segment.bytes": str(options.segment_bytes),
        "min.cleanable.dirty.ratio": "0.2",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
    }
