"""Committed metadata records -> a new image: the one place where cluster metadata changes.

A builder copies each touched map once per build, so a batch of a thousand records costs a thousand small steps and one copy
a map. Knows no log, no time and no reader. Merge rules are Kafka's (facts of TopicDelta, ClusterDelta and their kin in 4.3);
a record or level that 4.3 does not know is fatal, because an image that skips one is wrong for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.features import KRAFT_VERSION, SUPPORTED_FEATURES
from kafkacompat.controller.image import CONTROLLERS as CONTROLLERS
from kafkacompat.controller.image import (
    BrokerEndpoint,
    BrokerImage,
    ConfigResourceType,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kafkacompat.controller.merge import merge_partition_change
from kafkacompat.ids import DIRECTORY_MIGRATING, Uuid
from kafkacompat.security.acl import Acl

if TYPE_CHECKING:
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
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

CLIENT_QUOTAS = "client_quotas"
SCRAM_CREDENTIALS = "scram_credentials"
DELEGATION_TOKENS = "delegation_tokens"
"""Kinds of `image.opaque`: kept and written to snapshots, not served yet."""


class ReplayError(Exception):
    """The metadata log says something that cannot follow from what it said before, or that 4.3 does not know. Fatal."""


class ImageBuilder:
    """Records onto an image. `apply` in log order, then `build` once."""

    __slots__ = (
        "_acls",
        "_base",
        "_brokers",
        "_config_edits",
        "_configs",
        "_features",
        "_next_producer_id",
        "_opaque",
        "_partition_edits",
        "_topics",
        "_topics_by_id",
    )

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._features: dict[str, int] | None = None
        self._brokers: dict[int, BrokerImage] | None = None
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[Uuid, TopicImage] = {}
        self._partition_edits: dict[Uuid, dict[int, PartitionImage]] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] | None = None
        self._config_edits: dict[tuple[int, str], dict[str, str]] = {}
        self._next_producer_id = base.next_producer_id
        self._acls: dict[Uuid, Acl] | None = None
        self._opaque: dict[str, dict[object, object]] = {}

    def apply(self, api_key: int, message: Any) -> None:
        """ReplayError when the record does not fit."""
        handler = _HANDLERS.get(api_key)
        if handler is None:
            raise ReplayError(f"metadata record type {api_key} is unknown to this software")
        handler(self, message)

    def build(self, offset: int, epoch: int) -> MetadataImage:
        """The image after everything applied; the builder is spent."""
        base = self._base
        topics: Mapping[str, TopicImage] = base.topics
        topics_by_id: Mapping[Uuid, TopicImage] = base.topics_by_id
        if self._topics is not None:
            for topic_id, partitions in self._partition_edits.items():
                old = self._topics_by_id[topic_id]
                topic = TopicImage(old.name, topic_id, partitions)
                self._topics[old.name] = topic
                self._topics_by_id[topic_id] = topic
            topics, topics_by_id = self._topics, self._topics_by_id
        configs: Mapping[tuple[int, str], Mapping[str, str]] = base.configs
        if self._configs is not None:
            for key, values in self._config_edits.items():
                if values:
                    self._configs[key] = values
                else:
                    self._configs.pop(key, None)
            configs = self._configs
        opaque = base.opaque
        if self._opaque:
            opaque = {kind: values for kind, values in {**base.opaque, **self._opaque}.items() if values}
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            features=base.features if self._features is None else self._features,
            brokers=base.brokers if self._brokers is None else self._brokers,
            topics=topics,
            topics_by_id=topics_by_id,
            configs=configs,
            next_producer_id=self._next_producer_id,
            acls=base.acls if self._acls is None else self._acls,
            opaque=opaque,
        )

    # Touching: the first write of a build copies the map.

    def _editable_topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._base.topics)
            self._topics_by_id = dict(self._base.topics_by_id)
        return self._topics

    def _editable_partitions(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        partitions = self._partition_edits.get(topic_id)
        if partitions is None:
            self._editable_topics()
            topic = self._topics_by_id.get(topic_id)
            if topic is None:
                raise ReplayError(f"a record names topic id {topic_id.hex()}, which does not exist")
            partitions = self._partition_edits[topic_id] = dict(topic.partitions)
        return partitions

    def _editable_brokers(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._base.brokers)
        return self._brokers

    def _editable_config(self, key: tuple[int, str]) -> dict[str, str]:
        if self._configs is None:
            self._configs = dict(self._base.configs)
        values = self._config_edits.get(key)
        if values is None:
            values = self._config_edits[key] = dict(self._configs.get(key, {}))
        return values

    def _editable_acls(self) -> dict[Uuid, Acl]:
        if self._acls is None:
            self._acls = dict(self._base.acls)
        return self._acls

    def _editable_opaque(self, kind: str) -> dict[object, object]:
        values = self._opaque.get(kind)
        if values is None:
            values = self._opaque[kind] = dict(self._base.opaque.get(kind, {}))
        return values

    # One method a record type.

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        if record.is_migrating_zk_broker:
            raise ReplayError(
                f"broker {record.broker_id} is registered as migrating from ZooKeeper, which 4.3 has not"
            )
        cordoned = record.cordoned_log_dirs
        self._editable_brokers()[record.broker_id] = BrokerImage(
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

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._current_broker(record.broker_id, record.broker_epoch)
        del self._editable_brokers()[record.broker_id]

    def _current_broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._editable_brokers().get(broker_id)
        if broker is None:
            raise ReplayError(f"a record changes broker {broker_id}, which is not registered")
        if broker.epoch != broker_epoch:
            raise ReplayError(
                f"a record changes broker {broker_id} in epoch {broker_epoch}, but it is registered in {broker.epoch}"
            )
        return broker

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self._editable_brokers()[record.id] = replace(
            self._current_broker(record.id, record.epoch), fenced=True
        )

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._editable_brokers()[record.id] = replace(
            self._current_broker(record.id, record.epoch), fenced=False
        )

    def _change_registration(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._current_broker(record.broker_id, record.broker_epoch)
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise ReplayError(
                f"a BrokerRegistrationChangeRecord of broker {broker.id} has a value out of range"
            )
        self._editable_brokers()[broker.id] = replace(
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

    def _topic(self, record: TopicRecord) -> None:
        topics = self._editable_topics()
        if record.name in topics or record.topic_id in self._topics_by_id:
            raise ReplayError(f"a TopicRecord creates {record.name!r} a second time")
        topic = TopicImage(record.name, record.topic_id, {})
        topics[record.name] = topic
        self._topics_by_id[record.topic_id] = topic

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topics = self._editable_topics()
        topic = self._topics_by_id.pop(record.topic_id, None)
        if topic is None:
            raise ReplayError(
                f"a RemoveTopicRecord names topic id {record.topic_id.hex()}, which does not exist"
            )
        del topics[topic.name]
        self._partition_edits.pop(record.topic_id, None)
        key = (int(ConfigResourceType.TOPIC), topic.name)
        if key in self._config_edits or key in (
            self._base.configs if self._configs is None else self._configs
        ):
            self._editable_config(key).clear()

    def _partition(self, record: PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        self._editable_partitions(record.topic_id)[record.partition_id] = PartitionImage(
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

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._editable_partitions(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise ReplayError(
                f"a PartitionChangeRecord names partition {record.partition_id} of topic id "
                f"{record.topic_id.hex()}, which does not exist"
            )
        partitions[record.partition_id] = merge_partition_change(old, record)

    def _config(self, record: ConfigRecord) -> None:
        values = self._editable_config((record.resource_type, record.resource_name))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        lowest, highest = SUPPORTED_FEATURES.get(record.name, (0, 0))
        if record.feature_level != 0 and not lowest <= record.feature_level <= highest:
            raise ReplayError(
                f"the metadata log finalizes {record.name} at level {record.feature_level}, "
                f"but this software supports {lowest} to {highest}"
            )
        if self._features is None:
            self._features = dict(self._base.features)
        if record.feature_level == 0:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level

    def set_kraft_version(self, level: int) -> None:
        """From the KRaftVersion control record; level 0 is shown as absent."""
        if self._features is None:
            self._features = dict(self._base.features)
        if level == 0:
            self._features.pop(KRAFT_VERSION, None)
        else:
            self._features[KRAFT_VERSION] = level

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _clear_elr(self, record: ClearElrRecord) -> None:
        topics = self._editable_topics()
        names = [record.topic_name] if record.topic_name else list(topics)
        for name in names:
            topic = topics.get(name)
            if topic is None:
                raise ReplayError(f"a ClearElrRecord names topic {name!r}, which does not exist")
            current = self._partition_edits.get(topic.id, topic.partitions)
            if any(each.eligible_leader_replicas or each.last_known_elr for each in current.values()):
                partitions = self._editable_partitions(topic.id)
                for index, each in partitions.items():
                    if each.eligible_leader_replicas or each.last_known_elr:
                        partitions[index] = replace(
                            each,
                            eligible_leader_replicas=(),
                            last_known_elr=(),
                            partition_epoch=each.partition_epoch + 1,
                        )

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self._editable_opaque(CONTROLLERS)[record.controller_id] = record

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted(((each.entity_type, each.entity_name) for each in record.entity), key=repr))
        quotas = self._editable_opaque(CLIENT_QUOTAS)
        if record.remove:
            quotas.pop((entity, record.key), None)
        else:
            quotas[(entity, record.key)] = record

    def _access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self._editable_acls()[record.id] = Acl.of_record(record)

    def _remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._editable_acls().pop(record.id, None) is None:
            raise ReplayError(
                f"a RemoveAccessControlEntryRecord names entry {record.id.hex()}, which does not exist"
            )

    def _scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._editable_opaque(SCRAM_CREDENTIALS)[(record.name, record.mechanism)] = record

    def _remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self._editable_opaque(SCRAM_CREDENTIALS).pop((record.name, record.mechanism), None)

    def _delegation_token(self, record: DelegationTokenRecord) -> None:
        self._editable_opaque(DELEGATION_TOKENS)[record.token_id] = record

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._editable_opaque(DELEGATION_TOKENS).pop(record.token_id, None)

    def _nothing(self, record: object) -> None:
        """NoOp and the ZooKeeper migration state, which the 4.x image ignores: only the offset moves on."""


_HANDLERS: dict[int, Callable[[ImageBuilder, Any], None]] = {
    0: ImageBuilder._register_broker,
    1: ImageBuilder._unregister_broker,
    2: ImageBuilder._topic,
    3: ImageBuilder._partition,
    4: ImageBuilder._config,
    5: ImageBuilder._partition_change,
    7: ImageBuilder._fence_broker,
    8: ImageBuilder._unfence_broker,
    9: ImageBuilder._remove_topic,
    10: ImageBuilder._delegation_token,
    11: ImageBuilder._scram_credential,
    12: ImageBuilder._feature_level,
    14: ImageBuilder._client_quota,
    15: ImageBuilder._producer_ids,
    17: ImageBuilder._change_registration,
    18: ImageBuilder._access_control_entry,
    19: ImageBuilder._remove_access_control_entry,
    20: ImageBuilder._nothing,
    21: ImageBuilder._nothing,
    22: ImageBuilder._remove_scram_credential,
    26: ImageBuilder._remove_delegation_token,
    27: ImageBuilder._register_controller,
    28: ImageBuilder._clear_elr,
}
