"""Under read_committed, members do not see the records of aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.ids import NO_PRODUCER_ID
from kafkacompat.share.values import AbortedTransaction, AcquiredRecords, FetchedBatch


def aborted_batches(
    batches: Sequence[FetchedBatch], aborted_transactions: Sequence[AbortedTransaction]
) -> list[FetchedBatch]:
    """The batches with records of aborted transactions. Markers are not among them: clients skip them as gaps."""
    waiting = sorted(aborted_transactions, key=lambda each: each.first_offset, reverse=True)
    producer_ids: set[int] = set()
    found = []
    for batch in batches:
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producer_ids.add(waiting.pop().producer_id)
        if batch.is_abort_marker:
            producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producer_ids:
            found.append(batch)
    return found


def without(acquired: Sequence[AcquiredRecords], batches: Sequence[FetchedBatch]) -> list[AcquiredRecords]:
    """The acquired ranges less the offsets of the batches. Both are in order."""
    left = []
    index = 0
    for first, last, delivery_count in acquired:
        while index < len(batches) and batches[index].last_offset < first:
            index += 1
        at = index
        while at < len(batches) and batches[at].base_offset <= last:
            if first < batches[at].base_offset:
                left.append(AcquiredRecords(first, batches[at].base_offset - 1, delivery_count))
            first = batches[at].last_offset + 1
            at += 1
        if first <= last:
            left.append(AcquiredRecords(first, last, delivery_count))
        index = max(index, at - 1)
    return left
