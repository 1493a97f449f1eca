"""What a leader knows of its quorum at one instant: a value for whoever describes it.

Pure. Apart from describe.py so that who only makes a report needs no wire message.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkacompat.ids import Uuid
from kafkacompat.raft.voter_set import Endpoints


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One replica as its leader sees it; -1 for what is not known."""

    id: int
    directory_id: Uuid
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    listeners: Endpoints = ()
    """Of voters only."""


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """A leader whose high watermark is known."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaReport, ...]
    observers: tuple[ReplicaReport, ...] = ()
