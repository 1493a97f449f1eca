"""Counts what happened to the simulated share groups. A count of zero over many runs shows a blind spot."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class ShareGroupCounters:
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

    def add(self, other: ShareGroupCounters) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))
