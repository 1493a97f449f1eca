"""The runtime of all kinds of coordinator: shards, loading, writing, waiting for commits, timers."""
