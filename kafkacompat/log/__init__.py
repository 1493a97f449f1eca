"""The segmented log of a partition, and the manager of all logs of a node. Its modules, in the order of a log's life:

Open and recover: `opening` opens or creates one log. `recovery` runs the steps: `leftovers` removes files that a crash
left behind, `segment_recovery` checks segments after an unclean stop, `soundness` checks indexes that were never
checked, `replay` restores the producers' state.

The log itself: `unified_log` appends, reads, truncates, syncs (`flush`), applies retention (`retention`) and closes, with
`verifications`, `producer_state` and `snapshots` for producers, and `epoch_cache` for leader epochs. `lookup` searches by
time, `aborted` finds aborted transactions. `rolling` decides when a segment is too old, `rolled` lists the logs that have
begun a new one.

Its segments: `segment_list` and `log_segment`, a segment's `segment_indexes` (`offset_index`,
`time_index`, `transaction_index`, and their shared parts: `index`, `index_cache`, `scan`). `mending` rebuilds damaged
indexes.

All logs of a node: `log_manager` finds (`loading`), creates (`preparation`), deletes (`deletion`) and moves logs
(`future`, `predecessors`). `looks` and `retaining` split work on many logs that would block the loop. `upkeep` runs
periodically. `directory` is one log directory with its `checkpoint` files, and `checkpointing` keeps those correct.
`disk` is the real disk, `changes` marks changes that an error can interrupt.

Clean: the package `cleaner`. Inspect files from outside: `dump`.
"""
