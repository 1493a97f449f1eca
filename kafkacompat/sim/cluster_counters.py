"""Counts what happened in a run of a simulated cluster. A count of zero over many runs shows a blind spot."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class ClusterCounters:
    """Counts of one run, or of many."""

    events: int = 0
    faults: int = 0
    kills: int = 0
    power_losses: int = 0
    lost_bytes: int = 0
    lost_names: int = 0
    """Names created, removed or changed that a power loss undid."""
    failed_syncs: int = 0
    refusing_disks: int = 0
    """Directories that were full, read-only, broken or failed a write."""
    failed_loads: int = 0
    """Reads that failed once while a coordinator's partition was loaded."""
    full_quorums: int = 0
    """Times the metadata directories of all controllers were full at once."""
    lost_directories: int = 0
    """Times a node continued without a directory."""
    halts: int = 0
    """Nodes that halted because of a disk error."""
    deaths_within: int = 0
    """Processes that died in the middle of a step."""
    held_pools: int = 0
    """Times threads were stuck."""
    unforeseen: int = 0
    """Jobs that failed with a planted bug."""
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
    """Times a partition got eligible leader replicas outside its ISR."""
    leaderships: int = 0
    isr_shrinks: int = 0
    isr_expansions: int = 0
    truncations: int = 0
    """Truncations of partition logs."""
    fenced_brokers: int = 0
    brokers_gone: int = 0
    """Brokers that a controller took for dead before their sessions expired."""
    reassignments: int = 0
    """Completed reassignments."""
    directory_moves: int = 0
    """Completed moves of replicas between a node's directories."""
    voter_changes: int = 0
    """Voters removed or added."""
    deletions: int = 0
    """Deletions of records."""
    logs_cleaned: int = 0
    """Cleanings of compacted topics."""
    starts_retained: int = 0
    """Times retention by time or size moved a log's start offset."""
    positions_reset: int = 0
    """Resets of consumers whose next record was gone."""
    unclean_elections: int = 0
    batches_lost: int = 0
    """Batches lost by unclean elections."""
    topics_deleted: int = 0
    """Deleted topics. Each is created again under the same name."""
    acknowledged: int = 0
    produce_retries: int = 0
    consumed: int = 0
    reads_from_followers: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_in_doubt: int = 0
    """Transactions whose producer was fenced before it knew whether they were committed."""
    transactions_asked_again: int = 0
    """Repeated requests to end a transaction."""
    producers_replaced: int = 0
    """Producers replaced in the middle of a transaction."""

    assignments: int = 0
    """Assignments given to members of groups."""
    members_gone: int = 0
    """Members that left their group or vanished."""
    commits: int = 0
    """Answered commits of groups."""
    offsets_read: int = 0
    """Offsets read by members."""
    groups_deleted: int = 0

    settings_changed: int = 0
    """Changes of settings, features and numbers of partitions."""
    partitions_added: int = 0
    features_switched: int = 0

    rights_changed: int = 0
    """Answered changes of access control entries and users."""
    logins: int = 0
    logins_with_tokens: int = 0
    logins_refused: int = 0
    sessions_ended: int = 0
    """Connections closed because the client's token had expired."""
    requests_allowed: int = 0
    """Requests of clients that authenticated themselves."""
    requests_refused: int = 0
    """Those that they had no right to."""

    def add(self, other: ClusterCounters) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))
