"""The tables of the APIs that broker and controller listeners serve. ApiVersions, dispatch and the compatibility page
read them.

A row names the module that serves an API on that kind of listener. The module's HANDLER says how. Names and versions
are those of Kafka 4.4, from the table in wire/, which is generated from the message definitions. A module is imported
at the first request for its key, so that a start imports only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.api import access, named_rights
from kafkacompat.api.access import Need
from kafkacompat.api.named_rights import NamedRights
from kafkacompat.wire.apis import APIS, ApiKey, request_class
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from kafkacompat.api.handler import Handler


class Entry(NamedTuple):
    key: int
    name: str
    module: str
    """The module's name in kafkacompat.api."""
    min_version: int
    max_version: int
    advertised_min_version: int
    """The minimum in ApiVersions. Only Produce differs: librdkafka looks for version 0, but a request of version 0
    closes the connection."""
    passed: str | None
    """The function of pass_through that makes the handler. None if the module has a HANDLER."""
    needs: tuple[Need, ...]
    """Rights that the whole request needs if there is an authorizer."""
    named: tuple[NamedRights, ...]
    """Rights to the resources that the request's elements name. Elements are refused one by one."""


FORWARDED = ("pass_through", "forwarded")
"""From broker listeners to the active controller."""
TO_CONTROLLER = ("pass_through", "to_controller")
TO_QUORUM = ("pass_through", "to_quorum")


def _entry(
    key: ApiKey,
    module: str,
    passed: str | None = None,
    advertised_min_version: int | None = None,
    needs: tuple[Need, ...] = (),
    named: tuple[NamedRights, ...] = (),
) -> Entry:
    api = APIS[key]
    advertised = api.oldest if advertised_min_version is None else advertised_min_version
    return Entry(int(key), api.name, module, api.oldest, api.latest, advertised, passed, needs, named)


ENTRIES: tuple[Entry, ...] = (
    _entry(ApiKey.PRODUCE, "produce", advertised_min_version=0),
    _entry(ApiKey.FETCH, "fetch"),
    _entry(ApiKey.LIST_OFFSETS, "list_offsets", named=(named_rights.DESCRIBE_TOPICS,)),
    _entry(ApiKey.METADATA, "metadata"),
    _entry(
        ApiKey.OFFSET_COMMIT,
        "offset_commit",
        needs=(access.READ_GROUP,),
    ),
    _entry(ApiKey.OFFSET_FETCH, "offset_fetch"),
    _entry(ApiKey.FIND_COORDINATOR, "find_coordinator"),
    _entry(ApiKey.JOIN_GROUP, "join_group", needs=(access.READ_GROUP,)),
    _entry(ApiKey.HEARTBEAT, "heartbeat", needs=(access.READ_GROUP,)),
    _entry(ApiKey.LEAVE_GROUP, "leave_group", needs=(access.READ_GROUP,)),
    _entry(ApiKey.SYNC_GROUP, "sync_group", needs=(access.NAMED_PROTOCOL, access.READ_GROUP)),
    _entry(ApiKey.DESCRIBE_GROUPS, "describe_groups", named=(named_rights.DESCRIBE_GROUPS,)),
    _entry(ApiKey.LIST_GROUPS, "list_groups"),
    _entry(ApiKey.CONSUMER_GROUP_HEARTBEAT, "consumer_group_heartbeat", needs=(access.READ_GROUP,)),
    _entry(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        "consumer_group_describe",
        named=(named_rights.DESCRIBE_CONSUMER_GROUPS,),
    ),
    _entry(ApiKey.SHARE_FETCH, "share_fetch", needs=(access.READ_GROUP,)),
    _entry(ApiKey.SHARE_ACKNOWLEDGE, "share_acknowledge", needs=(access.READ_GROUP,)),
    _entry(ApiKey.SASL_HANDSHAKE, "sasl_handshake"),
    _entry(ApiKey.API_VERSIONS, "api_versions"),
    _entry(ApiKey.CREATE_TOPICS, "create_topics"),
    _entry(ApiKey.DELETE_TOPICS, "delete_topics"),
    _entry(ApiKey.DELETE_RECORDS, "delete_records"),
    _entry(ApiKey.INIT_PRODUCER_ID, "init_producer_id", needs=(access.PRODUCER_ID,)),
    _entry(ApiKey.OFFSET_FOR_LEADER_EPOCH, "offset_for_leader_epoch", named=(named_rights.DESCRIBE_EPOCHS,)),
    _entry(ApiKey.ADD_PARTITIONS_TO_TXN, "add_partitions_to_txn"),
    _entry(
        ApiKey.ADD_OFFSETS_TO_TXN,
        "add_offsets_to_txn",
        needs=(
            access.WRITE_TRANSACTION,
            access.READ_GROUP,
        ),
    ),
    _entry(ApiKey.END_TXN, "end_txn", needs=(access.WRITE_TRANSACTION,)),
    _entry(ApiKey.WRITE_TXN_MARKERS, "write_txn_markers", needs=(access.END_TRANSACTIONS,)),
    _entry(
        ApiKey.TXN_OFFSET_COMMIT,
        "txn_offset_commit",
        needs=(
            access.WRITE_TRANSACTION,
            access.READ_GROUP,
        ),
    ),
    _entry(ApiKey.DESCRIBE_ACLS, "describe_acls", needs=(access.KNOWN_CODES, access.DESCRIBE_CLUSTER)),
    _entry(ApiKey.CREATE_ACLS, "create_acls"),
    _entry(ApiKey.DELETE_ACLS, "delete_acls"),
    _entry(ApiKey.DESCRIBE_CONFIGS, "describe_configs", named=(named_rights.DESCRIBE_CONFIGS,)),
    _entry(ApiKey.ALTER_CONFIGS, "alter_configs", named=(named_rights.ALTER_CONFIGS_HERE,)),
    _entry(ApiKey.ALTER_REPLICA_LOG_DIRS, "alter_replica_log_dirs", needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.DESCRIBE_LOG_DIRS, "describe_log_dirs", needs=(access.DESCRIBE_CLUSTER,)),
    _entry(ApiKey.SASL_AUTHENTICATE, "sasl_authenticate"),
    _entry(ApiKey.CREATE_PARTITIONS, "create_partitions"),
    _entry(ApiKey.CREATE_DELEGATION_TOKEN, "create_delegation_token"),
    _entry(ApiKey.RENEW_DELEGATION_TOKEN, "renew_delegation_token"),
    _entry(ApiKey.EXPIRE_DELEGATION_TOKEN, "expire_delegation_token"),
    _entry(ApiKey.DESCRIBE_DELEGATION_TOKEN, "describe_delegation_token"),
    _entry(ApiKey.DELETE_GROUPS, "delete_groups", named=(named_rights.DELETE_GROUPS,)),
    _entry(ApiKey.ELECT_LEADERS, "elect_leaders"),
    _entry(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "incremental_alter_configs",
        named=(named_rights.INCREMENTALLY_ALTER_CONFIGS_HERE,),
    ),
    _entry(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "alter_partition_reassignments"),
    _entry(ApiKey.LIST_PARTITION_REASSIGNMENTS, "list_partition_reassignments"),
    _entry(ApiKey.OFFSET_DELETE, "offset_delete", needs=(access.DELETE_GROUP,)),
    _entry(ApiKey.DESCRIBE_CLIENT_QUOTAS, "describe_client_quotas", needs=(access.DESCRIBE_CLUSTER_CONFIGS,)),
    _entry(ApiKey.ALTER_CLIENT_QUOTAS, "alter_client_quotas"),
    _entry(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "describe_user_scram_credentials",
        needs=(access.DESCRIBE_CLUSTER,),
    ),
    _entry(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "alter_user_scram_credentials"),
    _entry(ApiKey.DESCRIBE_QUORUM, *FORWARDED),
    _entry(ApiKey.UPDATE_FEATURES, *FORWARDED),
    _entry(ApiKey.DESCRIBE_CLUSTER, "describe_cluster"),
    _entry(ApiKey.DESCRIBE_PRODUCERS, "describe_producers", named=(named_rights.READ_PRODUCERS,)),
    _entry(ApiKey.UNREGISTER_BROKER, *FORWARDED),
    _entry(ApiKey.UNREGISTER_CONTROLLER, *FORWARDED),
    _entry(
        ApiKey.DESCRIBE_TRANSACTIONS, "describe_transactions", named=(named_rights.DESCRIBE_TRANSACTIONS,)
    ),
    _entry(ApiKey.LIST_TRANSACTIONS, "list_transactions"),
    _entry(ApiKey.LIST_CONFIG_RESOURCES, "list_config_resources", needs=(access.DESCRIBE_CLUSTER_CONFIGS,)),
    _entry(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "describe_topic_partitions"),
    _entry(ApiKey.ADD_RAFT_VOTER, *FORWARDED),
    _entry(ApiKey.REMOVE_RAFT_VOTER, *FORWARDED),
    _entry(ApiKey.SHARE_GROUP_HEARTBEAT, "share_group_heartbeat", needs=(access.READ_GROUP,)),
    _entry(ApiKey.SHARE_GROUP_DESCRIBE, "share_group_describe", named=(named_rights.DESCRIBE_SHARE_GROUPS,)),
    _entry(ApiKey.STREAMS_GROUP_HEARTBEAT, "streams_group_heartbeat", needs=(access.READ_GROUP,)),
    _entry(
        ApiKey.STREAMS_GROUP_DESCRIBE, "streams_group_describe", named=(named_rights.DESCRIBE_STREAMS_GROUPS,)
    ),
    _entry(
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        "streams_group_topology_description_update",
        needs=(access.READ_GROUP,),
    ),
    _entry(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        "describe_share_group_offsets",
        named=(named_rights.DESCRIBE_SHARE_GROUP_OFFSETS,),
    ),
    _entry(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "alter_share_group_offsets", needs=(access.READ_GROUP,)),
    _entry(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "delete_share_group_offsets", needs=(access.DELETE_GROUP,)),
    _entry(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE, "initialize_share_group_state", needs=(access.CLUSTER_ACTION,)
    ),
    _entry(ApiKey.READ_SHARE_GROUP_STATE, "read_share_group_state", needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.WRITE_SHARE_GROUP_STATE, "write_share_group_state", needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.DELETE_SHARE_GROUP_STATE, "delete_share_group_state", needs=(access.CLUSTER_ACTION,)),
    _entry(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        "read_share_group_state_summary",
        needs=(access.CLUSTER_ACTION,),
    ),
)

CONTROLLER_ENTRIES: tuple[Entry, ...] = (
    _entry(ApiKey.FETCH, "quorum_fetch", needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.SASL_HANDSHAKE, "sasl_handshake"),
    _entry(ApiKey.API_VERSIONS, "controller_api_versions"),
    _entry(ApiKey.CREATE_TOPICS, "create_topics", named=(named_rights.CREATE_TOPICS,)),
    _entry(
        ApiKey.DELETE_TOPICS,
        "delete_topics",
        named=(
            named_rights.DELETE_TOPICS,
            named_rights.DELETE_TOPICS_BY_NAME,
        ),
    ),
    _entry(ApiKey.DESCRIBE_ACLS, "describe_acls", needs=(access.KNOWN_CODES, access.DESCRIBE_CLUSTER)),
    _entry(ApiKey.CREATE_ACLS, "create_acls", needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.DELETE_ACLS, "delete_acls", needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.DESCRIBE_CONFIGS, "describe_configs", named=(named_rights.DESCRIBE_CONFIGS,)),
    _entry(ApiKey.ALTER_CONFIGS, "alter_configs", named=(named_rights.ALTER_CONFIGS,)),
    _entry(ApiKey.SASL_AUTHENTICATE, "sasl_authenticate"),
    _entry(ApiKey.CREATE_PARTITIONS, "create_partitions", named=(named_rights.ALTER_TOPICS,)),
    _entry(ApiKey.CREATE_DELEGATION_TOKEN, "create_delegation_token"),
    _entry(ApiKey.RENEW_DELEGATION_TOKEN, "renew_delegation_token"),
    _entry(ApiKey.EXPIRE_DELEGATION_TOKEN, "expire_delegation_token"),
    _entry(ApiKey.ELECT_LEADERS, "elect_leaders", needs=(access.ALTER_CLUSTER,)),
    _entry(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "incremental_alter_configs",
        named=(named_rights.INCREMENTALLY_ALTER_CONFIGS,),
    ),
    _entry(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, "alter_partition_reassignments", needs=(access.ALTER_CLUSTER,)
    ),
    _entry(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, "list_partition_reassignments", needs=(access.DESCRIBE_CLUSTER,)
    ),
    _entry(ApiKey.ALTER_CLIENT_QUOTAS, "alter_client_quotas", needs=(access.ALTER_CLUSTER_CONFIGS,)),
    _entry(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "alter_user_scram_credentials", needs=(access.ALTER_CLUSTER,)
    ),
    _entry(ApiKey.VOTE, *TO_QUORUM, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.BEGIN_QUORUM_EPOCH, *TO_QUORUM, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.END_QUORUM_EPOCH, *TO_QUORUM, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.DESCRIBE_QUORUM, *TO_CONTROLLER, needs=(access.DESCRIBE_CLUSTER,)),
    _entry(ApiKey.ALTER_PARTITION, *TO_CONTROLLER, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.UPDATE_FEATURES, *TO_CONTROLLER, needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.ENVELOPE, "envelope", needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.FETCH_SNAPSHOT, *TO_QUORUM, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.DESCRIBE_CLUSTER, "describe_controllers", needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.BROKER_REGISTRATION, *TO_CONTROLLER, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.BROKER_HEARTBEAT, *TO_CONTROLLER, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.UNREGISTER_BROKER, *TO_CONTROLLER, needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.UNREGISTER_CONTROLLER, *TO_CONTROLLER, needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.ALLOCATE_PRODUCER_IDS, *TO_CONTROLLER, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.CONTROLLER_REGISTRATION, *TO_CONTROLLER, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.ASSIGN_REPLICAS_TO_DIRS, *TO_CONTROLLER, needs=(access.CLUSTER_ACTION,)),
    _entry(ApiKey.ADD_RAFT_VOTER, *TO_CONTROLLER, needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.REMOVE_RAFT_VOTER, *TO_CONTROLLER, needs=(access.ALTER_CLUSTER,)),
    _entry(ApiKey.UPDATE_RAFT_VOTER, *TO_QUORUM, needs=(access.CLUSTER_ACTION,)),
)


TELEMETRY_ENTRIES = (
    _entry(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "get_telemetry_subscriptions"),
    _entry(ApiKey.PUSH_TELEMETRY, "push_telemetry"),
)
"""Served and advertised by a broker that exports its clients' metrics, as in Kafka with a receiver plugin."""


class ApiTable:
    """The APIs that one kind of listener serves."""

    __slots__ = ("by_key", "entries")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.by_key = {entry.key: entry for entry in entries}

    def serves(self, key: int, version: int) -> bool:
        entry = self.by_key.get(key)
        return entry is not None and entry.min_version <= version <= entry.max_version

    def load(self, key: int) -> Handler:
        """Return the handler of a key, which must be in the table."""
        entry = self.by_key[key]
        module = import_module(f"kafkacompat.api.{entry.module}")
        handler: Handler = module.HANDLER if entry.passed is None else getattr(module, entry.passed)(key)
        return handler


BROKER_APIS = ApiTable(ENTRIES)
BROKER_APIS_WITH_TELEMETRY = ApiTable(tuple(sorted(ENTRIES + TELEMETRY_ENTRIES)))


@remembered
def broker_apis(has_telemetry: bool, has_unstable: bool) -> ApiTable:
    """The table of a broker. `has_telemetry`: it exports its clients' metrics. `has_unstable`: it serves the versions
    that Kafka has not released (unstable.api.versions.enable)."""
    table = BROKER_APIS_WITH_TELEMETRY if has_telemetry else BROKER_APIS
    if not has_unstable:
        return table
    return ApiTable(
        tuple(each._replace(max_version=request_class(each.key).MAX_VERSION) for each in table.entries)
    )


CONTROLLER_APIS = ApiTable(CONTROLLER_ENTRIES)
