"""Bugs to plant in the state of share-partitions: its coordinator, and the persister that reaches it."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

OPERATIONS = ("share_coordinator/_tests/test_operations.py",)
PERSISTER = ("coordinator/_tests/test_share_persister.py",)
SERVICE = ("coordinator/_tests/test_share_coordinator.py",)

BUGS = (
    PlantedBug(
        "states of a deleted topic whose tombstones the log refuses stay for ever",
        "coordinator/share_sweeps.py",
        "                if not is_all_written:\n                    return  # the next round begins again\n",
        "",
        SERVICE,
    ),
    PlantedBug(
        "states of a topic that was deleted while no node coordinated them stay for ever",
        "coordinator/share_sweeps.py",
        "            self._deleted.setdefault(shard, set()).update(absent)\n        self.drop_topics(shard)\n",
        "            pass\n        self.drop_topics(shard)\n",
        SERVICE,
    ),
    PlantedBug(
        "an operation that an append leads to decides without the append's record",
        "coordinator/turns.py",
        "        if self.is_taken:\n            return self._later(operation)\n",
        "",
        ("coordinator/_tests/test_shard.py",),
    ),
    PlantedBug(
        "a batch of a higher count gives way to one of a lower count",
        "share_coordinator/batches.py",
        "    if high[2:] > low[2:]:",
        "    if high[3:] > low[3:]:",
        ("share_coordinator/_tests/test_batches.py",),
    ),
    PlantedBug(
        "batches that overlap by one offset are taken for batches in order",
        "share_coordinator/batches.py",
        "        if low <= last:\n",
        "        if low < last:\n",
        ("share_coordinator/_tests/test_batches.py",),
    ),
    PlantedBug(
        "what lies below the start offset stays",
        "share_coordinator/batches.py",
        "        new = [_from(each, start_offset) for each in new if each[1] >= start_offset]\n",
        "        new = [each for each in new if each[1] >= start_offset]\n",
        ("share_coordinator/_tests/test_batches.py",),
    ),
    PlantedBug(
        "a state at its bound takes nothing, not even what makes it smaller",
        "share_coordinator/operations.py",
        "    return after > max(before, STATE_BATCHES_MAX)\n",
        "    return after + before > 0\n",
        OPERATIONS,
    ),
    PlantedBug(
        "an older leader may write",
        "share_coordinator/operations.py",
        "    if _is_fenced(state.leader_epoch, asked.leader_epoch):\n",
        "    if _is_fenced(state.offset.leader_epoch, asked.leader_epoch) and asked.leader_epoch < 0:\n",
        OPERATIONS,
    ),
    PlantedBug(
        "a new initialization lets an older leader in",
        "share_coordinator/machine.py",
        "            state.leader_epoch = max(state.leader_epoch, value.leader_epoch)\n",
        "            state.leader_epoch = value.leader_epoch\n",
        OPERATIONS,
    ),
    PlantedBug(
        "a snapshot has the batches of its write only",
        "share_coordinator/operations.py",
        "        combine(offset.batches, write.batches, start_offset),\n",
        "        combine(NO_BATCHES, write.batches, start_offset),\n",
        OPERATIONS,
    ),
    PlantedBug(
        "a deleted share-partition holds up pruning for ever",
        "share_coordinator/offsets.py",
        "        if is_delete:\n            del self._offsets[key]\n",
        "        if is_delete and not self._offsets:\n            del self._offsets[key]\n",
        ("share_coordinator/_tests/test_offsets.py",),
    ),
    PlantedBug(
        "a clock that was set back keeps share-partitions from being cold",
        "share_coordinator/upkeep.py",
        "    return not 0 <= now_ms - state.offset.write_timestamp < machine.env.cold_interval_ms\n",
        "    return now_ms - state.offset.write_timestamp >= machine.env.cold_interval_ms\n",
        OPERATIONS,
    ),
    PlantedBug(
        "a cold share-partition counts as new",
        "share_coordinator/upkeep.py",
        "snapshot_epoch=offset.snapshot_epoch + 1, write_timestamp=now_ms)",
        "snapshot_epoch=offset.snapshot_epoch + 1, create_timestamp=now_ms, write_timestamp=now_ms)",
        OPERATIONS,
    ),
    PlantedBug(
        "a snapshot of a cold share-partition takes back what was written since it was decided on",
        "coordinator/share_sweeps.py",
        "                lambda together: cold_snapshots(machine, together, self._clock.now_ms()),\n",
        "                lambda some, all=cold_snapshots(machine, cold, now_ms): [r for r in all if r.key in some],\n",
        SERVICE,
    ),
    PlantedBug(
        "the log is pruned before the snapshots are committed",
        "coordinator/share_sweeps.py",
        "        found.on_done(partial(self._prune_up_to, shard))\n",
        "        self._prune_up_to(shard, found.of(machine_of(shard).offsets.last_redundant_offset()))\n",
        SERVICE,
    ),
    PlantedBug(
        "a topic deleted while its states are loaded is forgotten",
        "coordinator/share_sweeps.py",
        "                if shard.state in (ShardState.ACTIVE, ShardState.LOADING):\n",
        "                if shard.state is ShardState.ACTIVE:\n",
        SERVICE,
    ),
    PlantedBug(
        "a share-partition that is named twice is decided on twice from one state",
        "coordinator/share_service.py",
        "                    key in together.keys or together.size",
        "                    together.size",
        SERVICE,
    ),
    PlantedBug(
        "snapshots that are due at once make a batch that no log takes",
        "coordinator/share_service.py",
        "                    size += self._batches_of_snapshot(api, shard, key) * BATCH_BYTES\n",
        "",
        SERVICE,
    ),
    PlantedBug(
        "a later write overtakes one that is retried",
        "coordinator/share_persister.py",
        "        line.asked, line.waiting = [], again + line.waiting\n",
        "        line.asked, line.waiting = [], line.waiting + again\n",
        PERSISTER,
    ),
    PlantedBug(
        "the deletion of a state overtakes what makes it",
        "coordinator/share_messages.py",
        "    lambda coordinator, message: coordinator.delete_state(message),\n    line=LIFE,\n",
        "    lambda coordinator, message: coordinator.delete_state(message),\n",
        PERSISTER,
    ),
    PlantedBug(
        "a state is made before it is deleted, however often that fails",
        "coordinator/share_persister.py",
        "            call.attempts = ATTEMPTS_MAX if is_undone else call.attempts + 1\n",
        "            call.attempts += 1\n",
        PERSISTER,
    ),
    PlantedBug(
        "writes that wait become one with the oldest start offset",
        "coordinator/share_messages.py",
        "        start_offset = start_offset if state.start_offset == NO_OFFSET else state.start_offset\n",
        "        start_offset = start_offset if start_offset != NO_OFFSET else state.start_offset\n",
        PERSISTER,
    ),
    PlantedBug(
        "what waits for a coordinator does not hear of it",
        "coordinator/share_persister.py",
        "                if self._coordinator_of(line.key) not in (NO_LEADER, node_id)\n",
        "                if self._coordinator_of(line.key) not in (NO_LEADER, node_id) and node_id != NO_LEADER\n",
        PERSISTER,
    ),
    PlantedBug(
        "what a coordinator refuses that has moved meanwhile waits for the back-off",
        "coordinator/share_persister.py",
        "        if again and self._coordinator_of(line.key) in (NO_LEADER, node_id):\n",
        "        if again:\n",
        PERSISTER,
    ),
    PlantedBug(
        "what an earlier leader did not commit counts at once",
        "coordinator/share_service.py",
        "            is_patient=True,\n",
        "",
        SERVICE,
    ),
)
