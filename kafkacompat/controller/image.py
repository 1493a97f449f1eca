"""The cluster's metadata as one immutable value: what the broker and its handlers read.

Made only by controller/metadata_delta from committed records; knows neither where records come from nor who reads it.
Every field is replaced, never changed in place, so whoever holds an image may keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from kafkacompat.ids import DIRECTORY_MIGRATING, Uuid

if TYPE_CHECKING:
    from kafkacompat.security.acl import Acl
    from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
    from kafkacompat.wire.messages.register_controller_record import RegisterControllerRecord
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord


CONTROLLERS = "controllers"
CLIENT_QUOTAS = "client_quotas"
SCRAM_CREDENTIALS = "scram_credentials"
DELEGATION_TOKENS = "delegation_tokens"
"""Kinds of `MetadataImage.opaque`; all but the controllers are kept and written to snapshots, and not served."""


class ConfigResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, BrokerEndpoint]
    """By listener name."""
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None
    """None until the broker has stated them (RegisterBroker v4, metadata.version 30)."""


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    """-1 when there is none."""
    leader_recovering: bool
    leader_epoch: int
    partition_epoch: int

    def directory(self, replica: int) -> Uuid:
        """Where a replica lies on its broker, as far as the metadata says; MIGRATING (all zeros) when it does not."""
        at = self.replicas.index(replica)
        return self.directories[at] if at < len(self.directories) else DIRECTORY_MIGRATING

    def merge(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """Absent fields keep; the partition epoch always rises, the leader epoch whenever a leader is stated, even the same."""

        def kept(new: list[int] | None, current: tuple[int, ...]) -> tuple[int, ...]:
            return current if new is None else tuple(new)

        stated = record.leader != -2
        replicas = kept(record.replicas, self.replicas)
        if record.directories is not None:
            directories = tuple(record.directories)
        elif record.replicas is not None and len(replicas) != len(self.directories):
            directories = (DIRECTORY_MIGRATING,) * len(replicas)
        else:
            directories = self.directories
        return PartitionRegistration(
            replicas=replicas,
            directories=directories,
            isr=kept(record.isr, self.isr),
            removing_replicas=kept(record.removing_replicas, self.removing_replicas),
            adding_replicas=kept(record.adding_replicas, self.adding_replicas),
            eligible_leader_replicas=kept(record.eligible_leader_replicas, self.eligible_leader_replicas),
            last_known_elr=kept(record.last_known_elr, self.last_known_elr),
            leader=record.leader if stated else self.leader,
            leader_recovering=(
                self.leader_recovering
                if record.leader_recovery_state == -1
                else record.leader_recovery_state == 1
            ),
            leader_epoch=self.leader_epoch + 1 if stated else self.leader_epoch,
            partition_epoch=self.partition_epoch + 1,
        )


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: Uuid
    partitions: Mapping[int, PartitionRegistration]
    """By partition index; indexes run from 0 without gaps."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    offset: int = -1
    """Last metadata offset contained; -1 for nothing."""
    epoch: int = -1
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels, metadata.version included; level 0 is absent."""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    """By (resource type, name); broker name '' is the cluster-wide default."""
    next_producer_id: int = 0
    acls: Mapping[Uuid, Acl] = field(default_factory=dict)
    """Access control entries by their records' ids."""
    opaque: Mapping[str, Mapping[object, object]] = field(default_factory=dict)
    """What is kept as the records that said it (controllers, quotas, SCRAM, tokens): kind -> key -> record message."""

    @property
    def controllers(self) -> Mapping[int, RegisterControllerRecord]:
        """Registered controllers, by node id."""
        return self.opaque.get(CONTROLLERS, {})  # type: ignore[return-value]  # a delta puts nothing else there

    @property
    def scram_credentials(self) -> Mapping[tuple[str, int], UserScramCredentialRecord]:
        """What is kept of users' passwords, by user and mechanism."""
        return self.opaque.get(SCRAM_CREDENTIALS, {})  # type: ignore[return-value]  # as of controllers

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})
