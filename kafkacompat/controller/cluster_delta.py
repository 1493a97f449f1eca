"""Changes of registered brokers by records. Pure.

A broker's record has the epoch of its registration. A record of an earlier registration is invalid and fatal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.controller.image import BrokerEndpoint, BrokerRegistration
from kafkacompat.controller.records import ReplayError

if TYPE_CHECKING:
    from kafkacompat.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
    from kafkacompat.wire.messages.fence_broker_record import FenceBrokerRecord
    from kafkacompat.wire.messages.register_broker_record import RegisterBrokerRecord
    from kafkacompat.wire.messages.unfence_broker_record import UnfenceBrokerRecord
    from kafkacompat.wire.messages.unregister_broker_record import UnregisterBrokerRecord


class ClusterDelta:
    __slots__ = ("_base", "_brokers")

    def __init__(self, base: Mapping[int, BrokerRegistration]) -> None:
        self._base = base
        self._brokers: dict[int, BrokerRegistration] | None = None

    def apply(self) -> Mapping[int, BrokerRegistration]:
        return self._base if self._brokers is None else self._brokers

    def _editable(self) -> dict[int, BrokerRegistration]:
        """The map, copied before the first write."""
        if self._brokers is None:
            self._brokers = dict(self._base)
        return self._brokers

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        if record.is_migrating_zk_broker:
            raise ReplayError(
                f"broker {record.broker_id} is registered as migrating from ZooKeeper, which 4.3 has not"
            )
        cordoned = record.cordoned_log_dirs
        self._editable()[record.broker_id] = BrokerRegistration(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints={
                endpoint.name: BrokerEndpoint(endpoint.host, endpoint.port, endpoint.security_protocol)
                for endpoint in record.end_points
            },
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=None if cordoned is None else tuple(sorted(cordoned)),
        )

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._current(record.broker_id, record.broker_epoch)
        del self._editable()[record.broker_id]

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self._editable()[record.id] = replace(self._current(record.id, record.epoch), fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._editable()[record.id] = replace(self._current(record.id, record.epoch), fenced=False)

    def replay_broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._current(record.broker_id, record.broker_epoch)
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise ReplayError(
                f"a BrokerRegistrationChangeRecord of broker {broker.id} has a value out of range"
            )
        self._editable()[broker.id] = replace(
            broker,
            fenced=broker.fenced if record.fenced == 0 else record.fenced == 1,
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
            directories=tuple(sorted(record.log_dirs)) if record.log_dirs else broker.directories,
            cordoned_directories=(
                broker.cordoned_directories
                if record.cordoned_log_dirs is None
                else tuple(sorted(record.cordoned_log_dirs))
            ),
        )

    def _current(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self._editable().get(broker_id)
        if broker is None:
            raise ReplayError(f"a record changes broker {broker_id}, which is not registered")
        if broker.epoch != broker_epoch:
            raise ReplayError(
                f"a record changes broker {broker_id} in epoch {broker_epoch}, but it is registered in {broker.epoch}"
            )
        return broker
