"""The segmented log of a partition, and the manager of all logs of a node. Its modules, in the order in which a log lives:

Open and recover: `opening` opens or makes one log, `recovery` finds out what its directory holds, `segment_recovery` checks a
segment after an unclean stop, `soundness` looks where nobody has checked, `replay` brings the producers' state back.

Append: `appending`, with `verifications`, `producer_state` and `snapshots` for who writes, and `epoch_cache` for who led.

Read: `reading` by offset, `lookup` by time and of aborted transactions (`aborted`).

What both stand on: `segment_list` and `segment`, a segment's `segment_batches` and `segment_indexes` (`offset_index`, `time_index`,
`transaction_index`, and what they share: `index`, `index_cache`, `scan`); `mending` builds damaged indexes anew.

Roll, sync and retain: `log` truncates, syncs (`flush`), keeps (`retention`) and closes; `rolling` says when a segment is too old;
`looks` and `retaining` do for many logs what would hold the loop up; `upkeep` is called by the clock.

All logs of a node: `homes` knows which lies where, `start` takes what a start finds (`loading`), `manager` makes and deletes
(`preparation`, `deletion`), `moves` changes directories (`future`, `predecessors`). `directory` is one log directory, with the
files of `checkpoint`; `checkpointing` keeps them true. `disk` is the real disk, `changes` what one may stop half way.

Clean: the package `cleaner`. Look at files from outside: `dump`.
"""
