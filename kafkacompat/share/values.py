"""What a share-partition takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_PRODUCER_ID
from kafkacompat.share.service import ShareError, WriteState
from kafkacompat.wire.errors import ErrorCode

NO_MEMBER = ""

SUCCEEDED = ShareError()


class SharePartitionState(Enum):
    EMPTY = "empty"
    """Nothing is read from the persister yet."""
    INITIALIZING = "initializing"
    ACTIVE = "active"
    FAILED = "failed"
    """The state could not be read. The shell drops such a share-partition."""
    FENCED = "fenced"
    """Another leader or another state epoch has taken over. The shell drops such a share-partition."""


class RecordState(IntEnum):
    """The values are those that the persister keeps."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """The record is to become a dead letter (KIP-1191). Kafka before 4.4 knows the value and never writes it."""
    ARCHIVED = 4


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole batches of the log are acquired, so the maximum of records may be exceeded."""
    RECORD_LIMIT = 1


class AcknowledgeType(IntEnum):
    GAP = 0
    """The log has no record at the offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings that hold for the group now: its own, or else those of the broker."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renew_acknowledge_enabled: bool = True
    has_dead_letters: bool = False
    """Whether the group has a dead-letter topic (KIP-1191)."""
    read_committed: bool = False
    offset_reset: str = "latest"
    """latest, earliest, or by_duration: and a duration."""


class FetchedBatch(NamedTuple):
    """The header of a batch that was read from the log, and whether it holds an abort marker."""

    base_offset: int
    last_offset: int
    producer_id: int = NO_PRODUCER_ID
    is_transactional: bool = False
    is_abort_marker: bool = False
    """True for a control batch of which the first record is an abort marker."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class AcquiredRecords(NamedTuple):
    """Both offsets belong to the range."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Acquired:
    records: Sequence[AcquiredRecords]
    """In order of offsets."""
    count: int
    """How many records count towards the request's maximum."""


NOTHING_ACQUIRED = Acquired((), 0)


class AcknowledgementBatch(NamedTuple):
    """Both offsets belong to the batch."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]
    """One for the whole batch, or one for each offset."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A change of state that the persister must write. `SharePartition.write_completed` makes it final or undoes it."""

    token: int
    state: WriteState


def persister_error(error: ShareError) -> ShareError:
    """What clients are told when the persister fails."""
    code = error.code
    if code in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        return ShareError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ShareError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return error
    if code in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
        return ShareError(ErrorCode.UNKNOWN_SERVER_ERROR, "Unable to complete operation due to server error.")
    return ShareError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
