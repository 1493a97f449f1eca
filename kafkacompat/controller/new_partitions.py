"""New partitions, of a new topic or of one that grows: their replicas, placed or as the request assigns them, and their
records.

Pure, with checks, codes and texts of Kafka's controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafkacompat.controller.cluster_control import default_dir, is_active
from kafkacompat.controller.features import metadata_version, partition_version
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import told
from kafkacompat.controller.result import RECORDS_A_STEP
from kafkacompat.controller.striped_replica_placer import PlacementRefused, place_partitions
from kafkacompat.ids import Uuid
from kafkacompat.ports import Random
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import CreatableTopic
from kafkacompat.wire.messages.partition_record import PartitionRecord

NAMED_A_STEP = 5_000
"""Topics whose name only is checked, or settings, handled in one step, at up to 2 us each."""
TOPICS_A_STEP = 100
"""Topics handled in one step with any outcome, at up to 100 us each."""
TOO_LARGE_TEXT = "Unable to perform excessively large batch operation."


class TopicRefused(Exception):
    """The refusal of one topic, at its place in the protocol."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = told(message)


@dataclass(slots=True)
class Placed:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class LogRoom:
    """The room for new logs on this node, which one request uses up. A log that is created but finds no descriptor could
    not be written. What other brokers have room for is unknown."""

    __slots__ = ("_left", "_node_id")

    def __init__(self, node_id: int, logs_left: int | None) -> None:
        """`logs_left`: for how many logs this node has descriptors. None if there is no limit."""
        self._node_id = node_id
        self._left = logs_left

    def take(self, placed: Iterable[Placed]) -> None:
        """Raises TopicRefused."""
        if self._left is None:
            return
        own = sum(self._node_id in each.replicas for each in placed)
        if own > self._left:
            raise TopicRefused(
                ErrorCode.POLICY_VIOLATION,
                f"Node {self._node_id} would have {own} new replicas, but its limit of open files leaves room for "
                f"{self._left}.",
            )
        self._left -= own


def times_named(
    topics: Sequence[CreatableTopic | CreatePartitionsTopic], pace: Pace
) -> Work[Mapping[str, int]]:
    """How often a request names each topic, in order."""
    times: dict[str, int] = {}
    for topic in topics:
        times[topic.name] = times.get(topic.name, 0) + 1
        if pace.is_over():
            yield TURN_COST
    return times


def check_assignment(image: MetadataImage, brokers: Sequence[int], factor: int | None, index: int) -> Placed:
    code, start = ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes"
    if not brokers:
        raise TopicRefused(code, f"{start} an empty replica list.")
    previous: int | None = None
    for broker in sorted(brokers):
        if broker not in image.brokers:
            raise TopicRefused(code, f"{start} broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise TopicRefused(code, f"{start} the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(brokers) != factor:
        raise TopicRefused(
            code,
            f"{start} a partition with {len(brokers)} replica(s), but this is not consistent with previous "
            f"partitions, which have {factor} replica(s).",
        )
    isr = tuple(broker for broker in brokers if is_active(image, broker))
    if not isr:
        raise TopicRefused(
            code,
            "All brokers specified in the manual partition assignment for partition "
            f"{index} are fenced or in controlled shutdown.",
        )
    return Placed(tuple(brokers), isr)


def place(image: MetadataImage, partitions: int, factor: int, random: Random) -> Work[list[Placed]]:
    placed: list[Placed] = []
    for replicas in place_partitions(image.brokers.values(), partitions, factor, random):
        isr = tuple(broker for broker in replicas if is_active(image, broker))
        if not isr:
            raise PlacementRefused("All brokers are currently fenced or in controlled shutdown.")
        placed.append(Placed(replicas, isr))
        if len(placed) % RECORDS_A_STEP == 0:
            yield TURN_COST
    return placed


def partition_records(
    image: MetadataImage, topic_id: Uuid, first_index: int, placed: Iterable[Placed]
) -> Work[list[MetadataRecord]]:
    version = partition_version(metadata_version(image.features))
    records: list[MetadataRecord] = []
    for index, each in enumerate(placed, first_index):
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(each.replicas),
            isr=list(each.isr),
            leader=each.isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[default_dir(image, broker) for broker in each.replicas] if version else [],
        )
        records.append(MetadataRecord(record, version))
        if len(records) % RECORDS_A_STEP == 0:
            yield TURN_COST
    return records
