"""What share fetches and acknowledgements must look like, and how a fetch divides its bytes among partitions.

Pure. Follows Kafka's KafkaApis and PartitionMaxBytesStrategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkacompat.wire.one_by_one import OneByOne

RENEW = 4
LAST_TYPE_WITHOUT_RENEW = 3


def has_acknowledgements(topics: Iterable[Any]) -> bool:
    return any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions)


def are_valid(batches: Sequence[Any], *, supports_renew: bool, is_renew: bool) -> bool:
    """Whether the acknowledgement batches of one partition are well formed and in order.

    As in Kafka, a batch may begin with the last offset of the one before.
    """
    last_type = RENEW if supports_renew else LAST_TYPE_WITHOUT_RENEW
    end = -1
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
