"""Removes what a crash leaves of a deletion or a cleaning: obsolete files, and swaps in progress.

All functions block on the disk. They use file names only, except for the end of a segment that is swapped in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ids import is_base_offset
from kafkacompat.log.aborted import TXN_INDEX_SUFFIX
from kafkacompat.log.log_segment import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkacompat.log.soundness import Note
from kafkacompat.records.batch import iterate_batches

if TYPE_CHECKING:
    from kafkacompat.ports import Disk

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def finish_interrupted_work(disk: Disk, directory: str, found: list[str], note: Note) -> bool:
    """Remove `.deleted` and `.cleaned` files, and complete compaction swaps that were far enough. Returns whether it
    completed one."""
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in found):
        return False
    names = [name for name in found if is_base_offset(name[:20])]
    least_cleaned = 1 << 63
    swaps: list[str] = []
    for name in names:
        if name.endswith(DELETED_SUFFIX) and ".checkpoint" not in name:
            disk.remove(f"{directory}/{name}")
        elif name.endswith(CLEANED_SUFFIX):
            least_cleaned = min(least_cleaned, int(name[:20]))
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            swaps.append(name)
    valid = [name for name in swaps if int(name[:20]) < least_cleaned]
    for name in swaps:
        if name not in valid:
            disk.remove(f"{directory}/{name}")
    covered_from, covered_to = 1 << 63, -1
    for name in valid:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = int(name[:20])
            note(f"{directory}/{name}: an interrupted swap is completed")
            covered_from = min(covered_from, base)
            covered_to = max(covered_to, _swap_end(disk, f"{directory}/{name}", base))
    for name in names:
        if (
            name not in swaps
            and name.endswith(SEGMENT_SUFFIXES)
            and covered_from <= int(name[:20]) < covered_to
        ):
            disk.remove(f"{directory}/{name}")
    for name in valid:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    return True


def _swap_end(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after the last batch of a swapped-in segment that does not have its final name yet."""
    end = base_offset
    for header in iterate_batches(disk.read_bytes(path)):
        end = header.last_offset + 1
    return end
