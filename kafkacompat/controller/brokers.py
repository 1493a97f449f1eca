"""Brokers' registration, fencing and shutdown: image and request -> records, including elections.

Pure. It uses the image and one broker's request; the shell has sessions, clocks and heartbeats. Records are in Kafka's
order: partitions that lose the broker come before its registration, and its unfencing before the partitions that it
will lead.
"""

from __future__ import annotations

from kafkacompat.controller.cluster_control import check_broker_epoch
from kafkacompat.controller.features import (
    METADATA_VERSION,
    directories_supported,
    metadata_version,
    register_broker_version,
)
from kafkacompat.controller.image import BrokerRegistration, MetadataImage, PartitionRegistration
from kafkacompat.controller.leader_and_isr import BrokerChange, generate_leader_and_isr_updates
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import BrokerRefused
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.ids import (
    NO_LEADER,
    Uuid,
    is_reserved_uuid,
    uuid_to_text,
)
from kafkacompat.tasks import Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
from kafkacompat.wire.messages.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)

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
