"""The cluster's metadata as one immutable value, for brokers and handlers.

Created only by controller/metadata_delta from committed records. Fields are replaced, never changed in place, so any
component may keep an image."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkacompat.security.acl import Acl
    from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord
    from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
    from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
    from kafkacompat.wire.messages.register_controller_record import RegisterControllerRecord
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

K = TypeVar("K")
T = TypeVar("T")

CONTROLLERS = "controllers"
CLIENT_QUOTAS = "client_quotas"
SCRAM_CREDENTIALS = "scram_credentials"
DELEGATION_TOKENS = "delegation_tokens"
"""Kinds of `MetadataImage.opaque`. The parts that enforce or describe them read them from there."""


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
    """None until the broker has reported them (RegisterBroker v4, metadata.version 30)."""

    @property
    def has_uncordoned_directories(self) -> bool:
        cordoned = self.cordoned_directories
        return not self.directories or cordoned is None or not set(self.directories) <= set(cordoned)


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
    """-1 if there is none."""
    leader_recovering: bool
    leader_epoch: int
    partition_epoch: int

    def directory(self, replica: int) -> Uuid:
        """The directory id of a replica in the metadata. MIGRATING (all zeros) if there is none."""
        at = self.replicas.index(replica)
        return self.directories[at] if at < len(self.directories) else DIRECTORY_MIGRATING

    def merge(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """Apply a change. Missing fields keep their values. The partition epoch always increases, the leader epoch
        whenever the record has a leader, even the same one."""

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
    """By partition index. Indexes run from 0 without gaps."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicChanges:
    """How the topics of an image differ from those of the image that its records were applied to."""

    since: object = None
    """`state` of that image. None if the records were applied to nothing."""
    ids: tuple[Uuid, ...] = ()
    """Topics that were created, changed or deleted, in the order of their first records."""
    unclean_elections: int = 0
    """Changes that made leaders recover, because they were not in sync."""
    eligible_elections: int = 0
    """Changes whose leaders were eligible and not in sync (KIP-966)."""
    state: object = field(default_factory=object)
    """Images with the same topics have the same object. It is no image, so that no image keeps all earlier ones."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyChanges(Generic[K]):
    """How a map of an image differs from that of the image that its records were applied to."""

    since: object = None
    """`state` of that map. None if the records were applied to nothing."""
    keys: tuple[K, ...] = ()
    """Keys that were put, changed or removed, in the order of their first records."""
    state: object = field(default_factory=object)
    """Images with the same map have the same object, as in TopicChanges."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    offset: int = -1
    """Last metadata offset included. -1 if empty."""
    epoch: int = -1
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels, including metadata.version. Level 0 is left out."""
    features_epoch: int = field(default=-1, compare=False)
    """The offset of the image in which they changed last. An image of a snapshot has the snapshot's."""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    """By (resource type, name). Broker name '' is the cluster-wide default."""
    next_producer_id: int = 0
    acls: Mapping[Uuid, Acl] = field(default_factory=dict)
    """Access control entries by their record ids."""
    opaque: Mapping[str, Mapping[object, object]] = field(default_factory=dict)
    """Data kept as record messages (controllers, quotas, SCRAM, tokens): kind -> key -> record message."""
    topic_changes: TopicChanges = field(default_factory=TopicChanges, compare=False, repr=False)
    """Read it with controller/image."""
    config_changes: KeyChanges[tuple[int, str]] = field(default_factory=KeyChanges, compare=False, repr=False)
    """Read it with controller/image."""
    acl_changes: KeyChanges[Uuid] = field(default_factory=KeyChanges, compare=False, repr=False)
    """Read it with controller/image."""

    @property
    def controllers(self) -> Mapping[int, RegisterControllerRecord]:
        """Registered controllers, by node id."""
        return self.opaque.get(CONTROLLERS, {})  # type: ignore[return-value]  # a delta stores nothing else there

    @property
    def client_quotas(self) -> Mapping[tuple[tuple[tuple[str, str | None], ...], str], ClientQuotaRecord]:
        """By entity (type and name of each part, None for the default's name), then by key."""
        return self.opaque.get(CLIENT_QUOTAS, {})  # type: ignore[return-value]  # as for controllers

    @property
    def scram_credentials(self) -> Mapping[tuple[str, int], UserScramCredentialRecord]:
        """SCRAM credentials by user and mechanism."""
        return self.opaque.get(SCRAM_CREDENTIALS, {})  # type: ignore[return-value]  # as for controllers

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationTokenRecord]:
        """By token id. Expired tokens stay until the controller removes them."""
        return self.opaque.get(DELEGATION_TOKENS, {})  # type: ignore[return-value]  # as for controllers

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})


def endpoints_of(
    image: MetadataImage, broker_ids: Iterable[int], listener_name: str, make: Callable[..., T]
) -> list[T]:
    """Return NodeEndpoint structs (KIP-951) of the brokers that have the listener, by id."""
    endpoints = []
    for broker_id in sorted(broker_ids):
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(listener_name)
        if broker is not None and endpoint is not None:
            endpoints.append(
                make(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return endpoints


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker is registered, unfenced and not in controlled shutdown."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def manual_assignment_flaw(image: MetadataImage, brokers: Sequence[int]) -> str | None:
    """Kafka's text for what is wrong with the replicas that a request gives a partition, whatever their number."""
    start = "The manual partition assignment includes"
    if not brokers:
        return f"{start} an empty replica list."
    previous: int | None = None
    for broker_id in sorted(brokers):
        broker = image.brokers.get(broker_id)
        if broker is None:
            return f"{start} broker {broker_id}, but no such broker is registered."
        if not broker.has_uncordoned_directories:
            return f"{start} broker {broker_id}, but all its log directories are cordoned."
        if broker_id == previous:
            return f"{start} the broker {broker_id} more than once."
        previous = broker_id
    return None


def default_dir(image: MetadataImage, broker_id: int) -> Uuid:
    """The directory of a broker that has exactly one. UNASSIGNED if it has several or is unknown."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return DIRECTORY_UNASSIGNED
    if not broker.directories:
        return DIRECTORY_MIGRATING
    if len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED


def has_online_dir(broker: BrokerRegistration, directory: Uuid) -> bool:
    if directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED):
        return True
    return directory != DIRECTORY_LOST and directory in broker.directories


class ChangedTopic(NamedTuple):
    former: TopicImage | None
    """None if the topic was created."""
    present: TopicImage | None
    """None if the topic was deleted."""


def changed_topics(old: MetadataImage, new: MetadataImage) -> list[ChangedTopic]:
    """All topics that differ, each id once: first the deleted ones, because one that was created may have the name of
    one of them."""
    if old.topics_by_id is new.topics_by_id:
        return []
    changed = []
    for topic_id in _candidate_ids(old, new):
        former, present = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
        if former is not present:
            changed.append(ChangedTopic(former, present))
    changed.sort(key=_is_present)
    return changed


def is_next(old: MetadataImage, new: MetadataImage) -> bool:
    """Whether the new image's `topic_changes` are those since the old image."""
    return new.topic_changes.since is old.topic_changes.state


def _candidate_ids(old: MetadataImage, new: MetadataImage) -> Iterable[Uuid]:
    return new.topic_changes.ids if is_next(old, new) else _all_ids(old, new)


def _all_ids(old: MetadataImage, new: MetadataImage) -> Iterator[Uuid]:
    yield from (topic_id for topic_id in old.topics_by_id if topic_id not in new.topics_by_id)
    yield from new.topics_by_id


def _is_present(each: ChangedTopic) -> bool:
    return each.present is not None


V = TypeVar("V")


def changed_configs(old: MetadataImage, new: MetadataImage) -> list[tuple[int, str]]:
    """The resources, by type and name, whose settings differ."""
    return _changed(old.configs, new.configs, old.config_changes, new.config_changes)


def changed_acls(old: MetadataImage, new: MetadataImage) -> Collection[Uuid] | None:
    """At least the ids of entries that were added or removed. None if any may differ."""
    if old.acls is new.acls:
        return ()
    return new.acl_changes.keys if new.acl_changes.since is old.acl_changes.state else None


def _changed(
    old: Mapping[K, V], new: Mapping[K, V], before: KeyChanges[K], changes: KeyChanges[K]
) -> list[K]:
    if old is new:
        return []
    is_next = changes.since is before.state
    candidates = changes.keys if is_next else (*(key for key in old if key not in new), *new)
    return [key for key in candidates if old.get(key) is not new.get(key)]
