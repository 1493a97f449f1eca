"""ACL requests without an authorizer, codes without a meaning, and the entries that DescribeAcls finds."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api import describe_acls as module
from kafkacompat.api._tests.kit import Api, served_versions
from kafkacompat.security.acl import Acl
from kafkacompat.security.authorizer import StandardAuthorizer
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkacompat.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from kafkacompat.wire.messages.describe_acls_request import DescribeAclsRequest

CODES = {"resource_type": 2, "operation": 3, "permission_type": 3}
FILTER: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def secured(*acls: Acl) -> Api:
    api = Api()
    api.node.authorizer = StandardAuthorizer(frozenset({"User:ANONYMOUS"}))
    api.node.image = api.node.image.__class__(
        acls={number.to_bytes(16, "big"): each for number, each in enumerate(acls)}
    )
    return api


@pytest.mark.parametrize("version", served_versions(29))
def test_without_an_authorizer_nothing_can_be_described(version: int) -> None:
    answer = Api().call(DescribeAclsRequest(**FILTER), version)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )


def requests_with(field: str) -> list[Any]:
    """Return every ACL request with one code set to 0."""
    wanted = {**FILTER, field: 0} if field in FILTER else None
    created = {**CODES, "resource_pattern_type": 3, field: 0} if not field.endswith("_filter") else None
    found: list[Any] = []
    if wanted is not None:
        found += [DescribeAclsRequest(**wanted), DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)])]
    if created is not None:
        found.append(CreateAclsRequest(creations=[AclCreation(**created)]))
    return found


@pytest.mark.parametrize(
    "field",
    [
        "resource_type",
        "resource_type_filter",
        "pattern_type_filter",
        "resource_pattern_type",
        "operation",
        "permission_type",
    ],
)
def test_a_code_that_means_nothing_ends_the_connection(field: str) -> None:
    for request in requests_with(field):
        with pytest.raises(WireError):
            Api().raw(Api().frame(request, 3))


def test_entries_are_described_by_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MATCHED_A_STEP", 2)
    api = secured(
        Acl(2, "t", 3, "User:a", "*", 3, 3),
        Acl(2, "t", 3, "User:b", "*", 3, 2),
        Acl(2, "t", 4, "User:a", "10.0.0.1", 3, 3),
        Acl(3, "g", 3, "User:a", "*", 3, 3),
    )
    found = api.call(DescribeAclsRequest(**{**FILTER, "resource_type_filter": 2}), 3)
    assert found.error_code == 0
    assert [
        (
            each.resource_name,
            each.pattern_type,
            [(acl.principal, acl.host, acl.permission_type) for acl in each.acls],
        )
        for each in found.resources
    ] == [
        ("t", 3, [("User:a", "*", 3), ("User:b", "*", 2)]),
        ("t", 4, [("User:a", "10.0.0.1", 3)]),
    ]
    nobody = DescribeAclsRequest(**{**FILTER, "principal_filter": "User:c"})
    assert api.call(nobody, 1).resources == []
