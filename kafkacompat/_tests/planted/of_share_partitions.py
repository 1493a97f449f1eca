"""Bugs to plant in share-partitions: which records are in flight, with whom, and what is fetched next."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

LIVES = "share/_tests/test_share_partition_lives.py"

BUGS = (
    PlantedBug(
        "a release that is not written yet is acquired by another member",
        "share/in_flight.py",
        "        return self.state is AVAILABLE and self.transition is None\n",
        "        return self.state is AVAILABLE\n",
        ("share/_tests/test_acquisition.py",),
    ),
    PlantedBug(
        "the start offset moves over an acknowledgement that is not written yet",
        "share/start_offset.py",
        "            if run.transition is not None or not run.is_terminal():\n",
        "            if not run.is_terminal():\n",
        ("share/_tests/test_transitions.py", LIVES),
    ),
    PlantedBug(
        "the start offset moves over a gap that an earlier leader has delivered",
        "share/start_offset.py",
        "            start = min(start, records.gap_start)\n",
        "            pass\n",
        ("share/_tests/test_share_partition_initialization.py", LIVES),
    ),
    PlantedBug(
        "the start offset falls behind the log when the last lock below it ends",
        "share/start_offset.py",
        "        records.start_offset = max(records.start_offset, last_terminal + 1)\n",
        "        records.start_offset = last_terminal + 1\n",
        ("share/_tests/test_start_offset.py",),
    ),
    PlantedBug(
        "a lock that ends while its acknowledgement is written is held for ever when that fails",
        "share/transitions.py",
        "        if now_ms < deadline_ms:\n",
        "        if now_ms <= deadline_ms + 1_000_000:\n",
        ("share/_tests/test_transitions.py", LIVES),
    ),
    PlantedBug(
        "an acknowledgement that is undone keeps its place in the count of what is complete",
        "share/transitions.py",
        "        if was_terminal and not run.is_terminal():\n",
        "        if was_terminal and run.is_terminal():\n",
        ("share/_tests/test_transitions.py",),
    ),
    PlantedBug(
        "an acknowledgement that is undone is not locked any more",
        "share/transitions.py",
        "            records.deadlines.add(deadline_ms, batch)\n",
        "            batch.queued_deadline_ms = deadline_ms\n",
        ("share/_tests/test_transitions.py", LIVES),
    ),
    PlantedBug(
        "a part of a batch that is still held loses its deadline when another part's lock ends",
        "share/releases.py",
        "            records.deadlines.add(next_ms, batch)\n",
        "            batch.queued_deadline_ms = next_ms\n",
        ("share/_tests/test_transitions.py", LIVES),
    ),
    PlantedBug(
        "records below the start offset become available when their lock ends",
        "share/releases.py",
        "    if run.last < records.start_offset:\n        run.state = ARCHIVED\n",
        "    if run.last < 0:\n        run.state = ARCHIVED\n",
        ("share/_tests/test_transitions.py", LIVES),
    ),
    PlantedBug(
        "the bound of throttled records counts although more of few deliveries were found",
        "share/throttling.py",
        "            if bound is not None and 0 < bound - taken <= room:\n",
        "            if bound is not None and bound - taken <= room:\n",
        ("share/_tests/test_throttling.py",),
    ),
    PlantedBug(
        "a record at its last delivery travels with others",
        "share/throttling.py",
        "        if is_last_delivery and taken:\n            break\n",
        "",
        ("share/_tests/test_throttling.py",),
    ),
    PlantedBug(
        "new records travel with those that were delivered often",
        "share/acquisition.py",
        "                most = 0\n                break\n",
        "                break\n",
        ("share/_tests/test_throttling.py",),
    ),
    PlantedBug(
        "the record limit cuts what comes into flight and not what is acquired",
        "share/acquisition.py",
        "        if self._exact and last - first + 1 > most:\n",
        "        if last - first + 1 > most + 1_000_000:\n",
        ("share/_tests/test_acquisition.py",),
    ),
    PlantedBug(
        "a full share-partition acquires new records behind one that was released",
        "share/fetch_position.py",
        "    return min(last_offset, records.end_offset), min(",
        "    return last_offset, min(",
        ("share/_tests/test_acquisition.py", LIVES),
    ),
    PlantedBug(
        "aborted records fill a share-partition for ever",
        "share/fetch_position.py",
        "    return start_offset.advance(records) and records.count() < max_record_locks\n",
        "    return False\n",
        ("share/_tests/test_acquisition.py",),
    ),
    PlantedBug(
        "a transaction stays aborted after its marker",
        "share/aborted.py",
        "            producer_ids.discard(batch.producer_id)\n",
        "            pass\n",
        ("share/_tests/test_acquisition.py",),
    ),
    PlantedBug(
        "compacted batches are archived although a member holds them",
        "share/archiving.py",
        "_archive(batch, fetch_offset, base_offset - 1, AVAILABLE)",
        "_archive(batch, fetch_offset, base_offset - 1, ACQUIRED)",
        ("share/_tests/test_acquisition.py", LIVES),
    ),
    PlantedBug(
        "a request that begins below the start offset shifts its types",
        "share/acknowledgement.py",
        "                at = part.first - skipped\n",
        "                at = part.first - max(skipped, self._records.start_offset)\n",
        ("share/_tests/test_acknowledgement.py", LIVES),
    ),
    PlantedBug(
        "a refused request is not undone",
        "share/share_partition.py",
        "        acknowledgement.transition.undo(now_ms)\n",
        "",
        ("share/_tests/test_acknowledgement.py", LIVES),
    ),
    PlantedBug(
        "the next fetch offset forgets records that were released after it was last looked for",
        "share/in_flight.py",
        "        self.find_next_fetch_offset = True\n        self.wakeup = True\n",
        "        self.wakeup = True\n",
        ("share/_tests/test_acquisition.py", LIVES),
    ),
    PlantedBug(
        "deadlines of acknowledged batches pile up behind one that is held for long",
        "share/locks.py",
        "        if self._useless > TOLERATED and",
        "        if self._useless > 1_000_000 and",
        ("share/_tests/test_lock_deadlines.py",),
    ),
)
