"""BrokerHeartbeat (KIP-631, KIP-841, KIP-858): the next state of a broker that sends a heartbeat.

Image, sessions and request give records and response. Only the sessions change before the records are committed. The
transitions between fenced, unfenced, controlled shutdown and stopped are those of Apache Kafka 4.3.0's
BrokerHeartbeatManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.brokers import (
    handle_broker_fenced,
    handle_broker_in_controlled_shutdown,
    handle_broker_unfenced,
    registration_change,
)
from kafkacompat.controller.cluster_control import check_broker_epoch
from kafkacompat.controller.features import (
    cordoned_directories_supported,
    directories_supported,
    metadata_version,
    register_broker_version,
)
from kafkacompat.controller.image import BrokerRegistration, MetadataImage, PartitionRegistration
from kafkacompat.controller.leader_and_isr import BrokerChange, generate_leader_and_isr_updates
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.replayer import replayed
from kafkacompat.controller.result import SCANNED_A_STEP, ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.controller.snapshot_records import broker_record
from kafkacompat.ids import Uuid
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse


class BrokerControlState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerControlState


def broker_heartbeat(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: BrokerHeartbeatManager,
    request: BrokerHeartbeatRequest,
    next_offset: int,
    now_ms: int,
) -> Work[ControllerResult[MetadataRecord, BrokerHeartbeatResponse]]:
    """In `image` this broker is as registered, and other dead brokers are fenced. `next_offset` is the offset of the
    first record. Raises BrokerRefused (STALE_BROKER_EPOCH)."""
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= sessions.registration_offset(broker.id)
    state = current_broker_state(sessions, broker)
    following = yield from calculate_next_broker_state(image, sessions, broker, request, caught_up)
    records: list[MetadataRecord] = []
    if following is not state or (following is UNFENCED and broker.in_controlled_shutdown):
        records.extend((yield from _move(image, settings, broker, following)))
    fenced = following in (FENCED, SHUTDOWN_NOW)
    sessions.touch(broker.id, broker.epoch, request.current_metadata_offset, fenced, now_ms)
    if following is SHUTDOWN_NOW:
        # The broker stops now: its next incarnation need not wait for the end of this session.
        sessions.end(broker.id)
    level = metadata_version(image.features)
    if request.offline_log_dirs and directories_supported(level):
        before = yield from replayed(image, records)
        records.extend(
            (yield from _directories_offline(before, settings, broker.id, request.offline_log_dirs))
        )
    if request.cordoned_log_dirs is not None and cordoned_directories_supported(level):
        records.extend(_directories_cordoned(broker, request.cordoned_log_dirs))
    if following is CONTROLLED_SHUTDOWN:
        sessions.maybe_update_controlled_shutdown_offset(broker.id, next_offset + len(records) - 1)
    response = BrokerHeartbeatResponse(
        is_caught_up=caught_up, is_fenced=fenced, should_shut_down=following is SHUTDOWN_NOW
    )
    return ControllerResult(tuple(records), response)


def current_broker_state(sessions: BrokerHeartbeatManager, broker: BrokerRegistration) -> BrokerControlState:
    """A controller that became active during a controlled shutdown treats the broker as unfenced until it asks again."""
    if broker.fenced:
        return FENCED
    return CONTROLLED_SHUTDOWN if sessions.controlled_shutdown_offset(broker.id) >= 0 else UNFENCED


def calculate_next_broker_state(
    image: MetadataImage,
    sessions: BrokerHeartbeatManager,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    caught_up: bool,
) -> Work[BrokerControlState]:
    state = current_broker_state(sessions, broker)
    if state is FENCED:
        if request.want_shut_down:
            return SHUTDOWN_NOW
        return UNFENCED if caught_up and not request.want_fence else FENCED
    if state is UNFENCED:
        if request.want_fence:
            return SHUTDOWN_NOW if request.want_shut_down else FENCED
        if not request.want_shut_down:
            return UNFENCED
        return CONTROLLED_SHUTDOWN if (yield from _leads(image, broker.id)) else SHUTDOWN_NOW
    if sessions.controlled_shutdown_offset(broker.id) > sessions.lowest_active_offset(image):
        return CONTROLLED_SHUTDOWN
    return CONTROLLED_SHUTDOWN if (yield from _leads(image, broker.id)) else SHUTDOWN_NOW


def _leads(image: MetadataImage, broker_id: int) -> Work[bool]:
    pace = Pace(SCANNED_A_STEP)
    for topic in image.topics.values():
        if any(each.leader == broker_id for each in topic.partitions.values()):
            return True
        if pace.is_over(1 + len(topic.partitions)):
            yield TURN_COST
    return False


def _move(
    image: MetadataImage,
    settings: ControllerSettings,
    broker: BrokerRegistration,
    following: BrokerControlState,
) -> Work[Sequence[MetadataRecord]]:
    if following is UNFENCED:
        return (yield from _unfence(image, settings, broker))
    command = (
        handle_broker_in_controlled_shutdown if following is CONTROLLED_SHUTDOWN else handle_broker_fenced
    )
    return (yield from command(image, settings, broker.id, broker.epoch)).records


def _unfence(
    image: MetadataImage, settings: ControllerSettings, broker: BrokerRegistration
) -> Work[Sequence[MetadataRecord]]:
    if not broker.in_controlled_shutdown:
        record = registration_change(broker, fenced=-1)
        return [record, *(yield from handle_broker_unfenced(image, settings, broker.id))]
    # The broker stays: it was wrongly taken for dead. Only a registration record can end its controlled shutdown.
    level = metadata_version(image.features)
    staying = broker_record(replace(broker, fenced=False, in_controlled_shutdown=False), level)
    record = MetadataRecord(staying, register_broker_version(level))
    registered = yield from replayed(image, [record])
    return [record, *(yield from handle_broker_unfenced(registered, settings, broker.id))]


def _directories_offline(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, offline: Sequence[Uuid]
) -> Work[list[MetadataRecord]]:
    """Replicas in directories that went offline leave their ISRs and leaders are elected. Then the directories are
    removed from the broker."""
    broker = image.brokers[broker_id]
    lost = [directory for directory in broker.directories if directory in offline]
    if not lost:
        return []

    def is_lost(partition: PartitionRegistration) -> bool:
        if broker_id not in partition.replicas:
            return False
        return partition.directories[partition.replicas.index(broker_id)] in lost

    scope = BrokerChange(to_remove=broker_id)
    records = yield from generate_leader_and_isr_updates(image, settings, scope, is_lost)
    remaining = [directory for directory in broker.directories if directory not in lost]
    records.append(registration_change(broker, directories=remaining))
    return records


def _directories_cordoned(broker: BrokerRegistration, cordoned: Sequence[Uuid]) -> list[MetadataRecord]:
    stated = broker.cordoned_directories
    if stated is not None and set(stated) == set(cordoned):
        return []
    return [registration_change(broker, cordoned_directories=list(cordoned))]
