"""What happened in a run of a simulated cluster. A count of none over many runs is a blind spot."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class ClusterCounters:
    """What happened in a run, or in many."""

    events: int = 0
    faults: int = 0
    kills: int = 0
    power_losses: int = 0
    lost_bytes: int = 0
    failed_syncs: int = 0
    clean_stops: int = 0
    pauses: int = 0
    partitions: int = 0
    one_way_partitions: int = 0
    resets: int = 0
    controllers: int = 0
    """Times a node became the active controller."""
    snapshots_loaded: int = 0
    images_compared: int = 0
    elections: int = 0
    partitions_without_leader: int = 0
    eligible_replicas: int = 0
    """Times a partition came to have eligible leader replicas outside its ISR."""
    leaderships: int = 0
    isr_shrinks: int = 0
    isr_expansions: int = 0
    truncations: int = 0
    """Of partition logs."""
    fenced_brokers: int = 0
    brokers_gone: int = 0
    """Taken for gone by a controller before their sessions were over."""
    reassignments: int = 0
    """Completed."""
    directory_moves: int = 0
    """Of replicas on their node, completed."""
    voter_changes: int = 0
    """Voters removed or taken in."""
    deletions: int = 0
    """Of records."""
    topics_deleted: int = 0
    """Each is made anew under its name."""
    acknowledged: int = 0
    produce_retries: int = 0
    consumed: int = 0
    reads_from_followers: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_in_doubt: int = 0
    """Their producer was fenced before it knew whether they were committed."""
    transactions_asked_again: int = 0
    """Times the end of one was asked for again."""
    producers_replaced: int = 0
    """In the middle of a transaction."""

    def add(self, other: ClusterCounters) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))
