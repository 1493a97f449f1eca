"""What share fetches and acknowledgements must look like, and how a fetch divides its bytes among partitions.

Pure. Follows Kafka's KafkaApis and PartitionMaxBytesStrategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.wire.one_by_one import OneByOne

if TYPE_CHECKING:
    from kafkacompat.share.values import AcquireMode

BATCHES_MAX = 20_000
"""Acknowledgement batches of one partition. A member does not hold more records of it, and each takes the loop for a
microsecond."""
ACKNOWLEDGED_MAX = 10_000
"""Topics and partitions of a request that acknowledges. Each is answered."""
RENEW = 4
LAST_TYPE_WITHOUT_RENEW = 3


class ShareFetchParameters:
    """What a member asks for."""

    __slots__ = (
        "acquire_mode",
        "batch_size",
        "max_bytes",
        "max_records",
        "max_wait_ms",
        "member_id",
        "min_bytes",
        "read_committed",
    )

    def __init__(
        self,
        member_id: str,
        acquire_mode: AcquireMode,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        max_records: int,
        batch_size: int,
        *,
        read_committed: bool,
    ) -> None:
        self.member_id = member_id
        self.acquire_mode = acquire_mode
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.read_committed = read_committed


def has_acknowledgements(topics: Iterable[Any]) -> bool:
    return any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions)


def names_more(topics: Iterable[Any], most: int) -> bool:
    """Whether there are more topics and partitions than that."""
    for topic in topics:
        most -= 1 + len(topic.partitions)
        if most < 0:
            return True
    return False


def are_valid(batches: Sequence[Any], *, supports_renew: bool, is_renew: bool) -> bool:
    """Whether the acknowledgement batches of one partition are well formed and in order.

    As in Kafka, a batch may begin with the last offset of the one before.
    """
    last_type = RENEW if supports_renew else LAST_TYPE_WITHOUT_RENEW
    end = -1
    if len(batches) > BATCHES_MAX:
        return False
    if isinstance(batches, OneByOne):
        for run in batches.runs:
            if run.first_offset < end or max(run.types) > last_type or (RENEW in run.types and not is_renew):
                return False
            end = run.last_offset
        return True
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < end or not types:
            return False
        if len(types) > 1:
            if last - first != len(types) - 1 or min(types) < 0 or max(types) > last_type:
                return False
            renews = RENEW in types
        else:
            only = types[0]
            if not 0 <= only <= last_type:
                return False
            renews = only == RENEW
        if renews and not is_renew:
            return False
        end = last
    return True


def max_bytes_of_each(
    max_bytes: int, count: int, acquired_count: int, randrange: Callable[[int], int]
) -> list[int]:
    """The bytes that each of `count` partitions may give, of `acquired_count` that share the request's bytes.

    They get the same. A rest, or single bytes if there are fewer than partitions, goes to one by chance.
    """
    if max_bytes >= acquired_count:
        shares = acquired_count
    elif max_bytes >= count:
        shares = count
    else:
        each = [0] * count
        first = randrange(count)
        for step in range(max_bytes):
            each[(first + step) % count] = 1
        return each
    each = [max_bytes // shares] * count
    rest = max_bytes % shares
    if rest:
        each[randrange(count)] += rest
    return each
