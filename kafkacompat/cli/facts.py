"""What `kafkacompat doctor` finds out about a cluster and about the machine of a node. diagnosis.py judges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from kafkacompat.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker. Bytes are -1 if unknown. `error`: Kafka's name for it, or empty."""

    path: str
    total_bytes: int = -1
    usable_bytes: int = -1
    error: str = ""
    is_writable: bool = True
    log_files: int = 0
    """Only known for directories on this machine."""
    usable_files: int = -1
    """How many more files the file system takes. -1 if unknown, or if it has no bound but its bytes."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    node_id: int
    address: str
    """The advertised HOST:PORT of the listener that was asked."""
    is_fenced: bool = False
    problem: str = ""
    """Why nobody answers at the address. Empty if the broker answers."""
    hangs: bool = False
    """It takes connections at the address, and does not answer."""
    answers_as: tuple[str, int] | None = None
    """(cluster id, node id) of the node that answers there. None if it does not tell."""
    log_dirs: Sequence[LogDir] = ()
    log_dirs_untold: str = ""
    """Kafka's name for the error, if it does not tell its log directories."""
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    supported: Mapping[str, int] = field(default_factory=dict)
    """The highest level of each feature that the broker supports."""
    finalized: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """Times in ms of the leader's clock, by node id. -1 if unknown."""

    leader: int
    voters: Mapping[int, int]
    """When each voter was last at the leader's end."""
    observers: Mapping[int, int]
    asked_ms: tuple[int, int]
    """This machine's clock before and after the question."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Partitions as TOPIC-NUMBER."""

    count: int = 0
    without_leader: Sequence[str] = ()
    under_min_isr: Sequence[str] = ()
    under_replicated: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    cluster_id: str
    bootstrap_hosts: Sequence[str]
    brokers: Sequence[BrokerFacts]
    quorum: QuorumFacts | None
    partitions: PartitionFacts
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why a check got no answer, by the name of the check."""


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What the settings file of a node on this machine leads to."""

    log_dirs: Sequence[LogDir]
    unformatted: Sequence[str]
    """Directories without meta.properties."""
    descriptors: int
    """The limit of open files of the node's process if it runs, otherwise the hard limit of this process. -1: no limit."""
    pid: int = 0
    """The process that has locked the directories. 0 if none has."""
