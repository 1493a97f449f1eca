"""CreateAcls and DeleteAcls: records and refusals, entry by entry."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from kafkacompat.controller import acl_control_manager as module
from kafkacompat.controller._tests.clusters import after, cluster
from kafkacompat.controller._tests.test_steps import pauses
from kafkacompat.controller.acl_control_manager import (
    create_acls,
    creation_disabled,
    delete_acls,
    deletion_disabled,
)
from kafkacompat.controller.controller_result import RECORDS_A_STEP
from kafkacompat.controller.features import METADATA_VERSION
from kafkacompat.controller.image import MetadataImage
from kafkacompat.security.acl import CLUSTER_NAME, Acl, AclFilter, PatternType
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkacompat.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest

TOPIC, CLUSTER, READ, ALLOW, LITERAL = 2, 4, 3, 3, 3


class Ids:
    """Ascending uuids; the first one comes twice."""

    def __init__(self) -> None:
        self._next = count()

    def uuid(self) -> bytes:
        return max(next(self._next), 1).to_bytes(16, "big")


def at_level(level: int) -> MetadataImage:
    image = cluster()
    return replace(image, features={**image.features, METADATA_VERSION: level})


def creation(name: str = "t", **others: Any) -> AclCreation:
    values = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**values, **others})


def create(image: MetadataImage, *creations: AclCreation, ids: Any = None) -> Any:
    return at_once(create_acls(image, ids or Ids(), CreateAclsRequest(creations=list(creations))))


def everything(**others: Any) -> DeleteAclsFilter:
    values: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**{**values, **others})


def delete(image: MetadataImage, *filters: DeleteAclsFilter) -> Any:
    return at_once(delete_acls(image, DeleteAclsRequest(filters=list(filters))))


def codes(results: Any) -> list[int]:
    return [each.error_code for each in results]


def test_entries_are_written_once_however_often_they_are_asked_for() -> None:
    image = cluster()
    ids = Ids()
    result = create(image, creation(), creation("u"), creation(), ids=ids)
    assert codes(result.response.results) == [0, 0, 0]
    image = after(image, result)
    assert {acl.resource_name for acl in image.acls.values()} == {"t", "u"}
    again = create(image, creation("u"), ids=ids)
    assert (again.records, codes(again.response.results)) == ((), [0])


def test_entries_that_are_there_are_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCANNED_A_STEP", 10)
    image = after(cluster(), create(cluster(), *(creation(f"t{each}") for each in range(95))))
    request = CreateAclsRequest(creations=[creation("t94"), creation("u")])
    result, paused = pauses(create_acls(image, Ids(), request))
    assert [record.message.resource_name for record in result.records] == ["u"]
    assert paused >= 10


def test_an_id_that_is_taken_is_not_given_again() -> None:
    image = after(cluster(), create(cluster(), creation()))
    image = after(image, create(image, creation("u")))
    assert len(image.acls) == 2


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 99}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 99}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` "
            "(no colon is present separating the principal type from the principal name)",
        ),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        (
            {"host": "10.0.0.0/33"},
            "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]",
        ),
        ({"host": "::1/x"}, "Invalid CIDR notation '::1/x': Could not parse [::1/x] - invalid prefix length"),
    ],
)
def test_an_entry_is_refused_beside_others(others: Any, text: str) -> None:
    result = create(at_level(32), creation(), creation(**others))
    fine, refused = result.response.results
    assert (fine.error_code, refused.error_code) == (0, ErrorCode.INVALID_REQUEST)
    assert refused.error_message == text
    assert len(result.records) == 1


@pytest.mark.parametrize("host", ["10.0.0.0/8", "2001:db8::/32", "no block/"])
def test_blocks_of_addresses_need_their_level(host: str) -> None:
    result = create(at_level(31), creation(), creation(host=host))
    fine, refused = result.response.results
    assert (fine.error_code, refused.error_code) == (0, ErrorCode.UNSUPPORTED_VERSION)
    assert refused.error_message == (
        "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
    )


def test_a_block_is_kept_as_it_was_written_and_found_by_its_text_only() -> None:
    image = at_level(32)
    image = after(image, create(image, creation(host="10.0.0.1/8"), creation(host="2001:DB8::/32")))
    assert {acl.host for acl in image.acls.values()} == {"10.0.0.1/8", "2001:DB8::/32"}
    found = delete(image, everything(host_filter="10.0.0.0/8"), everything(host_filter="10.0.0.1/8"))
    assert [len(each.matching_acls) for each in found.response.filter_results] == [0, 1]


def test_the_cluster_has_one_name() -> None:
    result = create(cluster(), creation(CLUSTER_NAME, resource_type=CLUSTER))
    assert codes(result.response.results) == [0]


def test_filters_take_what_they_find_and_each_entry_goes_once() -> None:
    image = after(cluster(), create(cluster(), creation(), creation("u"), creation("t", principal="User:b")))
    result = delete(
        image,
        everything(resource_name_filter="t"),
        everything(principal_filter="User:a"),
        everything(host_filter="h"),
    )
    found = [
        {(each.resource_name, each.principal) for each in one.matching_acls}
        for one in result.response.filter_results
    ]
    assert found == [{("t", "User:a"), ("t", "User:b")}, {("t", "User:a"), ("u", "User:a")}, set()]
    assert len(result.records) == 3
    assert not after(image, result).acls


def test_a_filter_that_cannot_be_meant_is_refused_beside_others() -> None:
    image = after(cluster(), create(cluster(), creation()))
    result = delete(image, everything(resource_type_filter=99), everything(operation=99), everything())
    assert [(each.error_code, each.error_message) for each in result.response.filter_results] == [
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter."),
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter."),
        (0, None),
    ]
    assert len(result.records) == 1


def test_one_operation_writes_no_more_than_the_log_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acls = {
        number.to_bytes(16, "big"): Acl(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW)
        for number in range(4)
    }
    monkeypatch.setattr(module, "MAX_RECORDS_PER_OPERATION", 3)
    result = create(cluster(), *[creation(f"t{number}") for number in range(4)])
    assert (result.records, set(codes(result.response.results))) == ((), {ErrorCode.POLICY_VIOLATION})
    full = MetadataImage(acls=acls)
    result = delete(full, everything(resource_name_filter="t1"), everything())
    assert (result.records, codes(result.response.filter_results)) == ((), [ErrorCode.INVALID_REQUEST] * 2)
    fewer = delete(MetadataImage(acls=dict(list(acls.items())[:3])), everything(), everything())
    assert len(fewer.records) == 3


def test_filters_that_overlap_do_not_make_an_answer_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    acls = {
        number.to_bytes(16, "big"): Acl(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW)
        for number in range(4)
    }
    monkeypatch.setattr(module, "MATCHES_TOLD_MAX", 8)
    image = MetadataImage(acls=acls)
    assert len(delete(image, everything(), everything()).records) == 4
    refused = delete(image, everything(), everything(), everything())
    assert (refused.records, codes(refused.response.filter_results)) == ((), [ErrorCode.INVALID_REQUEST] * 3)


def test_the_matches_of_a_filter_are_told_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    acls = {
        number.to_bytes(16, "big"): Acl(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW)
        for number in range(3_000)
    }
    told: list[Acl] = []
    matching = module._matching
    monkeypatch.setattr(module, "_matching", lambda acl: (told.append(acl), matching(acl))[1])
    request = DeleteAclsRequest(filters=[everything()])
    for steps, _ in enumerate(delete_acls(MetadataImage(acls=acls), request), 1):
        assert len(told) <= steps * RECORDS_A_STEP
    assert len(told) == 3_000


@pytest.mark.parametrize("pattern", [1, 2, 3, 4])
def test_filters_that_name_a_resource_find_what_a_look_at_all_finds(pattern: int) -> None:
    names = ["", "a", "ab", "abc", "b", "*", "abcd", "ba"]
    acls = {
        number.to_bytes(16, "big"): Acl(TOPIC, name, kind, "User:a", "*", READ, ALLOW)
        for number, (name, kind) in enumerate((name, kind) for kind in (4, LITERAL) for name in names)
    }
    filters = [
        everything(resource_name_filter=name, pattern_type_filter=pattern) for name in [*names, "x", None]
    ]
    together = delete(MetadataImage(acls=acls), *filters)
    for wanted, found in zip(filters, together.response.filter_results, strict=True):
        (alone,) = delete(MetadataImage(acls=acls), wanted).response.filter_results
        assert found == alone


def test_filters_that_name_resources_are_not_compared_with_all_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The product of filters and entries would hold up the controller for minutes."""
    acls = {
        number.to_bytes(16, "big"): Acl(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW)
        for number in range(500)
    }
    compared: list[Acl] = []
    matches = AclFilter.matches
    monkeypatch.setattr(AclFilter, "matches", lambda self, acl: (compared.append(acl), matches(self, acl))[1])
    filters = [everything(resource_name_filter=f"t{number}", pattern_type_filter=2) for number in range(400)]
    result = delete(MetadataImage(acls=acls), *filters)
    assert len(result.records) == 400
    assert len(compared) <= 3 * 500


def test_the_prefixes_of_long_names_count_in_the_steps() -> None:
    """Those of a thousand characters take a third of a millisecond."""
    acls = {bytes([1] * 16): Acl(TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW)}

    def cost_of(name: str, pattern: int) -> int:
        wanted = DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        return sum(delete_acls(MetadataImage(acls=acls), DeleteAclsRequest(filters=[wanted] * 100)))

    assert cost_of("x" * 1000, PatternType.MATCH) >= 100 * 300
    assert cost_of("x" * 1000, LITERAL) == cost_of("x", LITERAL) < 100 * 50


def test_filters_that_are_refused_take_steps_as_well() -> None:
    request = DeleteAclsRequest(filters=[everything(operation=99)] * 1_000)
    assert len(list(delete_acls(MetadataImage(), request))) == 1_000 // RECORDS_A_STEP


def test_a_cluster_without_an_authorizer_says_so_of_each() -> None:
    assert codes(creation_disabled(CreateAclsRequest(creations=[creation()] * 2)).results) == [54, 54]
    assert codes(deletion_disabled(DeleteAclsRequest(filters=[everything()])).filter_results) == [54]
