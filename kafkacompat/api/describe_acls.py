"""DescribeAcls (key 29): the access control entries that match a filter, by resource pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import refuse_unknown_filter
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.security.acl import AclFilter
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.describe_acls_request import DescribeAclsRequest

DISABLED_TEXT = "No Authorizer is configured on the broker"
MATCHED_A_STEP = 5_000
"""Entries per step. One takes up to a microsecond."""


def handle(
    node: AnyNode, context: RequestContext, request: DescribeAclsRequest
) -> Work[DescribeAclsResponse]:
    refuse_unknown_filter(request)
    if node.authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=DISABLED_TEXT)
    wanted = AclFilter.of(request)
    found: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for number, acl in enumerate(list(node.image.acls.values()), 1):
        if number % MATCHED_A_STEP == 0:
            yield TURN_COST
        if not wanted.matches(acl):
            continue
        pattern = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = found.get(pattern)
        if resource is None:
            resource = found[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(resources=list(found.values()))


HANDLER = Handler(handle, top_level_error(DescribeAclsResponse))
