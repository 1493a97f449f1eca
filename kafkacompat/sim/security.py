"""What a simulated cluster with an authorizer knows of security: the settings of its nodes, what clients may show of
themselves, and requests with the rights that they need.

All clients but the secured ones, and the nodes, are ANONYMOUS, which is a super user.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from kafkacompat.config.server import AUTHORIZER_CLASS_NAME
from kafkacompat.ids import Uuid
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafkacompat.security.authorizer import STANDARD_AUTHORIZER, SUPER_USERS
from kafkacompat.security.delegation_tokens import (
    EXPIRY_CHECK_INTERVAL_MS,
    EXPIRY_TIME_MS,
    MAX_LIFETIME_MS,
    SECRET_KEY,
)
from kafkacompat.security.scram import SCRAM_BY_NAME, SCRAM_SHA_256
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import ClusterOptions
from kafkacompat.sim.links import SECURED_PORT, host_name
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.describe_acls_request import DescribeAclsRequest
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

LISTENER = "SECURED"
PLAIN = "PLAIN"
STATIC_USER = "carol"
"""The user of PLAIN, which is in the settings."""
STATIC_PASSWORD = "carols"
SCRAM_USERS = ("alice", "bob")
"""Users that are created, changed and deleted."""
ITERATIONS = SCRAM_SHA_256.min_iterations


class Claim(NamedTuple):
    """What a client shows of itself."""

    mechanism: str
    user: str
    """For a token, its id."""
    password: str
    is_token: bool = False


class ShownToken(NamedTuple):
    token_id: str
    hmac: bytes


def listener_of(options: ClusterOptions, node_id: int) -> list[str]:
    return [f"{LISTENER}://{host_name(node_id)}:{SECURED_PORT}"] if options.secured_clients else []


def protocols(options: ClusterOptions) -> str:
    secured = f",{LISTENER}:SASL_PLAINTEXT" if options.secured_clients else ""
    return f"CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT{secured}"


def secured_properties(options: ClusterOptions) -> dict[str, str]:
    """The same on every node."""
    if not options.secured_clients:
        return {}
    prefix = f"listener.name.{LISTENER.lower()}"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        AUTHORIZER_CLASS_NAME: STANDARD_AUTHORIZER,
        SUPER_USERS: "User:ANONYMOUS",
        SECRET_KEY: "the secret of a simulated cluster",
        MAX_LIFETIME_MS: "6000",
        EXPIRY_TIME_MS: "3000",
        EXPIRY_CHECK_INTERVAL_MS: "700",
        f"{prefix}.sasl.enabled.mechanisms": ",".join((PLAIN, *SCRAM_BY_NAME)),
        f"{prefix}.plain.sasl.jaas.config": f'{plain} user_{STATIC_USER}="{STATIC_PASSWORD}";',
    }
    for name in SCRAM_BY_NAME:
        properties[f"{prefix}.{name.lower()}.sasl.jaas.config"] = scram
    return properties


@lru_cache(maxsize=4096)
def salted_password(mechanism: str, password: str, salt: bytes) -> bytes:
    """Computed once. The runs of a test use the same passwords and salts again."""
    return SCRAM_BY_NAME[mechanism].salted_password(password, salt, ITERATIONS)


NO_PARTITION = 99
"""The right is checked before the partition is looked up."""
TIMEOUT_MS = 1_000
TOPIC_KIND = 2
REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
NEITHER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    }
)
"""These codes do not tell whether the rights were checked."""


class Need(NamedTuple):
    operation: AclOperation
    kind: ResourceType
    name: str | Uuid
    """A topic's id, where the request has no name."""


class Kind(NamedTuple):
    """One type of request."""

    needs: Callable[[Any], tuple[Need, ...]]
    """One of these rights suffices."""
    code: Callable[[Any], int]
    is_forwarded: bool = False


def _topic(
    operation: AclOperation, name_of: Callable[[Any], str | Uuid]
) -> Callable[[Any], tuple[Need, ...]]:
    return lambda request: (Need(operation, ResourceType.TOPIC, name_of(request)),)


def _group(operation: AclOperation, name_of: Callable[[Any], str]) -> Callable[[Any], tuple[Need, ...]]:
    return lambda request: (Need(operation, ResourceType.GROUP, name_of(request)),)


def _cluster(operation: AclOperation) -> Callable[[Any], tuple[Need, ...]]:
    return lambda request: (Need(operation, ResourceType.CLUSTER, CLUSTER_NAME),)


def _to_create(request: CreateTopicsRequest) -> tuple[Need, ...]:
    return (
        Need(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
        Need(AclOperation.CREATE, ResourceType.TOPIC, request.topics[0].name),
    )


def _code_of_fetch(response: Any) -> int:
    """A later response of a session has only the topics with something new."""
    if response.error_code or not response.responses:
        return int(response.error_code)
    return int(response.responses[0].partitions[0].error_code)


KINDS: dict[type[Any], Kind] = {
    MetadataRequest: Kind(
        _topic(AclOperation.DESCRIBE, lambda request: str(request.topics[0].name)),
        lambda response: response.topics[0].error_code,
    ),
    ListOffsetsRequest: Kind(
        _topic(AclOperation.DESCRIBE, lambda request: str(request.topics[0].name)),
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    ProduceRequest: Kind(
        _topic(AclOperation.WRITE, lambda request: bytes(request.topic_data[0].topic_id)),
        lambda response: response.responses[0].partition_responses[0].error_code,
    ),
    FetchRequest: Kind(
        _topic(AclOperation.READ, lambda request: bytes(request.topics[0].topic_id)), _code_of_fetch
    ),
    DeleteRecordsRequest: Kind(
        _topic(AclOperation.DELETE, lambda request: str(request.topics[0].name)),
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    DescribeConfigsRequest: Kind(
        _topic(AclOperation.DESCRIBE_CONFIGS, lambda request: str(request.resources[0].resource_name)),
        lambda response: response.results[0].error_code,
    ),
    DescribeGroupsRequest: Kind(
        _group(AclOperation.DESCRIBE, lambda request: str(request.groups[0])),
        lambda response: response.groups[0].error_code,
    ),
    DeleteGroupsRequest: Kind(
        _group(AclOperation.DELETE, lambda request: str(request.groups_names[0])),
        lambda response: response.results[0].error_code,
    ),
    DescribeAclsRequest: Kind(_cluster(AclOperation.DESCRIBE), lambda response: response.error_code),
    CreateTopicsRequest: Kind(_to_create, lambda response: response.topics[0].error_code, True),
    CreatePartitionsRequest: Kind(
        _topic(AclOperation.ALTER, lambda request: str(request.topics[0].name)),
        lambda response: response.results[0].error_code,
        True,
    ),
    AlterClientQuotasRequest: Kind(
        _cluster(AclOperation.ALTER_CONFIGS), lambda response: response.entries[0].error_code, True
    ),
}


def any_request(chance: Chance, topic: str, topic_id: Uuid, group: str) -> Any:
    """Return a request for the topic or the group, or one for the cluster."""
    kinds = list(KINDS)
    kind = kinds[chance.randrange(len(kinds))]
    if kind is MetadataRequest:
        asked = MetadataRequestTopic(topic_id=bytes(16), name=topic)
        return MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    if kind is ListOffsetsRequest:
        latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
        return ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[latest])], timeout_ms=TIMEOUT_MS
        )
    if kind is ProduceRequest:
        data = [PartitionProduceData(index=NO_PARTITION, records=b"")]
        topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)
        return ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic_data])
    if kind is FetchRequest:
        return fetch_request_for(topic, topic_id, 0, 0)
    if kind is DeleteRecordsRequest:
        one = DeleteRecordsPartition(partition_index=NO_PARTITION, offset=0)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[one])], timeout_ms=TIMEOUT_MS
        )
    if kind is DescribeConfigsRequest:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_KIND, resource_name=topic, configuration_keys=["segment.ms"]
        )
        return DescribeConfigsRequest(resources=[resource])
    if kind is DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=[group])
    if kind is DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=[group])
    if kind is DescribeAclsRequest:
        return DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    if kind is CreateTopicsRequest:
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        return CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=True)
    if kind is CreatePartitionsRequest:
        more = CreatePartitionsTopic(name=topic, count=1, assignments=None)
        return CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS, validate_only=True)
    entity = EntityData(entity_type="user", entity_name="nobody")
    entry = EntryData(entity=[entity], ops=[OpData(key="request_percentage", value=50.0)])
    return AlterClientQuotasRequest(entries=[entry], validate_only=True)


def fetch_request_for(topic: str, topic_id: Uuid, session_id: int, session_epoch: int) -> FetchRequest:
    """Epoch 0 begins a session."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=10_000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
    )
