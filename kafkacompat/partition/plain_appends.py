"""The walk over the batches of a plain Produce: their partitions and what the settings of these take, then the appends.

records/plain_produce has read the request. A batch that needs a closer look, such as the first one of a producer, ends the second
walk before any effect of that batch, and ReplicaManager goes on with it. Both walks have a compiled gait in _plain.c, which holds
no state and decides nothing. Tests hold the two gaits equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.compiled import require_switched_on
from kafkacompat.config import LogConfig
from kafkacompat.partition.partition import Partition
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.records.compression import CODEC_OF_SETTING
from kafkacompat.records.plain_produce import BatchFacts, PlainAllowance, TopicFacts, TopicSummary

if TYPE_CHECKING:
    from kafkacompat.controller.image import TopicImage
    from kafkacompat.ids import Uuid

FindCores: TypeAlias = Callable[
    [
        Mapping[tuple[str, int], Partition],
        "Mapping[Uuid, TopicImage] | None",
        list[TopicFacts],
        frozenset[str],
        bool,
        int,
        list[Partition],
    ],
    bool,
]
AppendKnown: TypeAlias = Callable[
    [
        memoryview,
        list[Partition],
        list[BatchFacts],
        list[Any],
        dict[tuple[str, int], Partition],
        Callable[[Partition, bool], None],
    ],
    "bool | None",
]
TakesBatches: TypeAlias = Callable[[LogConfig, TopicSummary, int], bool]

NEVER_FLUSH = 2**63 - 1
NO_CODEC = 1 << 0
"""The codecs of a topic's summary if all its batches are without."""


def takes_batches_in_python(config: LogConfig, summary: TopicSummary, now_ms: int) -> bool:
    """Whether the settings of a topic take all these batches as they are."""
    size_max, codecs, earliest_ms, latest_ms, nulls = summary
    target = CODEC_OF_SETTING.get(config.compression_type)
    return not (
        config.message_timestamp_type == "LogAppendTime"
        or config.flush_messages != NEVER_FLUSH
        or size_max > config.max_message_bytes
        or (target is not None and codecs != 1 << target)
        or latest_ms > now_ms + config.message_timestamp_after_max_ms
        or earliest_ms < now_ms - config.message_timestamp_before_max_ms
        or (nulls and "compact" in config.cleanup_policy)
        or (codecs != NO_CODEC and config.max_decompressed_message_bytes < PlainAllowance.unpacked_bytes)
    )


def takes_records(config: LogConfig, found: tuple[int, int], now_ms: int) -> bool:
    """The same of what the records of a batch have told that were read later: the earliest timestamp, and whether a key is null."""
    earliest_ms, nulls = found
    return earliest_ms >= now_ms - config.message_timestamp_before_max_ms and not (
        nulls and "compact" in config.cleanup_policy
    )


def find_cores_in_python(
    by_name: Mapping[tuple[str, int], Partition],
    by_id: Mapping[Uuid, TopicImage] | None,
    topics: list[TopicFacts],
    refused: frozenset[str],
    waits: bool,
    now_ms: int,
    cores: list[Partition],
) -> bool:
    """Add the partitions of the batches. False if one of them does not take its batch as it is, or if a topic is among the refused
    names. `by_id`: the request has the ids of topics. `waits`: it waits for all replicas."""
    for name, batches, summary in topics:
        if by_id is not None:
            topic = by_id.get(name)
            if topic is None:
                return False
            name = topic.name
        if name in refused:
            return False
        config: LogConfig | None = None
        for facts in batches:
            core = by_name.get((name, facts[0]))
            if core is None or not core.is_leader or core.is_read_only or core.is_ending_mirror:
                return False
            if waits and len(core.isr) < len(core.replicas) and not core.has_min_isr():
                return False
            its_config = core.log.config
            if its_config is not config:
                config = its_config
                if not takes_batches_in_python(config, summary, now_ms):
                    return False
            cores.append(core)
    return True


def append_known_in_python(
    frame: memoryview,
    cores: list[Partition],
    batches: list[BatchFacts],
    results: list[Any],
    held: dict[tuple[str, int], Partition],
    tell_of: Callable[[Partition, bool], None],
) -> bool | None:
    """Append the batches, from the first one without a result on, to one that needs a closer look. Adds to the results the
    offset of the first record and the log start. Returns whether each of these batches is below the high watermark, or None if one
    needs a closer look.

    Partitions without followers that may have advanced are added to `held`. `tell_of` is told of each other partition. What
    the log raises is about the first batch without a result.
    """
    are_done = True
    for at in range(len(results), len(cores)):
        core, facts = cores[at], batches[at]
        if not core.is_leader:
            return None
        log = core.log
        first_offset = log.append_next(
            frame[facts[1] : facts[2]],
            facts[3],
            facts[5],
            facts[7],
            facts[8],
            facts[9],
            facts[10],
            core.leader_epoch,
        )
        if first_offset < 0:
            return None
        end = first_offset + facts[5]
        traffic = core.traffic
        traffic.produces += 1
        traffic.messages_in += facts[5]
        traffic.bytes_in += facts[3]
        if not core.alone:
            tell_of(core, False)
        elif not core.is_held_back:
            log.set_high_watermark(end)
            held[core.topic_partition] = core
        if log.high_watermark < end:
            are_done = False
        results.append((first_offset, log.log_start_offset))
    return are_done


find_cores: FindCores = find_cores_in_python
append_known: AppendKnown = append_known_in_python
takes_batches: TakesBatches = takes_batches_in_python
compiled: tuple[FindCores, AppendKnown, TakesBatches] | None = None
"""The same functions of _plain.c; None if it was not compiled, or from another source text."""
try:
    require_switched_on()
    from kafkacompat.partition import _plain

    compiled = find_cores, append_known, takes_batches = _plain.functions(
        Partition,
        TopicTraffic,
        LogConfig,
        takes_batches_in_python,
        CODEC_OF_SETTING,
        PlainAllowance.unpacked_bytes,
    )
except (ImportError, AttributeError, TypeError):  # it was not compiled, or from another source text
    pass
