"""The segmented log of a partition, and the manager of all logs of a node. Its modules, in the order of a log's life:

Open and recover: `opening` creates or opens one log. `log_loader` runs the steps: it removes files that a crash left behind,
checks segments after an unclean stop and indexes that were never checked, and restores the producers' state by `replay`.

The log itself: `unified_log` appends, reads, truncates, syncs (`flush`), applies retention (`retention`) and closes, with
`producer_state` and `producer_snapshots` for producers, and `leader_epoch_file_cache` for leader epochs. `lookup` searches by time.

Its segments: `segment_list` and `log_segment`, a segment's `segment_indexes`, and their parts: `index`, `index_cache`, and
`file_records`, which walks over the batches of a file. `index_rebuild` rebuilds damaged indexes.

All logs of a node: `log_manager` finds, creates, deletes and moves logs (`future_logs`). `upkeep` runs periodically.
`directory` is one log directory with its `checkpoint` files, which it keeps correct. `disk` is the real disk.

Clean: the package `cleaner`. Inspect files from outside: `dump`.
"""
