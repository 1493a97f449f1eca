"""The acknowledgements of one request: judged, given to the share-partitions, and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.share_services import ShareError, TopicIdPartition
from kafkacompat.share.requests import RENEW, are_valid
from kafkacompat.share.values import SUCCEEDED, PendingWrite
from kafkacompat.tasks import Pace
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.one_by_one import OneByOne

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.traffic import TopicTraffic
    from kafkacompat.ports import Clock
    from kafkacompat.share.partition_cache import SharePartitionCache
    from kafkacompat.stepping.jobs import Steps

    MayRead = Callable[[str], bool]

NOT_HOSTED = ShareError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
FIRST_VERSION_WITH_RENEW = 2
WORK_AT_ONCE = 2_000
"""Partitions, batches and acknowledge types of one step."""
WRITTEN_WORK = 100
"""What the change of one share-partition counts besides: if the share coordinator is on this node, it is written at once."""

ACKNOWLEDGE_TYPES = 5


class AcknowledgementMeter:
    """Counts the records that members have acknowledged, by type."""

    __slots__ = ("by_type",)

    def __init__(self) -> None:
        self.by_type = [0] * ACKNOWLEDGE_TYPES

    def count(self, batches: Iterable[Any]) -> None:
        by_type = self.by_type
        if isinstance(batches, OneByOne):
            all_types = b"".join([run.types for run in batches.runs])
            for each in range(ACKNOWLEDGE_TYPES):
                by_type[each] += all_types.count(each)
            return
        for batch in batches:
            types = batch.acknowledge_types
            if len(types) == 1:
                by_type[types[0]] += batch.last_offset - batch.first_offset + 1
            else:
                for each in types:
                    by_type[each] += 1


class Acknowledged:
    """What became of the partitions of a request, in its order."""

    __slots__ = ("errors", "writes")

    def __init__(self) -> None:
        self.errors: dict[TopicIdPartition, ShareError] = {}
        """Those of the writes count when the writes are done."""
        self.writes: list[Deferred[ShareError]] = []
        """Those that are not done yet."""


def acknowledge(
    cache: SharePartitionCache,
    meter: AcknowledgementMeter,
    clock: Clock,
    request: Any,
    api_version: int,
    image: MetadataImage,
    may_read: MayRead | None,
) -> Steps[Acknowledged]:
    """`request` is a ShareFetch or a ShareAcknowledge."""
    outcome = Acknowledged()
    errors = outcome.errors
    supports_renew, is_renew = api_version >= FIRST_VERSION_WITH_RENEW, request.is_renew_ack
    asked: dict[TopicIdPartition, Any] = {}
    empty: list[TopicIdPartition] = []
    pace = Pace(WORK_AT_ONCE)
    for topic in request.topics:
        known = image.topics_by_id.get(topic.topic_id)
        is_readable = known is not None and (may_read is None or may_read(known.name))
        for one in topic.partitions:
            key = TopicIdPartition(topic.topic_id, one.partition_index)
            batches = one.acknowledgement_batches
            if known is None:
                errors[key] = ShareError(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not are_valid(batches, supports_renew=supports_renew, is_renew=is_renew):
                errors[key] = ShareError(ErrorCode.INVALID_REQUEST)
            elif not is_readable:
                errors[key] = ShareError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif key.partition not in known.partitions:
                errors[key] = ShareError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif batches:
                asked[key] = batches
            else:
                empty.append(key)
            if pace.is_over(1 + len(batches)):
                yield None
        if pace.is_over():
            yield None
    named: set[TopicTraffic] = set()
    for key, batches in asked.items():
        size = _size(batches)
        if pace.is_over(size + WRITTEN_WORK):
            yield None
        led = cache.get(request.group_id, key)
        if led is None:
            errors[key] = NOT_HOSTED
            continue
        traffic = led.partition.traffic
        if traffic not in named:
            named.add(traffic)
            traffic.share_acknowledgements += 1
        now_ms = clock.monotonic_ms()
        if size > WORK_AT_ONCE:
            result = yield from led.core.acknowledge_steps(request.member_id, batches, now_ms)
        else:
            result = led.core.acknowledge(request.member_id, batches, now_ms)
        if isinstance(result, PendingWrite):
            write = cache.write(led, result)
            if not write.done:
                outcome.writes.append(write)
            write.on_done(partial(_written, outcome, meter, key, batches, traffic))
        else:
            _note(outcome, meter, key, batches, traffic, result)
        cache.changed(led)
    if asked:  # as in Kafka, without any acknowledgement the others are not told
        errors.update(dict.fromkeys(empty, SUCCEEDED))
    return outcome


def is_long(topics: Iterable[Any], at_once: int = WORK_AT_ONCE) -> bool:
    """Whether a request needs more than one step."""
    work = 0
    for topic in topics:
        work += 1 + len(topic.partitions)
        if work > at_once:
            return True
        for one in topic.partitions:
            batches = one.acknowledgement_batches
            if len(batches) > at_once and not isinstance(batches, OneByOne):
                return True
            if batches:
                work += _size(batches) + WRITTEN_WORK
        if work > at_once:
            return True
    return False


def _size(batches: Iterable[Any]) -> int:
    if isinstance(batches, OneByOne):
        return sum([2 + _size_of_run(run.types) for run in batches.runs])
    return sum(1 + len(batch.acknowledge_types) for batch in batches)


def _size_of_run(types: bytes) -> int:
    """What is of one type is changed together, except that locks are renewed one by one."""
    first = types[0]
    return len(types) // 16 if first != RENEW and types.count(first) == len(types) else 2 * len(types)


def _written(
    outcome: Acknowledged,
    meter: AcknowledgementMeter,
    key: TopicIdPartition,
    batches: Any,
    traffic: TopicTraffic,
    done: Deferred[ShareError],
) -> None:
    _note(outcome, meter, key, batches, traffic, done.result())


def _note(
    outcome: Acknowledged,
    meter: AcknowledgementMeter,
    key: TopicIdPartition,
    batches: Any,
    traffic: TopicTraffic,
    error: ShareError,
) -> None:
    outcome.errors[key] = error
    if error.code is NONE:
        meter.count(batches)
    else:
        traffic.failed_share_acknowledgements += 1
