"""Brokers and controllers of the cluster: registration, heartbeats, fencing, shutdown (ClusterControlManager; KIP-631, KIP-841,
KIP-858, KIP-919).

Pure: image, sessions and request give records and response; the shell has clocks and connections. Only the sessions change
before the records are committed. Records are in Kafka's order: partitions that lose the broker come before its registration,
and its unfencing before the partitions that it will lead. The transitions between fenced, unfenced, controlled shutdown and
stopped are those of Apache Kafka's BrokerHeartbeatManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.controller_result import SCANNED_A_STEP, BrokerRefused, ControllerResult
from kafkacompat.controller.features import (
    METADATA_VERSION,
    controller_registration_supported,
    controller_unregistration_supported,
    cordoned_directories_supported,
    directories_supported,
    metadata_version,
    register_broker_version,
)
from kafkacompat.controller.image import BrokerRegistration, MetadataImage, PartitionRegistration
from kafkacompat.controller.metadata_delta import replayed
from kafkacompat.controller.partition_change_builder import BrokerChange, generate_leader_and_isr_updates
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.controller.snapshot_records import broker_record
from kafkacompat.ids import NO_LEADER, Uuid, is_reserved_uuid, uuid_to_text
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkacompat.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
from kafkacompat.wire.messages.broker_registration_response import BrokerRegistrationResponse
from kafkacompat.wire.messages.controller_registration_request import ControllerRegistrationRequest
from kafkacompat.wire.messages.controller_registration_response import ControllerRegistrationResponse
from kafkacompat.wire.messages.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from kafkacompat.wire.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from kafkacompat.wire.messages.unregister_broker_record import UnregisterBrokerRecord
from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkacompat.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from kafkacompat.wire.messages.unregister_controller_record import UnregisterControllerRecord
from kafkacompat.wire.messages.unregister_controller_request import UnregisterControllerRequest
from kafkacompat.wire.messages.unregister_controller_response import UnregisterControllerResponse


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registered broker. Raises BrokerRefused (STALE_BROKER_EPOCH) if it is not registered in that epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise BrokerRefused(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is not registered in epoch {broker_epoch}",
        )
    return broker


FENCE = 1


def register_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    request: BrokerRegistrationRequest,
    next_offset: int,
    session_is_live: bool,
) -> Work[ControllerResult[MetadataRecord, int]]:
    """The response is the broker epoch. `session_is_live`: another incarnation still counts as alive.

    Raises BrokerRefused.
    """
    if request.cluster_id != settings.cluster_id:
        raise BrokerRefused(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {settings.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and session_is_live and not same_incarnation:
        raise BrokerRefused(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise BrokerRefused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."
        )
    level = metadata_version(image.features)
    if directories_supported(level):
        _check_directories(image, request)
    _check_features(image, request)
    records: list[MetadataRecord] = []
    if not same_incarnation:
        records.extend((yield from _forget_incarnation(image, settings, request, existing)))
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset,
        end_points=[
            BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=sorted(request.log_dirs) if directories_supported(level) else [],
    )
    if existing is not None and same_incarnation:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
    records.append(MetadataRecord(record, register_broker_version(level)))
    return ControllerResult(tuple(records), record.broker_epoch)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    code = ErrorCode.INVALID_REGISTRATION
    if not request.log_dirs:
        raise BrokerRefused(code, "No directories specified in request")
    if any(is_reserved_uuid(directory) for directory in request.log_dirs):
        raise BrokerRefused(code, "Reserved directory ID in request")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise BrokerRefused(code, "Duplicate directory ID in request")
    owners = {
        directory: broker.id
        for broker in image.brokers.values()
        if broker.id != request.broker_id
        for directory in broker.directories
    }
    for directory in request.log_dirs:
        if directory in owners:
            raise BrokerRefused(
                code,
                f"Broker {owners[directory]} is already registered with directory {uuid_to_text(directory)}",
            )


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    stated = {
        each.name: (each.min_supported_version, each.max_supported_version) for each in request.features
    }
    if METADATA_VERSION not in stated:
        raise BrokerRefused(
            ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'"
        )
    for name, finalized in image.features.items():
        lowest, highest = stated.get(name, (0, 0))
        if finalized > 0 and not lowest <= finalized <= highest:
            raise BrokerRefused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {finalized} of {name}. "
                f"The broker wants a version between {lowest} and {highest}, inclusive.",
            )


def _forget_incarnation(
    image: MetadataImage,
    settings: ControllerSettings,
    request: BrokerRegistrationRequest,
    existing: BrokerRegistration | None,
) -> Work[list[MetadataRecord]]:
    """A broker that did not stop cleanly may have lost its page cache, so it is no longer an eligible leader replica."""
    broker_id = request.broker_id
    clean = existing is not None and request.previous_broker_epoch == existing.epoch
    if not clean:
        scope = BrokerChange(unclean_shutdown=broker_id)

        def concerned(partition: PartitionRegistration) -> bool:
            return broker_id in partition.isr or broker_id in partition.eligible_leader_replicas

        return (yield from generate_leader_and_isr_updates(image, settings, scope, concerned))
    scope = BrokerChange(to_remove=broker_id)
    return (
        yield from generate_leader_and_isr_updates(
            image, settings, scope, lambda partition: broker_id in partition.isr
        )
    )


def handle_broker_fenced(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, broker_epoch: int
) -> Work[ControllerResult[MetadataRecord, None]]:
    """Remove the broker from leaderships and ISRs first, then fence it."""
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.fenced:
        return ControllerResult((), None)
    records = yield from _leave(image, settings, broker_id)
    records.append(registration_change(broker, fenced=FENCE))
    return ControllerResult(tuple(records), None)


def handle_broker_in_controlled_shutdown(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, broker_epoch: int
) -> Work[ControllerResult[MetadataRecord, None]]:
    """Other brokers take over the leaderships, and none waits for this broker, though it is not fenced yet."""
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(registration_change(broker, in_controlled_shutdown=1))
    left = yield from _leave(image, settings, broker_id)
    return ControllerResult((*records, *left), None)


def _leave(image: MetadataImage, settings: ControllerSettings, broker_id: int) -> Work[list[MetadataRecord]]:
    scope = BrokerChange(to_remove=broker_id)
    return (
        yield from generate_leader_and_isr_updates(
            image, settings, scope, lambda partition: broker_id in partition.isr
        )
    )


def handle_broker_unfenced(
    image: MetadataImage, settings: ControllerSettings, broker_id: int
) -> Work[list[MetadataRecord]]:
    """Elect the broker for partitions without a leader that it can lead."""
    added = BrokerChange(to_add=broker_id)
    return (
        yield from generate_leader_and_isr_updates(
            image, settings, added, lambda partition: partition.leader == NO_LEADER
        )
    )


def registration_change(
    broker: BrokerRegistration,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    directories: list[Uuid] | None = None,
    cordoned_directories: list[Uuid] | None = None,
) -> MetadataRecord:
    """The record in the lowest version that has the given fields."""
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        cordoned_log_dirs=cordoned_directories,
    )
    if directories is not None:
        record.log_dirs = directories
    if cordoned_directories is not None:
        return MetadataRecord(record, 3)
    if directories is not None:
        return MetadataRecord(record, 2)
    return MetadataRecord(record, 1 if in_controlled_shutdown else 0)


def broker_registration(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: BrokerHeartbeatManager,
    request: BrokerRegistrationRequest,
    next_offset: int,
    is_live: Callable[[BrokerRegistration], bool],
) -> Work[ControllerResult[MetadataRecord, BrokerRegistrationResponse]]:
    """`next_offset` is the offset of the first record. `is_live` tells whether the registered broker may still run.

    Raises BrokerRefused.
    """
    existing = image.brokers.get(request.broker_id)
    live = existing is not None and is_live(existing)
    result = yield from register_broker(image, settings, request, next_offset, live)
    sessions.register(request.broker_id, result.response, next_offset + len(result.records) - 1)
    return ControllerResult(result.records, BrokerRegistrationResponse(broker_epoch=result.response))


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


def unregister_broker(
    image: MetadataImage, settings: ControllerSettings, request: UnregisterBrokerRequest
) -> Work[ControllerResult[MetadataRecord, UnregisterBrokerResponse]]:
    """Raises BrokerRefused (BROKER_ID_NOT_REGISTERED)."""
    broker_id = request.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerRefused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    scope = BrokerChange(to_remove=broker_id)
    records = yield from generate_leader_and_isr_updates(
        image, settings, scope, lambda partition: broker_id in partition.isr
    )
    records.append(MetadataRecord(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch), 0))
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise BrokerRefused(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return ControllerResult(tuple(records), UnregisterBrokerResponse())


def unregister_controller(
    image: MetadataImage, active_id: int, request: UnregisterControllerRequest
) -> ControllerResult[MetadataRecord, UnregisterControllerResponse]:
    """Raises BrokerRefused (INVALID_REQUEST, UNSUPPORTED_VERSION, CONTROLLER_ID_NOT_REGISTERED). A controller that runs registers
    again (KIP-1312)."""
    controller_id = request.controller_id
    if controller_id == active_id:
        raise BrokerRefused(
            ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
        )
    if not controller_unregistration_supported(metadata_version(image.features)):
        raise BrokerRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in image.controllers:
        raise BrokerRefused(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {controller_id} is not currently registered.",
        )
    record = UnregisterControllerRecord(controller_id=controller_id)
    return ControllerResult((MetadataRecord(record, 0),), UnregisterControllerResponse(error_message=""))


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[MetadataRecord, ControllerRegistrationResponse]:
    """Raises BrokerRefused (UNSUPPORTED_VERSION below metadata.version 15)."""
    if not controller_registration_supported(metadata_version(image.features)):
        raise BrokerRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return ControllerResult((MetadataRecord(record, 0),), ControllerRegistrationResponse(error_message=None))
