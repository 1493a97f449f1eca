"""Automatic elections: preferred leaders, and unclean elections where the topic allows them.

Pure: image and settings give records. The caller has the clock: `balance_interval_ms` and `unclean_interval_ms` give
the intervals. The response `True` asks for another round at once, because one round is bounded as in Apache Kafka.
Unclean elections are also due when a setting begins to allow them (`allows_unclean_elections`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.controller.leader_and_isr import partition_change
from kafkacompat.controller.partition_change_builder import Election
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import RECORD_COST, SCANNED_A_STEP, ControllerResult
from kafkacompat.controller.settings import UNCLEAN_LEADER_ELECTION, ControllerSettings
from kafkacompat.ids import NO_LEADER
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.messages.config_record import ConfigRecord

MAX_ELECTIONS_PER_ROUND = 1000


def balance_interval_ms(settings: ControllerSettings) -> int | None:
    """The interval of `maybe_balance_partition_leaders`. None if auto.leader.rebalance.enable is off."""
    if not settings.static.get_boolean("auto.leader.rebalance.enable"):
        return None
    return settings.static.get_int("leader.imbalance.check.interval.seconds") * 1000


def unclean_interval_ms(settings: ControllerSettings) -> int:
    """The interval of `maybe_elect_unclean_leaders`."""
    return settings.static.get_int("unclean.leader.election.interval.ms")


def maybe_balance_partition_leaders(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Make the first replica the leader again where it is in sync and alive. True: there may be more to do."""
    return (yield from _elect(image, settings, Election.PREFERRED, _is_imbalanced))


def maybe_elect_unclean_leaders(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Elect leaders for partitions without one, out of sync if necessary, where the topic allows it. True: there may
    be more to do."""
    return (
        yield from _elect(
            image,
            settings,
            Election.UNCLEAN,
            lambda partition: partition.leader == NO_LEADER,
            lambda topic: settings.unclean_election(image, topic.name),
        )
    )


def allows_unclean_elections(records: Iterable[MetadataRecord]) -> bool:
    """Whether the records of a command set unclean.leader.election.enable to true."""
    return any(
        isinstance(record.message, ConfigRecord)
        and record.message.name == UNCLEAN_LEADER_ELECTION
        and (record.message.value or "").strip().lower() == "true"
        for record in records
    )


def _is_imbalanced(partition: PartitionRegistration) -> bool:
    return partition.leader != partition.replicas[0]


def _elect(
    image: MetadataImage,
    settings: ControllerSettings,
    election: Election,
    concerned: Callable[[PartitionRegistration], bool],
    allowed: Callable[[TopicImage], bool] = lambda topic: True,
) -> Work[ControllerResult[MetadataRecord, bool]]:
    records: list[MetadataRecord] = []
    cost = 0
    for name in sorted(image.topics):
        topic = image.topics[name]
        cost += len(topic.partitions)
        indexes = [index for index in sorted(topic.partitions) if concerned(topic.partitions[index])]
        if indexes and allowed(topic):
            for index in indexes:
                builder = partition_change(image, settings, topic, index)
                builder.election = election
                record = builder.build()
                cost += RECORD_COST
                if record is not None:
                    records.append(record)
                    if len(records) >= MAX_ELECTIONS_PER_ROUND:
                        return ControllerResult(tuple(records), True)
                if cost >= SCANNED_A_STEP:
                    cost = 0
                    yield TURN_COST
        if cost >= SCANNED_A_STEP:
            cost = 0
            yield TURN_COST
    return ControllerResult(tuple(records), False)
