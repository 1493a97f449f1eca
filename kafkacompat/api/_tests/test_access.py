"""Rights that a whole request needs: which senders reach the handler, and which refusal the others get."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.api._tests.kit import value_of
from kafkacompat.api.access import Access, RightToTopics, access_of
from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS, ApiTable, Entry, broker_apis
from kafkacompat.api.request_context import NO_CONNECTION, RequestContext
from kafkacompat.api.serve import Route, serve
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import Principal
from kafkacompat.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafkacompat.security.authorizer import StandardAuthorizer
from kafkacompat.wire.apis import APIS, ApiKey, request_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequestGroup,
)

TABLES = {"broker": BROKER_APIS, "controller": CONTROLLER_APIS}
NEEDED = [
    pytest.param(table, entry, id=f"{name}-{entry.name}")
    for name, table in TABLES.items()
    for entry in table.entries
    if entry.needs
]
NEEDS_NOTHING = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
"""A client needs these APIs before it can authenticate. DescribeCluster on broker listeners tells no more than Metadata."""
REFUSED = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
CLUSTER, GROUP = ResourceType.CLUSTER, ResourceType.GROUP
TRANSACTIONAL_ID, TOPIC = ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC


def allow(kind: ResourceType, operation: AclOperation, name: str = "*") -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)


def authorizer(*acls: Acl, super_users: frozenset[str] = frozenset()) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users)
    made.update({number.to_bytes(16, "big"): each for number, each in enumerate(acls)})
    made.is_loaded = True
    return made


def context(key: int, version: int, connection_id: int = 1) -> RequestContext:
    return RequestContext(
        key, version, 7, "test", connection_id, "SECURE", "10.0.0.1", principal=Principal("User", "alice")
    )


def served(
    of: StandardAuthorizer | None, table: ApiTable, key: int, version: int, request: Any, **who: int
) -> Any:
    """Return the handler's answer, or the refusal."""
    route = Route(key, version, table)
    route.function = lambda *_: "reached"
    route.is_served = None
    route.may_be_long = False
    node: Any = SimpleNamespace(authorizer=of, opening=None, coordinators=None)
    return serve(route, node, context(key, version, **who), request)


def well_formed(key: int) -> Any:
    """Return a valid request, so that only its sender can be refused."""
    request = request_class(key)()
    fields = {
        "transactional_id": "tx",
        "group_id": "g",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "resource_type_filter": 2,
        "pattern_type_filter": 3,
        "operation": 2,
        "permission_type": 3,
    }
    for name in fields.keys() & set(request.__slots__):
        setattr(request, name, fields[name])
    return request


def codes_in(message: Any) -> set[int]:
    """Return all error codes at any depth of the message."""
    found: set[int] = set()
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            found.add(value)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "__slots__") and not isinstance(each, (str, bytes, int)):
                found |= codes_in(each)
    return found


@pytest.mark.parametrize(("table", "entry"), NEEDED)
def test_without_a_right_the_handler_is_not_reached_in_any_version(table: ApiTable, entry: Entry) -> None:
    for version in range(entry.min_version, entry.max_version + 1):
        answer = served(authorizer(), table, entry.key, version, well_formed(entry.key))
        assert answer != "reached"
        codes = codes_in(decode(type(answer), version, encode(answer, version)))
        # Some responses have error codes only in the elements that were asked for, or none at all.
        assert codes & REFUSED or codes <= {0}


@pytest.mark.parametrize(("table", "entry"), NEEDED)
def test_a_super_user_this_node_and_a_cluster_without_authorizer_are_let_through(
    table: ApiTable, entry: Entry
) -> None:
    key, version, request = entry.key, entry.max_version, well_formed(entry.key)
    assert served(None, table, key, version, request) == "reached"
    assert (
        served(authorizer(super_users=frozenset({"User:alice"})), table, key, version, request) == "reached"
    )
    assert served(authorizer(), table, key, version, request, connection_id=NO_CONNECTION) == "reached"


@pytest.mark.parametrize(
    ("table", "key", "fields", "enough", "refusal"),
    [
        (BROKER_APIS, ApiKey.HEARTBEAT, {"group_id": "g"}, [(GROUP, AclOperation.READ, "g")], 30),
        (BROKER_APIS, ApiKey.OFFSET_DELETE, {"group_id": "g"}, [(GROUP, AclOperation.DELETE, "g")], 30),
        (
            BROKER_APIS,
            ApiKey.END_TXN,
            {"transactional_id": "x"},
            [(TRANSACTIONAL_ID, AclOperation.WRITE, "x")],
            53,
        ),
        (
            BROKER_APIS,
            ApiKey.ADD_OFFSETS_TO_TXN,
            {"transactional_id": "x", "group_id": "g"},
            [(TRANSACTIONAL_ID, AclOperation.WRITE, "x"), (GROUP, AclOperation.READ, "g")],
            53,
        ),
        (
            BROKER_APIS,
            ApiKey.INIT_PRODUCER_ID,
            {"transactional_id": "x"},
            [(TRANSACTIONAL_ID, AclOperation.WRITE, "x")],
            53,
        ),
        (
            broker_apis(False, True),
            ApiKey.INIT_PRODUCER_ID,
            {"transactional_id": "x", "enable_2pc": True},
            [
                (TRANSACTIONAL_ID, AclOperation.WRITE, "x"),
                (TRANSACTIONAL_ID, AclOperation.TWO_PHASE_COMMIT, "x"),
            ],
            53,
        ),
        (CONTROLLER_APIS, ApiKey.VOTE, {}, [(CLUSTER, AclOperation.CLUSTER_ACTION, CLUSTER_NAME)], 31),
        (CONTROLLER_APIS, ApiKey.DESCRIBE_QUORUM, {}, [(CLUSTER, AclOperation.ALTER, CLUSTER_NAME)], 31),
    ],
)
def test_the_right_is_enough_and_no_less(
    table: ApiTable, key: ApiKey, fields: dict[str, Any], enough: list[tuple[Any, Any, str]], refusal: int
) -> None:
    version = table.by_key[key].max_version
    request = request_class(int(key))(**fields)
    acls = [allow(kind, operation, name) for kind, operation, name in enough]
    assert served(authorizer(*acls), table, int(key), version, request) == "reached"
    for number in range(len(acls)):
        fewer = acls[:number] + acls[number + 1 :]
        answer = served(authorizer(*fewer), table, int(key), version, request)
        assert answer != "reached"
        if number == 0:
            assert refusal in codes_in(answer)


@pytest.mark.parametrize(
    "right",
    [allow(CLUSTER, AclOperation.IDEMPOTENT_WRITE, CLUSTER_NAME), allow(TOPIC, AclOperation.WRITE, "t")],
)
@pytest.mark.parametrize("enable_2pc", [False, True])
def test_an_idempotent_producer_may_write_to_the_cluster_or_to_some_topic(
    right: Acl, enable_2pc: bool
) -> None:
    apis = broker_apis(False, True) if enable_2pc else BROKER_APIS
    route = Route(int(ApiKey.INIT_PRODUCER_ID), apis.by_key[ApiKey.INIT_PRODUCER_ID].max_version, apis)
    ids = SimpleNamespace(when_available=lambda: Deferred.of(None), next_producer_id=lambda: 77)

    def answered(*acls: Acl, who: int = 1, **fields: Any) -> tuple[int, int]:
        node: Any = SimpleNamespace(
            authorizer=authorizer(*acls), opening=None, coordinators=None, producer_ids=ids
        )
        make: Any = request_class(route.key)
        request = make(transactional_id=None, enable_2pc=enable_2pc, **fields)
        answer = value_of(serve(route, node, context(route.key, route.version, who), request))
        return answer.error_code, answer.producer_id

    assert answered(right) == (ErrorCode.NONE, 77)
    assert answered() == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)
    assert answered(who=NO_CONNECTION) == (ErrorCode.NONE, 77)
    # A right comes before the fields, as in Kafka.
    assert answered(producer_id=7) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)
    assert answered(right, producer_id=7) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.CLUSTER_ACTION])
def test_markers_are_written_by_nodes_and_by_those_who_may_alter_the_cluster(operation: AclOperation) -> None:
    key = int(ApiKey.WRITE_TXN_MARKERS)
    request = request_class(key)()
    assert (
        served(authorizer(allow(CLUSTER, operation, CLUSTER_NAME)), BROKER_APIS, key, 1, request) == "reached"
    )
    assert served(authorizer(allow(CLUSTER, AclOperation.CREATE)), BROKER_APIS, key, 1, request) != "reached"


def test_what_may_be_forwarded_is_judged_by_the_controller_alone() -> None:
    """A broker would refuse in its own name, and the audit log would report the refusal twice."""
    both = {entry.key for entry in BROKER_APIS.entries} & {entry.key for entry in CONTROLLER_APIS.entries}
    forwarded = {key for key in both if APIS[ApiKey(key)].forwardable}
    assert not [BROKER_APIS.by_key[key].name for key in forwarded if BROKER_APIS.by_key[key].needs]


def test_requests_that_authenticate_need_no_right() -> None:
    for table in TABLES.values():
        assert not [entry.name for entry in table.entries if entry.needs and entry.key in NEEDS_NOTHING]


def test_names_are_asked_about_once_and_operations_are_bits() -> None:
    node: Any = SimpleNamespace(
        authorizer=authorizer(allow(TOPIC, AclOperation.READ, "a"), allow(TOPIC, AclOperation.WRITE, "b"))
    )
    access = access_of(node, context(3, 9))
    assert isinstance(access, Access)
    readable = RightToTopics(access, AclOperation.READ)
    assert {name for name in ["a", "b", "a", "c"] if readable.holds(name)} == {"a"}
    assert access.operations(TOPIC, "a") == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert access.operations(TOPIC, "c") == 0


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ],
)
def test_a_disabled_protocol_is_refused_before_rights_are_looked_at(key: ApiKey) -> None:
    version = APIS[key].latest
    request = well_formed(key)
    if "group_ids" in request.__slots__:
        request.group_ids = ["g"]
    if "groups" in request.__slots__:
        request.groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    node: Any = SimpleNamespace(
        authorizer=authorizer(),
        opening=None,
        coordinators=None,
        image=SimpleNamespace(features={}),
        config=SimpleNamespace(get_list=lambda name: ("classic",)),
    )
    answer = serve(Route(key, version), node, context(key, version), request)
    assert codes_in(answer) - {0} == {ErrorCode.UNSUPPORTED_VERSION}
