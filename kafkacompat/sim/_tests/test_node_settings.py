"""What a node does once in a while comes to pass in a simulation, which lasts for a minute at most."""

from __future__ import annotations

import re
from dataclasses import replace

from kafkacompat.config import ServerConfig
from kafkacompat.config.keys import broker_keys
from kafkacompat.sim.cluster_options import (
    consumer_group_shape,
    draw_cluster_options,
    share_group_shape,
    streams_group_shape,
    tier_shape,
)
from kafkacompat.sim.node_settings import node_properties

LONGEST_MS = 10_000
"""Of a run before its faults end: twelve seconds."""
SEEDS = 20
BOUNDS = re.compile(r"group\.\w+\.(min|max)\.")
"""Settings that bound those of groups."""
STAY_LONG = {
    "group.consumer.regex.refresh.interval.ms": "Kafka's least value is ten seconds, and each new topic is looked at at once",
    "group.share.initialize.retry.interval.ms": "how long a question may take, and not what comes again and again",
    "group.streams.task.offset.interval.ms": "members are told it, and simulated ones tell offsets when they like",
    "log.flush.interval.ms": "off by default, as in Kafka: logs are synced when segments are closed",
    "log.flush.scheduler.interval.ms": "looks for what flush.ms asks for, which no simulated topic has",
    "metadata.log.max.snapshot.interval.ms": "snapshots come by bytes: `snapshot_bytes` of the options",
    "unclean.leader.election.interval.ms": "elections come with the change that needs them. A round repeats what failed",
}
"""Setting -> why no simulated node has it short."""


def test_each_interval_is_short_in_some_cluster() -> None:
    """Otherwise what comes once an interval never runs there."""
    shortest: dict[str, int] = {}
    for shape in (lambda _: {}, consumer_group_shape, share_group_shape, streams_group_shape, tier_shape):
        for seed in range(SEEDS):
            options = replace(draw_cluster_options(seed), **shape(seed))
            config = ServerConfig.from_properties(node_properties(options, options.brokers[0]))
            for name, key in broker_keys().items():
                unit = re.search(r"\.interval\.(ms|seconds)$", name)
                if unit is None or not key.honoured or BOUNDS.match(name):
                    continue
                ms = config.get_int(name) * (1 if unit[1] == "ms" else 1_000) if name not in STAY_LONG else 0
                shortest[name] = min(ms, shortest.get(name, ms))
    assert set(STAY_LONG) <= set(shortest)
    long = [name for name, ms in shortest.items() if ms > LONGEST_MS]
    assert not long, f"sim/node_settings.py gives these no short time: {long}"
