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
    lost_names: int = 0
    """Names given, taken away or changed of which a power loss has left nothing."""
    failed_syncs: int = 0
    refusing_disks: int = 0
    """Directories that were full, read-only, broken or failed a write."""
    lost_directories: int = 0
    """Times a node went on without one."""
    halts: int = 0
    """Of nodes for what their disk told them."""
    deaths_within: int = 0
    """Of processes in the midst of a step."""
    held_pools: int = 0
    """Times threads were stuck."""
    unforeseen: int = 0
    """Jobs that ended with a bug."""
    slow_machines: int = 0
    clock_jumps: int = 0
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
    logs_cleaned: int = 0
    """Of compacted topics."""
    starts_retained: int = 0
    """Times that time or size has moved where a log begins."""
    positions_reset: int = 0
    """Of consumers, whose next record was gone."""
    unclean_elections: int = 0
    batches_lost: int = 0
    """By them."""
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

    assignments: int = 0
    """Told to members of groups."""
    members_gone: int = 0
    """Who left their group, or vanished."""
    commits: int = 0
    """Of groups, answered."""
    offsets_read: int = 0
    """By members."""
    groups_deleted: int = 0

    settings_changed: int = 0
    """And features, and numbers of partitions."""
    partitions_added: int = 0
    features_switched: int = 0

    def add(self, other: ClusterCounters) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))
