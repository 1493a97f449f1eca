"""Batches of records in the same state, and how new batches are combined with those before.

Where batches overlap, the one with the higher (delivery count, state) has the offsets of both. Neighbours with the same
count and state are joined. What lies below the start offset is dropped. The result equals that of Kafka's
PersisterStateBatchCombiner, because snapshots contain it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from kafkacompat.ids import NO_OFFSET
from kafkacompat.share.service import StateBatch
from kafkacompat.tasks import at_once

COMBINED_A_STEP = 500
COMBINED_COST, RANKED_COST = 3, 1
"""Cost of one batch that is combined, and of putting it in line, in microseconds."""
WHOLE_MAX = 5_000
"""Up to this number, batches are all combined anew if two neighbours could be joined. Beyond it only those are that the
new batches touch."""
_FIRST, _LAST = itemgetter(0), itemgetter(1)
_Ranked = tuple[int, int, int, int]
"""First and last offset, delivery count, state: in this order Kafka sorts batches."""


class Batches(NamedTuple):
    """Batches by offset that do not overlap."""

    items: tuple[StateBatch, ...] = ()
    is_joined: bool = True
    """No two neighbours have the same count and state. Kafka before 4.4 wrote such neighbours, and the next change joins
    them."""


NO_BATCHES = Batches()


def are_sound(batches: Iterable[StateBatch]) -> bool:
    """Whether each batch ends where it begins or later."""
    return all(first <= last for first, last, _, _ in batches)


def taking(batches: Sequence[StateBatch]) -> Generator[int, None, Batches]:
    """Batches of a record, which mostly are in order, in steps that report their cost."""
    is_joined = True
    for position in range(1, len(batches)):
        before, after = batches[position - 1], batches[position]
        if after[0] <= before[1]:
            return (yield from combining(NO_BATCHES, batches, NO_OFFSET))
        if after[0] == before[1] + 1 and after[2:] == before[2:]:
            is_joined = False
        if position % COMBINED_A_STEP == 0:
            yield COMBINED_A_STEP * RANKED_COST
    return Batches(tuple(batches), is_joined)


def combine(so_far: Batches, new: Sequence[StateBatch], start_offset: int) -> Batches:
    """The state after new batches arrive. A start offset of -1 drops nothing."""
    return at_once(combining(so_far, new, start_offset))


def combining(so_far: Batches, new: Sequence[StateBatch], start_offset: int) -> Generator[int, None, Batches]:
    """`combine` in steps that report their cost."""
    old = so_far.items
    if start_offset != NO_OFFSET:
        new = [_from(each, start_offset) for each in new if each[1] >= start_offset]
        if old and old[0][0] < start_offset:
            old = old[bisect_left(old, start_offset, key=_LAST) :]
            if old:
                old = (_from(old[0], start_offset), *old[1:])
    if so_far.is_joined or len(old) > WHOLE_MAX:
        if not new:
            return Batches(old, so_far.is_joined)
        # Batches that the new ones neither overlap nor touch stay as they are.
        begin = bisect_left(old, min(map(_FIRST, new)) - 1, key=_LAST)
        end = bisect_right(old, max(map(_LAST, new)) + 1, lo=begin, key=_FIRST)
        merged = yield from _merging([*old[begin:end], *new])
        return Batches(old[:begin] + merged.items + old[end:], so_far.is_joined and merged.is_joined)
    return (yield from _merging([*old, *new]))


def _from(batch: StateBatch, offset: int) -> StateBatch:
    return batch if batch[0] >= offset else StateBatch(offset, *batch[1:])


def _merging(batches: list[StateBatch]) -> Generator[int, None, Batches]:
    """Always looks at the two lowest batches. What overlaps no more is final, and is joined with what was final before."""
    if len(batches) < 2:
        return Batches(tuple(batches))
    if len(batches) <= COMBINED_A_STEP and (in_order := _joined_in_order(batches)) is not None:
        return Batches(tuple(in_order))
    ranked: list[_Ranked] = []
    for start in range(0, len(batches), COMBINED_A_STEP):
        if start:
            yield COMBINED_A_STEP * RANKED_COST
        part = batches[start : start + COMBINED_A_STEP]
        ranked += [(first, last, count, state) for first, last, state, count in part]
    ranked.sort()
    parts: list[_Ranked] = []
    """Made here of batches that overlapped: a heap, because they go before others again."""
    final: list[StateBatch] = []
    low, position, rounds = ranked[0], 1, 0
    while parts or position < len(ranked):
        rounds += 1
        if rounds % COMBINED_A_STEP == 0:
            yield COMBINED_A_STEP * COMBINED_COST
        if parts and (position == len(ranked) or parts[0] < ranked[position]):
            high = heappop(parts)
        else:
            high = ranked[position]
            position += 1
        first, last, count, state = low
        if high[0] <= last + 1:
            if high[2] == count and high[3] == state:
                heappush(parts, (first, max(last, high[1]), count, state))
                low = heappop(parts)
                continue
            if high[0] <= last:
                _part(parts, low, high)
                low = heappop(parts)
                continue
        _append(final, low)
        low = high
    _append(final, low)
    return Batches(tuple(final))


def _joined_in_order(batches: list[StateBatch]) -> list[StateBatch] | None:
    """Most writes are in order: nothing overlaps, and neighbours only have to be joined. None if it is not so."""
    first, last, state, count = batches[0]
    found: list[StateBatch] = []
    for low, high, other_state, other_count in batches[1:]:
        if low <= last:
            return None
        if low == last + 1 and count == other_count and state == other_state:
            last = high
            continue
        found.append(StateBatch(first, last, state, count))
        first, last, state, count = low, high, other_state, other_count
    found.append(StateBatch(first, last, state, count))
    return found


def _part(heap: list[_Ranked], low: _Ranked, high: _Ranked) -> None:
    """Two batches that overlap and differ: the weaker one keeps what lies outside of the other."""
    if high[2:] > low[2:]:
        if high[0] > low[0]:
            heappush(heap, (low[0], high[0] - 1, *low[2:]))
        heappush(heap, high)
        if high[1] < low[1]:
            heappush(heap, (high[1] + 1, low[1], *low[2:]))
    else:
        heappush(heap, low)
        if high[1] > low[1]:
            heappush(heap, (low[1] + 1, high[1], *high[2:]))


def _append(final: list[StateBatch], batch: _Ranked) -> None:
    """Add the batch, or make the last one longer if it has the same state and ends where this one begins."""
    first, last, count, state = batch
    if final:
        before = final[-1]
        if before[1] + 1 == first and before[2] == state and before[3] == count:
            final[-1] = StateBatch(before[0], last, state, count)
            return
    final.append(StateBatch(first, last, state, count))
