"""Committed metadata records -> a new image: the only place where cluster metadata changes. Pure.

A delta copies each map once, when a record first changes it. So a batch of a thousand records costs a thousand small
steps and one copy per map. Merge rules are those of Kafka's MetadataDelta and its parts. A record or level unknown to
4.3 is fatal, because an image that skips one would be wrong forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.cluster_delta import ClusterDelta
from kafkacompat.controller.configurations_delta import ConfigurationsDelta
from kafkacompat.controller.features_delta import FeaturesDelta
from kafkacompat.controller.image import (
    CLIENT_QUOTAS,
    CONTROLLERS,
    DELEGATION_TOKENS,
    SCRAM_CREDENTIALS,
    KeyChanges,
    MetadataImage,
)
from kafkacompat.controller.records import ReplayError
from kafkacompat.controller.topics_delta import TopicsDelta
from kafkacompat.security.acl import Acl

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.access_control_entry_record import AccessControlEntryRecord
    from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord
    from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
    from kafkacompat.wire.messages.producer_ids_record import ProducerIdsRecord
    from kafkacompat.wire.messages.register_controller_record import RegisterControllerRecord
    from kafkacompat.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from kafkacompat.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
    from kafkacompat.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord


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
}
