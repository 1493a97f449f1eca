"""The rights that a whole request needs, and questions to the authorizer in the name of the request's sender.

Rights to single topics, groups or ids within a request are checked by the handler of the request, or by named_rights.py
for the APIs that it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkacompat.api.request_context import NO_CONNECTION, RequestContext
from kafkacompat.dataclass import dataclass
from kafkacompat.security.acl import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from kafkacompat.security.authorizer import Asker, StandardAuthorizer
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.errors import ErrorCode, WireError

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.wire.messages.delete_acls_request import DeleteAclsFilter
    from kafkacompat.wire.messages.describe_acls_request import DescribeAclsRequest

T = TypeVar("T")
ASKED_A_STEP = 200
"""Questions to the authorizer per step. One takes up to ten microseconds."""
REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Access:
    """The rights of the sender of one request."""

    __slots__ = ("_asker", "_authorizer", "api_version")

    def __init__(self, authorizer: StandardAuthorizer, context: RequestContext) -> None:
        self._authorizer = authorizer
        self.api_version = context.api_version
        principal = context.principal
        self._asker = Asker(
            f"{principal.type}:{principal.name}", context.client_host, APIS[context.api_key].name
        )

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        count: int = 1,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """Return whether the sender may do the operation on the named resource.

        `count` is the number of times the request names the resource. Callers that only leave denied elements out of
        an answer set `logs_denied` to False, so that the denial is not logged.
        """
        return self._authorizer.allows(
            self._asker,
            operation,
            resource_type,
            name,
            count=count,
            logs_allowed=logs_allowed,
            logs_denied=logs_denied,
        )

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> Work[bool]:
        """Return whether the sender may do the operation on at least one resource of the type."""
        return self._authorizer.allows_any_of_type(self._asker, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the bit field of the operations that the sender may do on the resource (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(operation, resource_type, name, logs_allowed=False, logs_denied=False)
        )


def access_of(node: AnyNode, context: RequestContext) -> Access | None:
    """Return the sender's rights. None if nothing is refused: without an authorizer, or if this node itself asks."""
    if node.authorizer is None or context.connection_id == NO_CONNECTION:
        return None
    return Access(node.authorizer, context)


class RightToTopics:
    """The topics on which the sender may do one operation. The authorizer is asked once for each topic."""

    __slots__ = ("_access", "_known", "_logs_denied", "_operation")

    def __init__(self, access: Access | None, operation: AclOperation, *, logs_denied: bool = True) -> None:
        self._logs_denied = logs_denied
        self._access = access
        self._operation = operation
        self._known: dict[str, bool] = {}

    def holds(self, name: str) -> bool:
        if self._access is None:
            return True
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._access.allows(
                self._operation, ResourceType.TOPIC, name, logs_denied=self._logs_denied
            )
        return known


def describable(access: Access | None) -> Callable[[list[str]], set[str]] | None:
    """Return which of some topics the sender may describe. None if it may describe all. As in Kafka, denials are not
    logged: an expression may match all topics of the cluster."""
    if access is None:
        return None
    rights = RightToTopics(access, AclOperation.DESCRIBE, logs_denied=False)
    return lambda names: {name for name in names if rights.holds(name)}


def seen_of(
    access: Access,
    kind: ResourceType,
    elements: Sequence[T],
    name_of: Callable[[T], str],
    *,
    logs_denied: bool = True,
) -> Work[list[T]]:
    """Return the elements whose resource the sender may describe. The other elements are left out of the answer."""
    seen: list[T] = []
    for position, each in enumerate(elements, 1):
        if access.allows(AclOperation.DESCRIBE, kind, name_of(each), logs_denied=logs_denied):
            seen.append(each)
        if position % ASKED_A_STEP == 0:
            yield TURN_COST
    return seen


class Need(Protocol):
    """A right that the whole request needs. Without the right the request is refused before its handler runs."""

    def refusal(self, access: Access, request: Any) -> ErrorCode:
        """Return NONE if the sender has the right, otherwise the error code."""
        ...


@dataclass(frozen=True, slots=True)
class Right:
    """The right to one operation on the resource that the request names, or on the cluster."""

    operation: AclOperation
    resource_type: ResourceType = ResourceType.CLUSTER
    field: str | None = None
    """The request's field that names the resource. None means the cluster. If the field is null, no right is needed."""
    instead: AclOperation | None = None
    """An alternative operation that also suffices. It is checked first, and a denial is not logged."""

    def refusal(self, access: Access, request: Any) -> ErrorCode:
        name = CLUSTER_NAME if self.field is None else getattr(request, self.field)
        if name is None:
            return ErrorCode.NONE
        if self.instead is not None and access.allows(
            self.instead, self.resource_type, name, logs_denied=False
        ):
            return ErrorCode.NONE
        if access.allows(self.operation, self.resource_type, name):
            return ErrorCode.NONE
        return REFUSALS[self.resource_type]


class ProducerId:
    """The right that InitProducerId needs with a transactional id: WRITE on that id, and TWO_PHASE_COMMIT for a
    transaction without a timeout (KIP-360, KIP-939). Without an id, the handler asks `may_write_somewhere`."""

    __slots__ = ()

    def refusal(self, access: Access, request: Any) -> ErrorCode:
        if request.transactional_id is None:
            return ErrorCode.NONE
        both = (WRITE_TRANSACTION, COMMIT_IN_TWO_PHASES) if request.enable_2pc else (WRITE_TRANSACTION,)
        return refusal_of(both, access, request)


def may_write_somewhere(access: Access) -> Work[bool]:
    """Return whether the sender may produce with an idempotent producer: IDEMPOTENT_WRITE on the cluster, or WRITE on any
    topic (KIP-679)."""
    cluster = ResourceType.CLUSTER
    if access.allows(AclOperation.IDEMPOTENT_WRITE, cluster, CLUSTER_NAME, logs_denied=False):
        return True
    return (yield from access.allows_any(AclOperation.WRITE, ResourceType.TOPIC))


class NamedProtocol:
    """For SyncGroup: a request without the protocol that its version requires is refused before any right is checked."""

    __slots__ = ()

    def refusal(self, access: Access, request: Any) -> ErrorCode:
        is_named = access.api_version < 5 or None not in (request.protocol_type, request.protocol_name)
        return ErrorCode.NONE if is_named else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class KnownCodes:
    """For DescribeAcls: a filter with an unknown code closes the connection, whatever rights the sender has."""

    __slots__ = ()

    def refusal(self, access: Access, request: Any) -> ErrorCode:
        refuse_unknown_filter(request)
        return ErrorCode.NONE


def refusal_of(needs: Iterable[Need], access: Access, request: Any) -> ErrorCode:
    """Return the error code of the first need that is not met, or NONE."""
    for need in needs:
        code = need.refusal(access, request)
        if code != ErrorCode.NONE:
            return code
    return ErrorCode.NONE


ALTER_CLUSTER = Right(AclOperation.ALTER)
DESCRIBE_CLUSTER = Right(AclOperation.DESCRIBE)
CLUSTER_ACTION = Right(AclOperation.CLUSTER_ACTION)
DESCRIBE_CLUSTER_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS)
ALTER_CLUSTER_CONFIGS = Right(AclOperation.ALTER_CONFIGS)
END_TRANSACTIONS = Right(AclOperation.CLUSTER_ACTION, instead=AclOperation.ALTER)
READ_GROUP = Right(AclOperation.READ, ResourceType.GROUP, "group_id")
DELETE_GROUP = Right(AclOperation.DELETE, ResourceType.GROUP, "group_id")
WRITE_TRANSACTION = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
COMMIT_IN_TWO_PHASES = Right(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "transactional_id")
PRODUCER_ID = ProducerId()
KNOWN_CODES = KnownCodes()
NAMED_PROTOCOL = NamedProtocol()


def is_between_nodes(needs: Sequence[Need]) -> bool:
    """Return whether only nodes of the cluster send these requests."""
    return CLUSTER_ACTION in needs or END_TRANSACTIONS in needs


def _all_of(kind: ResourceType) -> int:
    return sum(1 << operation for operation in SUPPORTED_OPERATIONS[kind])


TOPIC_OPERATIONS = _all_of(ResourceType.TOPIC)
GROUP_OPERATIONS = _all_of(ResourceType.GROUP)
CLUSTER_OPERATIONS = _all_of(ResourceType.CLUSTER)
NOT_ASKED = -(2**31)
"""The value of a bit field that was not requested."""


def cluster_operations(node: AnyNode, context: RequestContext, is_asked: bool) -> int:
    """Return the operations on the cluster. None are set if the sender may not describe the cluster."""
    if not is_asked:
        return NOT_ASKED
    access = access_of(node, context)
    if access is None:
        return CLUSTER_OPERATIONS
    if not access.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def topic_operations(access: Access | None, name: str) -> int:
    return TOPIC_OPERATIONS if access is None else access.operations(ResourceType.TOPIC, name)


def group_operations(access: Access | None, group_id: str) -> int:
    return GROUP_OPERATIONS if access is None else access.operations(ResourceType.GROUP, group_id)


UNKNOWN = 0
"""The code UNKNOWN of each enumeration. No version of Kafka gives it a meaning."""


def refuse_unknown_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> None:
    refuse_unknown(
        asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    )


def refuse_unknown(*codes: int) -> None:
    """Raise WireError if a code is UNKNOWN. Apache Kafka treats such a request as one that it cannot parse."""
    if UNKNOWN in codes:
        raise WireError("an ACL request holds a code of 0")
