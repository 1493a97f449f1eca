"""Counts what happened in the runs. A count of zero over many runs shows a blind spot of the simulation."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Self

from kafkacompat.dataclass import dataclass


class Counters:
    """Numbers, and numbers by name, in the fields of a dataclass."""

    __slots__ = ()

    def add(self, other: Self) -> None:
        for each in fields(self):  # type: ignore[arg-type]  # each kind is a dataclass
            own, others = getattr(self, each.name), getattr(other, each.name)
            if isinstance(own, dict):
                for name, count in others.items():
                    own[name] = own.get(name, 0) + count
            else:
                setattr(self, each.name, own + others)

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))  # type: ignore[arg-type]


@dataclass(slots=True)
class QuorumCounters(Counters):
    """Counts of one run. Sums over many runs show whether the simulation reaches its dangers."""

    events: int = 0
    faults: int = 0
    elections: int = 0
    truncations: int = 0
    snapshots_made: int = 0
    snapshots_fetched: int = 0
    lost_bytes: int = 0
    crashes: int = 0
    crashes_in_step: int = 0
    partitions: int = 0
    one_way_partitions: int = 0
    pauses: int = 0
    full_leaders: int = 0
    held_steps: int = 0
    acknowledged: int = 0
    refused_proposals: int = 0
    voter_changes: int = 0
    upgrades: int = 0
    lost_messages: int = 0
    duplicated_messages: int = 0


@dataclass
class ClusterCounters(Counters):
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

    rounds: dict[str, int] = field(default_factory=dict)
    """Rounds of coordinators through their partitions, by name. 0: planned, and never come to pass."""


@dataclass
class TierCounters(Counters):
    """Counts of one run, or of many."""

    copies: int = 0
    partial_copies: int = 0
    late_copies: int = 0
    """Copies that were stored after their deletion."""
    reads: int = 0
    """Reads of records."""
    deletions: int = 0
    followers_started: int = 0
    """Reads of the state with which a follower begins after a remote segment."""
    failures: int = 0
    failures_after_effect: int = 0
    slow: int = 0
    hangs: int = 0
    blind_reads: int = 0
    """Reads that did not find what there was."""
    short_lies: int = 0
    other_lies: int = 0
    changed_lies: int = 0
    unranged_lies: int = 0
    readings: int = 0
    """Times a reader came from the start of a partition to its end."""
    shared: int = 0
    """Records that a share group was given from the remote store."""
    topics_emptied: int = 0
    """Partitions of deleted topics of which nothing is left."""
    orphans: int = 0
    """Copies that are left of deleted topics, because the node that had to delete them is gone."""


@dataclass
class MirrorCounters(Counters):
    """Counts of one run, or of many."""

    mirrored: int = 0
    """Batches that a mirror has committed."""
    stops: int = 0
    """Mirrors that took over."""
    stops_behind: int = 0
    """Those that lacked records of their source."""
    turns: int = 0
    """Topics that follow again the one that has taken over."""
    turns_refused: int = 0
    """Topics that cannot, because they took over last, or have more partitions."""
    given_up: int = 0
    """Batches that a topic has lost when it turned back."""
    pauses: int = 0
    grown: int = 0
    """Times a topic got more partitions at its source."""
    remade: int = 0
    """Topics that were deleted at their source."""
    sites_cut: int = 0
    """Times no node of one cluster reached the other."""
    commits: int = 0
    """Offsets that a group has committed at the source."""
    offsets_copied: int = 0
    """Offsets of a group that were found at the mirror."""


@dataclass
class MemberCounters(Counters):
    """What members of the newer kinds of groups tell."""

    told: dict[str, int] = field(default_factory=dict)
    """Heartbeats with a value in each of their fields."""

    def tells(self, heartbeat: Any) -> None:
        """`heartbeat`: a request, whose type declares the fields."""
        kind = type(heartbeat)
        default = kind()
        for name in kind.__slots__:
            field_name = f"{name} of {kind.__name__}"
            has_value = getattr(heartbeat, name) != getattr(default, name)
            self.told[field_name] = self.told.get(field_name, 0) + has_value


@dataclass
class ModernGroupCounters(MemberCounters):
    """What occurs to members of the newer kinds of groups."""

    assignments: int = 0
    revocations: int = 0
    fenced: int = 0
    """Members that learned that they had lost what they owned."""
    left: int = 0
    left_for_a_while: int = 0
    """Static members whose partitions or tasks stay with their instance."""
    returned: int = 0
    """What such a member had, and got again at once."""
    static_joins: int = 0
    unreleased: int = 0
    """Members that could not join because another one had their instance id."""
    instances_fenced: int = 0
    """Members that learned that another one had got their instance id."""
    vanished: int = 0
    silences: int = 0
    commits: int = 0
    commits_refused: int = 0
    """Commits of members or epochs that had lost the partitions."""
    commits_in_doubt: int = 0
    offsets_read: int = 0


@dataclass
class ConsumerGroupCounters(ModernGroupCounters):
    """Counts of one run, or of many."""

    partitions_of_others: int = 0
    """Partitions assigned of other topics than the one that is always there."""
    embedded_assignments: int = 0
    """Assignments given to members of the classic protocol in a consumer group."""
    upgrades: int = 0
    """Conversions that members of the classic protocol have noticed."""
    downgrades: int = 0


@dataclass
class StreamsGroupCounters(ModernGroupCounters):
    """Counts of one run, or of many."""

    standbys: int = 0
    """Standbys given to members."""
    promoted: int = 0
    """Standbys that became active at their member."""
    offsets_told: int = 0
    """Heartbeats with offsets of tasks."""
    endpoints_told: int = 0
    stale_topologies: int = 0
    """Members that learned that the group has a newer topology."""
    topologies_refused: int = 0
    """Members that could not join with their topology."""
    tasks_refused: int = 0
    """Members with tasks that their subtopology does not have any more."""
    source_topics_missing: int = 0
    """Answers of this kind. So are the next ones."""
    incorrectly_partitioned: int = 0
    internal_topics_missing: int = 0
    creations_failed: int = 0
    """Those that also say why internal topics could not be created."""
    delayed: int = 0
    shut_down: int = 0
    """Times the application was shut down by a member."""
    upgrades: int = 0
    """Times the application came back with another topology."""
    levels_raised: int = 0
    """Clusters that got streams groups while members tried to join."""
    unsupported: int = 0
    """Members refused before that."""
    resets: int = 0
    """Times its internal topics were deleted."""
    struck_creations: int = 0
    """Faults just when internal topics were created."""
    internal_topics: int = 0
    """Internal topics that the brokers have created."""
    loads: int = 0
    """Groups that a coordinator has loaded."""
    compared: int = 0
    """Times the records were compared with the memory of the coordinator."""


@dataclass
class ShareGroupCounters(MemberCounters):
    """Counts of one run, or of many."""

    assignments: int = 0
    fenced: int = 0
    """Members that learned that they were not in the group any more."""
    left: int = 0
    crashes: int = 0
    silences: int = 0
    """Members that did not heartbeat for longer than a session."""
    sessions: int = 0
    """Share sessions that were opened."""
    sessions_refused: int = 0
    """Requests of a session that the node did not know any more."""
    delivered: int = 0
    """Records that reached a member."""
    delivered_again: int = 0
    by_batch: int = 0
    """Fetches with records in the mode that acquires whole batches."""
    by_record: int = 0
    """Fetches with records in the mode with a strict limit of records."""
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    renewed: int = 0
    acknowledged_late: int = 0
    """Acknowledgements sent after the lock had ended."""
    acknowledgements_refused: int = 0
    acknowledgements_in_doubt: int = 0
    """Records whose acknowledgement got no answer."""
    dropped: int = 0
    """Records that a member never acknowledged."""
    locks_ended: int = 0
    """Records that were held beyond their locks."""
    last_attempts: int = 0
    """Deliveries beyond which a record is archived."""
    letters: int = 0
    """Dead letters that are committed."""
    letters_again: int = 0
    """Those of records that had one already."""
    letters_with_copy: int = 0
    letters_in_vain: int = 0
    """Deliveries of records that had a dead letter, because the leader that gave them up could not say so."""
    letters_refused: int = 0
    """Records whose dead letters were given up because the topic takes none."""
    loads: int = 0
    takeovers: int = 0
    """Loads of a state that had records of an earlier leader in flight."""
    deposed_deliveries: int = 0
    """Records that a deposed leader still delivered."""
    state_records: int = 0
    snapshots: int = 0
    """Snapshots of a state after its first one."""
    prunings: int = 0
    """Times the log of states began later than before."""

    rounds: dict[str, int] = field(default_factory=dict)
    """Those of the cluster's counters. Only with share groups the share coordinator has partitions."""
