"""Records that were delivered often are delivered in small numbers, so that one bad record does not spoil its neighbours."""

from __future__ import annotations

from kafkacompat.share.in_flight import InFlightBatch, Run

LEAST_DELIVERY_COUNT = 2


def throttled_from(delivery_count_limit: int) -> int:
    """The delivery count at which throttling begins."""
    return max(LEAST_DELIVERY_COUNT, (delivery_count_limit + 1) // 2)


def is_throttled(batch: InFlightBatch, first: int, last: int, delivery_count_limit: int) -> bool:
    """Whether a record of the batch between these offsets is acquirable and was delivered often."""
    least = throttled_from(delivery_count_limit)
    if not batch.per_offset:
        run = batch.whole
        return run.delivery_count >= least and run.is_acquirable()
    return any(
        run.delivery_count >= least and run.is_acquirable()
        for run in batch.runs[batch.index_of(first) : batch.index_of(last) + 1]
    )


def deliverable(
    batch: InFlightBatch, first: int, last: int, delivery_count_limit: int, most: int | None
) -> list[Run]:
    """What may be acquired now of the acquirable records between these offsets, at most `most`.

    A record at its last delivery is alone. The first record that was delivered often decides how many go with it: half of
    the batch, and half as many with each further delivery.
    """
    least = throttled_from(delivery_count_limit)
    throttled_most: int | None = None
    found: list[Run] = []
    taken = 0
    index = batch.index_of(first)
    while index < len(batch.runs):
        run = batch.runs[index]
        if run.first > last:
            break
        index += 1
        if not run.is_acquirable():
            continue
        delivery_count = run.delivery_count
        is_last_delivery = delivery_count_limit > 2 and delivery_count == delivery_count_limit - 1
        if is_last_delivery and taken:
            break
        if delivery_count >= least and throttled_most is None:
            throttled_most = max(1, batch.size >> (delivery_count - least + 1))
        begin = max(run.first, first)
        room = 1 if is_last_delivery else min(run.last, last) - begin + 1
        is_over = is_last_delivery
        for bound in (most, throttled_most):
            # More records that were not delivered often may have been found than the bound allows. Then it does not count.
            if bound is not None and 0 < bound - taken <= room:
                room = bound - taken
                is_over = True
        if begin > run.first or begin + room <= run.last:
            index = batch.cut(begin)
            batch.cut(begin + room)
            run = batch.runs[index]
            index += 1
        found.append(run)
        taken += room
        if is_over:
            break
    return found
