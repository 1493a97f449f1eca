"""Committed metadata records -> a new image: the only place where cluster metadata changes. Pure.

A delta copies each map once, when a record first changes it. So a batch of a thousand records costs a thousand small
steps and one copy per map. Merge rules are those of Kafka's MetadataDelta and its parts. A record or level unknown to
4.4 is fatal, because an image that skips one would be wrong forever. So is a broker's record with the epoch of an
earlier registration.

The Replayer applies batches of records in order. It holds back the records of a metadata transaction until its end (KIP-868).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.controller.controller_result import RECORDS_A_STEP
from kafkacompat.controller.features import KRAFT_VERSION, SUPPORTED_FEATURES
from kafkacompat.controller.image import (
    CLIENT_QUOTAS,
    CONTROLLERS,
    DELEGATION_TOKENS,
    SCRAM_CREDENTIALS,
    BrokerEndpoint,
    BrokerRegistration,
    KeyChanges,
    MetadataImage,
    PartitionRegistration,
    TopicChanges,
    TopicImage,
)
from kafkacompat.controller.records import ReplayError
from kafkacompat.ids import DIRECTORY_MIGRATING, Uuid
from kafkacompat.security.acl import Acl
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.config_resources import ConfigResourceType

if TYPE_CHECKING:
    from kafkacompat.controller.records import MetadataRecord
    from kafkacompat.wire.messages.access_control_entry_record import AccessControlEntryRecord
    from kafkacompat.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
    from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
    from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord
    from kafkacompat.wire.messages.config_record import ConfigRecord
    from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
    from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
    from kafkacompat.wire.messages.fence_broker_record import FenceBrokerRecord
    from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
    from kafkacompat.wire.messages.partition_record import PartitionRecord
    from kafkacompat.wire.messages.producer_ids_record import ProducerIdsRecord
    from kafkacompat.wire.messages.register_broker_record import RegisterBrokerRecord
    from kafkacompat.wire.messages.register_controller_record import RegisterControllerRecord
    from kafkacompat.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from kafkacompat.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
    from kafkacompat.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from kafkacompat.wire.messages.topic_record import TopicRecord
    from kafkacompat.wire.messages.unfence_broker_record import UnfenceBrokerRecord
    from kafkacompat.wire.messages.unregister_broker_record import UnregisterBrokerRecord
    from kafkacompat.wire.messages.unregister_controller_record import UnregisterControllerRecord
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord


class FeaturesDelta:
    __slots__ = ("_base", "_changed", "has_records")

    def __init__(self, base: Mapping[str, int]) -> None:
        self._base = base
        self._changed: dict[str, int] = {}
        self.has_records = False
        """Also when they leave each feature at its level. Those of kraft.version are not meant, which count for no epoch."""

    def apply(self) -> Mapping[str, int]:
        """The levels after the changes. Level 0 is left out."""
        if not self._changed:
            return self._base
        return {name: level for name, level in {**self._base, **self._changed}.items() if level}

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        lowest, highest = SUPPORTED_FEATURES.get(record.name, (0, 0))
        if record.feature_level != 0 and not lowest <= record.feature_level <= highest:
            raise ReplayError(
                f"the metadata log finalizes {record.name} at level {record.feature_level}, "
                f"but this software supports {lowest} to {highest}"
            )
        self.has_records = True
        if record.name != KRAFT_VERSION:  # only the quorum's own records tell its level (KAFKA-18979)
            self._changed[record.name] = record.feature_level

    def set_kraft_version(self, level: int) -> None:
        """From the KRaftVersion control record."""
        self._changed[KRAFT_VERSION] = level


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


RECOVERING = 1
"""The leader recovery state of a leader that was elected uncleanly (KIP-704)."""


class TopicsDelta:
    __slots__ = (
        "_base",
        "_eligible_elections",
        "_ids",
        "_partitions",
        "_topics",
        "_topics_by_id",
        "_unclean_elections",
    )

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[Uuid, TopicImage] = {}
        self._partitions: dict[Uuid, dict[int, PartitionRegistration]] = {}
        """Partitions of the topics with changes."""
        self._ids: dict[Uuid, None] = {}
        """All topics that the records created, changed or deleted."""
        self._unclean_elections = 0
        self._eligible_elections = 0

    def apply(self) -> tuple[Mapping[str, TopicImage], Mapping[Uuid, TopicImage], TopicChanges]:
        """(topics by name, topics by id, what has changed)."""
        base = self._base
        if self._topics is None:
            return base.topics, base.topics_by_id, base.topic_changes
        for topic_id, partitions in self._partitions.items():
            topic = replace(self._topics_by_id[topic_id], partitions=partitions)
            self._topics[topic.name] = self._topics_by_id[topic_id] = topic
        since = base.topic_changes.state if base.offset >= 0 else None
        changes = TopicChanges(since, tuple(self._ids), self._unclean_elections, self._eligible_elections)
        return self._topics, self._topics_by_id, changes

    def _editable(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._base.topics)
            self._topics_by_id = dict(self._base.topics_by_id)
        return self._topics

    def _editable_partitions(self, topic_id: Uuid) -> dict[int, PartitionRegistration]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            self._editable()
            topic = self._topics_by_id.get(topic_id)
            if topic is None:
                raise ReplayError(f"a record names topic id {topic_id.hex()}, which does not exist")
            partitions = self._partitions[topic_id] = dict(topic.partitions)
            self._ids[topic_id] = None
        return partitions

    def replay_topic(self, record: TopicRecord) -> None:
        topics = self._editable()
        if record.name in topics or record.topic_id in self._topics_by_id:
            raise ReplayError(f"a TopicRecord creates {record.name!r} a second time")
        topic = TopicImage(record.name, record.topic_id, {})
        topics[record.name] = topic
        self._topics_by_id[record.topic_id] = topic
        self._ids[record.topic_id] = None

    def replay_partition(self, record: PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        partitions = self._editable_partitions(record.topic_id)
        former = partitions.get(record.partition_id)
        if former is not None:
            self._count_elections(former, record.leader, record.leader_recovery_state)
        partitions[record.partition_id] = PartitionRegistration(
            replicas=replicas,
            directories=tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_recovering=record.leader_recovery_state == 1,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._editable_partitions(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise ReplayError(
                f"a PartitionChangeRecord names partition {record.partition_id} of topic id "
                f"{record.topic_id.hex()}, which does not exist"
            )
        self._count_elections(old, record.leader, record.leader_recovery_state)
        partitions[record.partition_id] = old.merge(record)

    def _count_elections(self, former: PartitionRegistration, leader: int, recovery_state: int) -> None:
        """As Kafka's TopicDelta counts them."""
        self._unclean_elections += recovery_state == RECOVERING
        self._eligible_elections += leader in former.eligible_leader_replicas

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        topics = self._editable()
        for name in [record.topic_name] if record.topic_name else list(topics):
            topic = topics.get(name)
            if topic is None:
                raise ReplayError(f"a ClearElrRecord names topic {name!r}, which does not exist")
            partitions = self._partitions.get(topic.id, topic.partitions)
            if any(each.eligible_leader_replicas or each.last_known_elr for each in partitions.values()):
                self._clear_elr(topic.id)

    def _clear_elr(self, topic_id: Uuid) -> None:
        partitions = self._editable_partitions(topic_id)
        for index, each in partitions.items():
            if each.eligible_leader_replicas or each.last_known_elr:
                partitions[index] = replace(
                    each,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                    partition_epoch=each.partition_epoch + 1,
                )

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Returns the name of the removed topic."""
        topics = self._editable()
        topic = self._topics_by_id.pop(record.topic_id, None)
        if topic is None:
            raise ReplayError(
                f"a RemoveTopicRecord names topic id {record.topic_id.hex()}, which does not exist"
            )
        self._ids[record.topic_id] = None
        del topics[topic.name]
        self._partitions.pop(record.topic_id, None)
        return topic.name


Configs: TypeAlias = Mapping[tuple[int, str], Mapping[str, str]]
"""By (resource type, name)."""


class ConfigurationsDelta:
    __slots__ = ("_base", "_changed")

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._changed: dict[tuple[int, str], dict[str, str]] = {}

    def apply(self) -> tuple[Configs, KeyChanges[tuple[int, str]]]:
        """The settings after the changes, and what has changed. A resource without settings is left out."""
        base = self._base
        if not self._changed:
            return base.configs, base.config_changes
        configs = {**base.configs, **self._changed}
        for key, values in self._changed.items():
            if not values:
                del configs[key]
        since = base.config_changes.state if base.offset >= 0 else None
        return configs, KeyChanges(since, tuple(self._changed))

    def replay_config(self, record: ConfigRecord) -> None:
        values = self._editable((record.resource_type, record.resource_name))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def delete_topic(self, name: str) -> None:
        key = (int(ConfigResourceType.TOPIC), name)
        if key in self._base.configs or key in self._changed:
            self._editable(key).clear()

    def _editable(self, key: tuple[int, str]) -> dict[str, str]:
        """The settings of a resource, copied before the first write."""
        values = self._changed.get(key)
        if values is None:
            values = self._changed[key] = dict(self._base.configs.get(key, {}))
        return values


class MetadataDelta:
    """Applies records to an image. Call `replay` in log order, then `apply` once."""

    __slots__ = (
        "_acl_ids",
        "_acls",
        "_base",
        "_next_producer_id",
        "_opaque",
        "cluster",
        "configs",
        "features",
        "topics",
    )

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self.features = FeaturesDelta(base.features)
        self.cluster = ClusterDelta(base.brokers)
        self.topics = TopicsDelta(base)
        self.configs = ConfigurationsDelta(base)
        self._next_producer_id = base.next_producer_id
        self._acls: dict[Uuid, Acl] | None = None
        self._acl_ids: dict[Uuid, None] = {}
        """All entries that the records added or removed."""
        self._opaque: dict[str, dict[object, object]] = {}

    def replay(self, api_key: int, message: Any) -> None:
        """Raises ReplayError if the record does not fit."""
        replay = _REPLAY.get(api_key)
        if replay is None:
            raise ReplayError(f"metadata record type {api_key} is unknown to this software")
        replay(self, message)

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """The image after all replayed records. The delta cannot be used afterwards."""
        base = self._base
        topics, topics_by_id, topic_changes = self.topics.apply()
        configs, config_changes = self.configs.apply()
        acls, acl_changes = base.acls, base.acl_changes
        if self._acls is not None:
            since = base.acl_changes.state if base.offset >= 0 else None
            acls, acl_changes = self._acls, KeyChanges(since, tuple(self._acl_ids))
        opaque = base.opaque
        if self._opaque:
            opaque = {kind: values for kind, values in {**base.opaque, **self._opaque}.items() if values}
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            features=self.features.apply(),
            features_epoch=offset if self.features.has_records else base.features_epoch,
            brokers=self.cluster.apply(),
            topics=topics,
            topics_by_id=topics_by_id,
            configs=configs,
            next_producer_id=self._next_producer_id,
            acls=acls,
            opaque=opaque,
            topic_changes=topic_changes,
            config_changes=config_changes,
            acl_changes=acl_changes,
        )

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        self.configs.delete_topic(self.topics.replay_remove_topic(record))

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _editable_acls(self, key: Uuid) -> dict[Uuid, Acl]:
        """The entries, for a change of this one."""
        if self._acls is None:
            self._acls = dict(self._base.acls)
        self._acl_ids[key] = None
        return self._acls

    def _access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self._editable_acls(record.id)[record.id] = Acl.of_record(record)

    def _remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._editable_acls(record.id).pop(record.id, None) is None:
            raise ReplayError(
                f"a RemoveAccessControlEntryRecord names entry {record.id.hex()}, which does not exist"
            )

    # Data kept as record messages.

    def _editable_opaque(self, kind: str) -> dict[object, object]:
        values = self._opaque.get(kind)
        if values is None:
            values = self._opaque[kind] = dict(self._base.opaque.get(kind, {}))
        return values

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self._editable_opaque(CONTROLLERS)[record.controller_id] = record

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        if self._editable_opaque(CONTROLLERS).pop(record.controller_id, None) is None:
            raise ReplayError(
                f"an UnregisterControllerRecord names controller {record.controller_id}, which is not registered"
            )

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted(((each.entity_type, each.entity_name) for each in record.entity), key=repr))
        quotas = self._editable_opaque(CLIENT_QUOTAS)
        if record.remove:
            quotas.pop((entity, record.key), None)
        else:
            quotas[(entity, record.key)] = record

    def _user_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._editable_opaque(SCRAM_CREDENTIALS)[(record.name, record.mechanism)] = record

    def _remove_user_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self._editable_opaque(SCRAM_CREDENTIALS).pop((record.name, record.mechanism), None)

    def _delegation_token(self, record: DelegationTokenRecord) -> None:
        self._editable_opaque(DELEGATION_TOKENS)[record.token_id] = record

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._editable_opaque(DELEGATION_TOKENS).pop(record.token_id, None)

    def _nothing(self, record: object) -> None:
        """NoOp and the ZooKeeper migration state, which the 4.x image ignores: only the offset advances."""


_REPLAY: dict[int, Callable[[MetadataDelta, Any], None]] = {
    0: lambda delta, record: delta.cluster.replay_register_broker(record),
    1: lambda delta, record: delta.cluster.replay_unregister_broker(record),
    2: lambda delta, record: delta.topics.replay_topic(record),
    3: lambda delta, record: delta.topics.replay_partition(record),
    4: lambda delta, record: delta.configs.replay_config(record),
    5: lambda delta, record: delta.topics.replay_partition_change(record),
    7: lambda delta, record: delta.cluster.replay_fence_broker(record),
    8: lambda delta, record: delta.cluster.replay_unfence_broker(record),
    9: MetadataDelta._remove_topic,
    10: MetadataDelta._delegation_token,
    11: MetadataDelta._user_scram_credential,
    12: lambda delta, record: delta.features.replay_feature_level(record),
    14: MetadataDelta._client_quota,
    15: MetadataDelta._producer_ids,
    17: lambda delta, record: delta.cluster.replay_broker_registration_change(record),
    18: MetadataDelta._access_control_entry,
    19: MetadataDelta._remove_access_control_entry,
    20: MetadataDelta._nothing,
    21: MetadataDelta._nothing,
    22: MetadataDelta._remove_user_scram_credential,
    26: MetadataDelta._remove_delegation_token,
    27: MetadataDelta._register_controller,
    28: lambda delta, record: delta.topics.replay_clear_elr(record),
    29: MetadataDelta._unregister_controller,
}


BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25


class Replayer:
    """Applies batches in order, and holds back the records of an unfinished metadata transaction (KIP-868)."""

    __slots__ = ("_delta", "_held", "image")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        """The image after the last `publish`."""
        self._delta: MetadataDelta | None = None
        self._held: list[tuple[int, Any]] | None = None

    @property
    def in_transaction(self) -> bool:
        return self._held is not None

    def copy(self) -> Replayer:
        """An independent replayer in the same state. Only between publishes."""
        other = Replayer(self.image)
        other._held = None if self._held is None else list(self._held)
        return other

    def apply(self, records: Iterable[tuple[int, Any]]) -> None:
        """Apply (api key, message) pairs in log order."""
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        replay = self._delta.replay
        for api_key, message in records:
            if BEGIN_TRANSACTION <= api_key <= ABORT_TRANSACTION:
                self._transaction(api_key, message)
            elif self._held is not None:
                self._held.append((api_key, message))
            else:
                replay(api_key, message)

    def apply_records(self, records: Iterable[MetadataRecord]) -> None:
        """Apply a command's records in order."""
        self.apply((record.message.API_KEY or 0, record.message) for record in records)

    def set_kraft_version(self, level: int) -> None:
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        self._delta.features.set_kraft_version(level)

    def publish(self, offset: int, epoch: int) -> MetadataImage:
        """A new image at this offset, without the records of an open transaction."""
        if self._delta is None:
            self.image = replace(self.image, offset=offset, epoch=epoch)
        else:
            self.image = self._delta.apply(offset, epoch)
            self._delta = None
        return self.image

    def _transaction(self, api_key: int, message: Any) -> None:
        assert self._delta is not None
        if api_key == BEGIN_TRANSACTION:
            if self._held is not None:
                raise ReplayError("a metadata transaction begins inside another")
            self._held = []
            return
        if self._held is None:
            raise ReplayError("a metadata transaction ends that never began")
        held, self._held = self._held, None
        if api_key == END_TRANSACTION:
            for each in held:
                self._delta.replay(*each)


def replayed(image: MetadataImage, records: Sequence[MetadataRecord]) -> Work[MetadataImage]:
    """The image after these records, for a command whose second step depends on its first."""
    if not records:
        return image
    delta = MetadataDelta(image)
    for number, record in enumerate(records, 1):
        assert record.message.API_KEY is not None
        delta.replay(record.message.API_KEY, record.message)
        if number % RECORDS_A_STEP == 0:
            yield TURN_COST
    return delta.apply(image.offset, image.epoch)
