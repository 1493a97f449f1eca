"""What a test is shown of a broker's state. Plain values, so that a broker in another process shows the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kafkacompat.dataclass import dataclass

Headers = tuple[tuple[str, bytes | None], ...]
TransactionOutcome = Literal["open", "committed", "aborted"]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it lies in the broker's log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    producer_id: int = -1
    """-1: of a producer that is not idempotent."""
    transaction: TransactionOutcome | None = None
    """None: it belongs to no transaction."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: Mapping[str, tuple[int, ...]]
    """What it is assigned, by topic. Empty for a streams group."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group, as its coordinator has it."""

    group_id: str
    type: str
    """Kafka's name: Classic, Consumer, Share, Streams."""
    state: str
    """Kafka's name: Stable, Empty, PreparingRebalance, ..."""
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id, as its coordinator has it."""

    transactional_id: str
    state: str
    """Kafka's name: Ongoing, PrepareCommit, CompleteCommit, ..."""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: Mapping[str, tuple[int, ...]]
    """Those in the transaction that is open, by topic."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that a group has committed."""

    offset: int
    metadata: str | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a partition begins and ends."""

    first: int
    last_stable: int
    """The end for a consumer that reads committed records."""
    high_watermark: int
