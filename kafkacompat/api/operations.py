"""The bit fields of authorized operations (KIP-430): bit n is set for the operation with code n.

Without an authorizer, all operations that the resource type supports are set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import Access, access_of
from kafkacompat.security.acl import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext


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
