"""Merges the newest records of several partitions, newest first. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple


class Stand(NamedTuple):
    """What was read of a partition: timestamp and offset of its last records before `end`, oldest first. Before `start` nothing
    was looked at."""

    records: tuple[tuple[int, int], ...]
    start: int
    end: int


def newest_of(stands: Mapping[int, Stand], limit: int) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Return the newest records, partition and offset of each, and for each partition the offset before which the next page is.

    Of each partition the records are taken from its end on, whatever their timestamps are, so that pages miss none.
    """
    left = {partition: list(stand.records) for partition, stand in stands.items()}
    ends = {partition: stand.end for partition, stand in stands.items()}
    heads: list[tuple[int, int]] = []

    def push(partition: int) -> None:
        if left[partition]:
            heapq.heappush(heads, (-left[partition][-1][0], partition))

    for partition in sorted(left):
        push(partition)
    order: list[tuple[int, int]] = []
    while heads and len(order) < limit:
        _, partition = heapq.heappop(heads)
        _, offset = left[partition].pop()
        order.append((partition, offset))
        ends[partition] = offset
        push(partition)
    for partition, stand in stands.items():
        if not left[partition]:
            # Everything that was looked at is shown.
            ends[partition] = min(ends[partition], stand.start)
    return order, ends
