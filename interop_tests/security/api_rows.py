"""A request for every API of brokers and controllers, and the error codes with which two clients are answered.

`known` is a client that has authenticated and has no rights; `privileged` is a super user. A row without codes gets no error. The
topic, the group and the transactional id that requests name exist. Requests to the quorum name another cluster, so that they change
nothing where they are let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from interop_tests.harness.records import BatchPlan
from kafkacompat.security.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafkacompat.wire.apis import ApiKey, request_class
from kafkacompat.wire.codec import specification
from kafkacompat.wire.definition import StructSpec
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.message import Message, Struct

TOPIC, GROUP, TRANSACTION, USER = "hidden-topic", "hidden-group", "hidden-transaction", "hidden-user"
ABSENT_NODE = 99
OTHER_CLUSTER = "b3RoZXItY2x1c3Rlci1pZA"
METADATA_TOPIC = "__cluster_metadata"
TOPIC_ID = "topic id"
"""Stands for the id of TOPIC."""
TOPIC_RIGHT = E.TOPIC_AUTHORIZATION_FAILED
GROUP_RIGHT = E.GROUP_AUTHORIZATION_FAILED
CLUSTER_RIGHT = E.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_RIGHT = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NONE = E.NONE
RIGHTS = {TOPIC_RIGHT, GROUP_RIGHT, CLUSTER_RIGHT, TRANSACTION_RIGHT, E.DELEGATION_TOKEN_AUTHORIZATION_FAILED}
BINDING = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": TOPIC,
    "resource_pattern_type": PatternType.LITERAL,
    "principal": f"User:{USER}",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermissionType.ALLOW,
}
FILTER = {
    "resource_type_filter": ResourceType.TOPIC,
    "resource_name_filter": TOPIC,
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermissionType.ANY,
}
RESOURCE = {"resource_type": 2, "resource_name": TOPIC}
ENTRY = {"name": "retention.ms", "value": "100000000", "config_operation": 0}
BROKER = {"broker_id": ABSENT_NODE, "broker_epoch": 1}
MEMBER = {"group_id": GROUP, "member_id": "nobody"}
PRODUCER = {"transactional_id": TRANSACTION, "producer_id": 77, "producer_epoch": 0}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": USER}],
    "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
}
DISABLED = E.DELEGATION_TOKEN_AUTH_DISABLED
"""The node of the rows has no secret key for delegation tokens, which goes before rights."""
QUORUM_TOPIC = {"topic_name": METADATA_TOPIC, "partitions": [{}]}


@dataclass(frozen=True)
class Row:
    """`shows`: a name in the answer to the privileged client that is not in the one to the known client."""

    known: E
    privileged: E
    fields: Mapping[str, Any]
    shows: str = ""


def row(known: E, privileged: E = NONE, shows: str = "", **fields: Any) -> Row:
    return Row(known, privileged, fields, shows)


BROKER_ROWS: dict[ApiKey, Row] = {
    ApiKey.PRODUCE: row(
        TOPIC_RIGHT,
        acks=1,
        timeout_ms=1000,
        topic_data=[
            {"topic_id": TOPIC_ID, "partition_data": [{"index": 0, "records": BatchPlan().encode()}]}
        ],
    ),
    ApiKey.FETCH: row(
        TOPIC_RIGHT,
        session_epoch=-1,
        max_bytes=1000,
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
    ),
    ApiKey.LIST_OFFSETS: row(
        TOPIC_RIGHT,
        replica_id=-1,
        topics=[{"name": TOPIC, "partitions": [{"current_leader_epoch": -1, "timestamp": -1}]}],
    ),
    ApiKey.METADATA: row(NONE, topics=None, allow_auto_topic_creation=False, shows=TOPIC),
    ApiKey.OFFSET_COMMIT: row(
        GROUP_RIGHT,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"committed_offset": 0}]}],
    ),
    ApiKey.OFFSET_FETCH: row(
        GROUP_RIGHT,
        groups=[{"group_id": GROUP, "topics": [{"topic_id": TOPIC_ID, "partition_indexes": [0]}]}],
    ),
    ApiKey.FIND_COORDINATOR: row(GROUP_RIGHT, key_type=0, coordinator_keys=[GROUP]),
    ApiKey.JOIN_GROUP: row(
        GROUP_RIGHT,
        E.MEMBER_ID_REQUIRED,
        group_id="another",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range"}],
    ),
    ApiKey.HEARTBEAT: row(GROUP_RIGHT, E.UNKNOWN_MEMBER_ID, **MEMBER),
    ApiKey.LEAVE_GROUP: row(
        GROUP_RIGHT, E.UNKNOWN_MEMBER_ID, group_id=GROUP, members=[{"member_id": "nobody"}]
    ),
    ApiKey.SYNC_GROUP: row(
        GROUP_RIGHT, E.UNKNOWN_MEMBER_ID, **MEMBER, protocol_type="consumer", protocol_name="range"
    ),
    ApiKey.DESCRIBE_GROUPS: row(GROUP_RIGHT, groups=[GROUP]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: row(
        GROUP_RIGHT,
        E.GROUP_ID_NOT_FOUND,
        group_id=GROUP,
        member_id="nobody",
        member_epoch=1,
        subscribed_topic_names=[TOPIC],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: row(GROUP_RIGHT, E.GROUP_ID_NOT_FOUND, group_ids=[GROUP]),
    ApiKey.SHARE_GROUP_HEARTBEAT: row(
        GROUP_RIGHT,
        E.GROUP_ID_NOT_FOUND,
        group_id=GROUP,
        member_id="nobody",
        member_epoch=1,
        subscribed_topic_names=[TOPIC],
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: row(
        GROUP_RIGHT, E.GROUP_ID_NOT_FOUND, group_id=GROUP, member_id="nobody", member_epoch=1
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: row(GROUP_RIGHT, E.GROUP_ID_NOT_FOUND, group_ids=[GROUP]),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: row(
        GROUP_RIGHT, E.UNSUPPORTED_VERSION, group_id=GROUP, member_id="nobody"
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: row(GROUP_RIGHT, E.GROUP_ID_NOT_FOUND, group_ids=[GROUP]),
    ApiKey.SHARE_FETCH: row(
        GROUP_RIGHT, group_id=GROUP, member_id="nobody", share_session_epoch=0, max_wait_ms=0, max_bytes=1000
    ),
    ApiKey.SHARE_ACKNOWLEDGE: row(
        GROUP_RIGHT, E.SHARE_SESSION_NOT_FOUND, group_id=GROUP, member_id="nobody", share_session_epoch=5
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: row(GROUP_RIGHT, groups=[{"group_id": GROUP, "topics": None}]),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: row(
        GROUP_RIGHT,
        E.GROUP_ID_NOT_FOUND,
        group_id=GROUP,
        topics=[{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: row(
        GROUP_RIGHT, E.GROUP_ID_NOT_FOUND, group_id=GROUP, topics=[{"topic_name": TOPIC}]
    ),
    ApiKey.LIST_GROUPS: row(NONE, shows=GROUP),
    ApiKey.SASL_HANDSHAKE: row(E.ILLEGAL_SASL_STATE, E.ILLEGAL_SASL_STATE, mechanism="PLAIN"),
    ApiKey.API_VERSIONS: row(NONE, client_software_name="rows", client_software_version="1"),
    ApiKey.CREATE_TOPICS: row(
        TOPIC_RIGHT,
        topics=[{"name": "made", "num_partitions": 1, "replication_factor": 1}],
        timeout_ms=10_000,
    ),
    ApiKey.DELETE_RECORDS: row(
        TOPIC_RIGHT, topics=[{"name": TOPIC, "partitions": [{"offset": 0}]}], timeout_ms=10_000
    ),
    ApiKey.INIT_PRODUCER_ID: row(
        TRANSACTION_RIGHT,
        transactional_id=TRANSACTION,
        transaction_timeout_ms=10_000,
        producer_id=-1,
        producer_epoch=-1,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: row(
        TOPIC_RIGHT, replica_id=-1, topics=[{"topic": TOPIC, "partitions": [{"current_leader_epoch": -1}]}]
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: row(
        CLUSTER_RIGHT,
        E.INVALID_PRODUCER_ID_MAPPING,
        transactions=[PRODUCER | {"topics": [{"name": TOPIC, "partitions": [0]}]}],
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: row(
        TRANSACTION_RIGHT, E.INVALID_PRODUCER_ID_MAPPING, **PRODUCER, group_id=GROUP
    ),
    ApiKey.END_TXN: row(TRANSACTION_RIGHT, E.INVALID_PRODUCER_ID_MAPPING, **PRODUCER, committed=True),
    ApiKey.WRITE_TXN_MARKERS: row(
        CLUSTER_RIGHT,
        markers=[
            {
                "producer_id": 78,
                "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                "transaction_result": False,
            }
        ],
    ),
    ApiKey.TXN_OFFSET_COMMIT: row(
        TRANSACTION_RIGHT,
        E.INVALID_PRODUCER_ID_MAPPING,
        **PRODUCER,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"committed_offset": 0}]}],
    ),
    ApiKey.DESCRIBE_ACLS: row(CLUSTER_RIGHT, **FILTER),
    ApiKey.CREATE_ACLS: row(CLUSTER_RIGHT, creations=[BINDING]),
    ApiKey.DELETE_ACLS: row(CLUSTER_RIGHT, filters=[FILTER]),
    ApiKey.DESCRIBE_CONFIGS: row(TOPIC_RIGHT, resources=[RESOURCE | {"configuration_keys": None}]),
    ApiKey.ALTER_CONFIGS: row(TOPIC_RIGHT, resources=[RESOURCE | {"configs": [ENTRY]}]),
    ApiKey.ALTER_REPLICA_LOG_DIRS: row(
        CLUSTER_RIGHT,
        E.LOG_DIR_NOT_FOUND,
        dirs=[{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}],
    ),
    ApiKey.DESCRIBE_LOG_DIRS: row(CLUSTER_RIGHT, topics=None, shows=TOPIC),
    ApiKey.SASL_AUTHENTICATE: row(E.ILLEGAL_SASL_STATE, E.ILLEGAL_SASL_STATE, auth_bytes=b"\0rows\0rows"),
    ApiKey.CREATE_PARTITIONS: row(
        TOPIC_RIGHT,
        topics=[{"name": TOPIC, "count": 2, "assignments": None}],
        timeout_ms=10_000,
        validate_only=True,
    ),
    ApiKey.ELECT_LEADERS: row(
        CLUSTER_RIGHT,
        E.ELECTION_NOT_NEEDED,
        topic_partitions=[{"topic": TOPIC, "partitions": [0]}],
        timeout_ms=10_000,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: row(TOPIC_RIGHT, resources=[RESOURCE | {"configs": [ENTRY]}]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: row(
        CLUSTER_RIGHT,
        timeout_ms=10_000,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: row(CLUSTER_RIGHT, timeout_ms=10_000, topics=None),
    ApiKey.OFFSET_DELETE: row(
        GROUP_RIGHT, group_id=GROUP, topics=[{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: row(CLUSTER_RIGHT, components=[]),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: row(CLUSTER_RIGHT, users=[], shows=USER),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: row(
        CLUSTER_RIGHT, E.RESOURCE_NOT_FOUND, deletions=[{"name": "nobody", "mechanism": 1}]
    ),
    ApiKey.DESCRIBE_QUORUM: row(CLUSTER_RIGHT, topics=[QUORUM_TOPIC]),
    ApiKey.UPDATE_FEATURES: row(
        CLUSTER_RIGHT,
        timeout_ms=10_000,
        feature_updates=[{"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}],
        validate_only=True,
    ),
    ApiKey.DESCRIBE_CLUSTER: row(NONE, endpoint_type=1),
    ApiKey.DESCRIBE_PRODUCERS: row(TOPIC_RIGHT, topics=[{"name": TOPIC, "partition_indexes": [0]}]),
    ApiKey.UNREGISTER_BROKER: row(CLUSTER_RIGHT, E.BROKER_ID_NOT_REGISTERED, broker_id=ABSENT_NODE),
    ApiKey.UNREGISTER_CONTROLLER: row(
        CLUSTER_RIGHT, E.CONTROLLER_ID_NOT_REGISTERED, controller_id=ABSENT_NODE
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: row(TRANSACTION_RIGHT, transactional_ids=[TRANSACTION]),
    ApiKey.LIST_TRANSACTIONS: row(NONE, shows=TRANSACTION),
    ApiKey.LIST_CONFIG_RESOURCES: row(CLUSTER_RIGHT, shows=TOPIC),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: row(
        TOPIC_RIGHT, topics=[{"name": TOPIC}], cursor=None, response_partition_limit=10
    ),
    ApiKey.ADD_RAFT_VOTER: row(
        CLUSTER_RIGHT,
        E.INCONSISTENT_CLUSTER_ID,
        cluster_id=OTHER_CLUSTER,
        voter_id=ABSENT_NODE,
        voter_directory_id=b"d" * 16,
        listeners=[{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}],
    ),
    ApiKey.REMOVE_RAFT_VOTER: row(
        CLUSTER_RIGHT,
        E.INCONSISTENT_CLUSTER_ID,
        cluster_id=OTHER_CLUSTER,
        voter_id=ABSENT_NODE,
        voter_directory_id=b"d" * 16,
    ),
    **{
        key: row(
            CLUSTER_RIGHT,
            E.NOT_COORDINATOR,
            group_id=GROUP,
            topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}],
        )
        for key in (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        )
    },
    ApiKey.ALTER_CLIENT_QUOTAS: row(CLUSTER_RIGHT, entries=[QUOTA]),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: row(NONE),
    ApiKey.PUSH_TELEMETRY: row(E.INVALID_REQUEST, E.INVALID_REQUEST, metrics=b"metrics"),
    ApiKey.CREATE_DELEGATION_TOKEN: row(DISABLED, DISABLED, max_lifetime_ms=-1),
    ApiKey.RENEW_DELEGATION_TOKEN: row(DISABLED, DISABLED, hmac=b"h" * 32),
    ApiKey.EXPIRE_DELEGATION_TOKEN: row(DISABLED, DISABLED, hmac=b"h" * 32),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: row(DISABLED, DISABLED, owners=[]),
    # Last, because the rows above need the group and the topic.
    ApiKey.DELETE_GROUPS: row(GROUP_RIGHT, groups_names=[GROUP]),
    ApiKey.DELETE_TOPICS: row(TOPIC_RIGHT, topics=[{"name": TOPIC}], timeout_ms=10_000),
}
CONTROLLER_ROWS: dict[ApiKey, Row] = {
    key: BROKER_ROWS[key]
    for key in (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    )
} | {
    ApiKey.FETCH: row(
        CLUSTER_RIGHT,
        E.INCONSISTENT_CLUSTER_ID,
        cluster_id=OTHER_CLUSTER,
        session_epoch=-1,
        topics=[{"topic_id": bytes(15) + b"\1", "partitions": [{"partition": 0}]}],
    ),
    ApiKey.DESCRIBE_CONFIGS: row(
        CLUSTER_RIGHT, resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    ),
    ApiKey.VOTE: row(
        CLUSTER_RIGHT, E.INCONSISTENT_CLUSTER_ID, cluster_id=OTHER_CLUSTER, topics=[QUORUM_TOPIC]
    ),
    ApiKey.BEGIN_QUORUM_EPOCH: row(
        CLUSTER_RIGHT, E.INCONSISTENT_CLUSTER_ID, cluster_id=OTHER_CLUSTER, topics=[QUORUM_TOPIC]
    ),
    ApiKey.END_QUORUM_EPOCH: row(
        CLUSTER_RIGHT, E.INCONSISTENT_CLUSTER_ID, cluster_id=OTHER_CLUSTER, topics=[QUORUM_TOPIC]
    ),
    ApiKey.ALTER_PARTITION: row(
        CLUSTER_RIGHT, E.STALE_BROKER_EPOCH, **BROKER, topics=[{"topic_id": TOPIC_ID}]
    ),
    ApiKey.ENVELOPE: row(CLUSTER_RIGHT, E.PRINCIPAL_DESERIALIZATION_FAILURE),
    ApiKey.FETCH_SNAPSHOT: row(
        CLUSTER_RIGHT,
        E.INCONSISTENT_CLUSTER_ID,
        cluster_id=OTHER_CLUSTER,
        topics=[{"name": METADATA_TOPIC, "partitions": [{}]}],
    ),
    ApiKey.DESCRIBE_CLUSTER: row(CLUSTER_RIGHT, endpoint_type=2),
    ApiKey.BROKER_REGISTRATION: row(
        CLUSTER_RIGHT, E.INCONSISTENT_CLUSTER_ID, broker_id=ABSENT_NODE, cluster_id=OTHER_CLUSTER
    ),
    ApiKey.BROKER_HEARTBEAT: row(CLUSTER_RIGHT, E.STALE_BROKER_EPOCH, **BROKER),
    ApiKey.ALLOCATE_PRODUCER_IDS: row(CLUSTER_RIGHT, E.STALE_BROKER_EPOCH, **BROKER),
    ApiKey.CONTROLLER_REGISTRATION: row(CLUSTER_RIGHT, controller_id=ABSENT_NODE),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: row(CLUSTER_RIGHT, E.STALE_BROKER_EPOCH, **BROKER),
    ApiKey.UPDATE_RAFT_VOTER: row(
        CLUSTER_RIGHT, E.INCONSISTENT_CLUSTER_ID, cluster_id=OTHER_CLUSTER, voter_id=ABSENT_NODE
    ),
    ApiKey.DELETE_TOPICS: BROKER_ROWS[ApiKey.DELETE_TOPICS],
}

WITHOUT_RIGHTS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
"""What everybody may ask who has authenticated, and is answered in full. Clients send their own metrics under any rights."""

APACHE_ANSWERS = {ApiKey.TXN_OFFSET_COMMIT: E.INVALID_TXN_STATE}
"""What the privileged client gets from Apache Kafka instead: the broker asks itself as the transaction coordinator, through the
listener of the brokers. There it is ANONYMOUS in this test, has no right to ask, and answers for that with INVALID_TXN_STATE."""


def request_of(key: int, asked: Row, topic_id: bytes) -> Message:
    """With the fields of the row; fields that it does not name keep their defaults."""
    kind = request_class(key)
    spec = specification(kind)
    assert spec is not None
    made = _made(spec.root, import_module(kind.__module__), asked.fields, topic_id)
    assert isinstance(made, Message)
    return made


def _made(spec: StructSpec, module: Any, values: Mapping[str, Any], topic_id: bytes) -> Struct:
    given: dict[str, Any] = {}
    for each in spec.fields:
        value = values.get(each.name)
        if each.name not in values:
            continue
        if each.struct is not None and isinstance(value, list):
            value = [_made(each.struct, module, element, topic_id) for element in value]
        elif each.struct is not None and value is not None:
            value = _made(each.struct, module, value, topic_id)
        given[each.name] = topic_id if value == TOPIC_ID else value
    made: Struct = getattr(module, spec.name)(**given)
    return made


def codes_in(answer: Any) -> Iterator[E]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        for element in answer:
            yield from codes_in(element)
    elif isinstance(answer, Struct):
        for name in answer.__slots__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                yield E(value)
            else:
                yield from codes_in(value)
