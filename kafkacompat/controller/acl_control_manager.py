"""CreateAcls and DeleteAcls (KIP-801) in a cluster with an authorizer: image and request -> records and response.

Pure. The caller has checked the authorization. Each entry has an id that only the metadata log uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kafkacompat.controller.controller_result import (
    RECORDS_A_STEP,
    SCANNED_A_STEP,
    ControllerResult,
    cut_to_fit,
)
from kafkacompat.controller.features import cidr_acls_supported, metadata_version
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.snapshot_records import acl_record
from kafkacompat.ids import Uuid
from kafkacompat.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    FilterFlaw,
    PatternType,
    ResourceType,
    check_filter,
)
from kafkacompat.security.cidr import SLASH, CidrFlaw, parse_cidr
from kafkacompat.tasks import TURN_COST, Work, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from kafkacompat.wire.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kafkacompat.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from kafkacompat.ports import Random
    from kafkacompat.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
    from kafkacompat.wire.messages.delete_acls_request import DeleteAclsRequest

TOO_LARGE_TEXT = "Unable to perform excessively large batch operation."
TOO_MANY_REMOVED_TEXT = (
    f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete operation."
)
MATCHES_TOLD_MAX = 10 * MAX_RECORDS_PER_OPERATION
"""Entries that one answer of DeleteAcls names. Filters that overlap name the same entry again, so the records alone do
not bound the answer. Kafka has no limit."""
TOO_MANY_TOLD_TEXT = f"Cannot name more than {MATCHES_TOLD_MAX} matching acls in a single delete operation."
DISABLED_TEXT = "No Authorizer is configured."
FILTER_US = 20
"""Of a filter that nothing is compared with, besides the prefixes of its name."""
PREFIXES_MAX = 1_000
"""Characters of a name whose prefixes are looked up. A topic's name has 249 at most."""
PREFIXES_A_US = 3
"""Prefixes of the longest name that are looked up in a microsecond."""
MATCHED_A_STEP = SCANNED_A_STEP // 4
"""Entries compared with a filter in one step, at up to a microsecond each."""


CIDR_TEXT = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."


class AclRefused(Exception):
    """One entry is refused."""

    def __init__(self, text: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(text)
        self.code = code


def creation_disabled(request: CreateAclsRequest) -> CreateAclsResponse:
    """The refusal in a cluster without an authorizer. The next function is the same for DeleteAcls."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=DISABLED_TEXT)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def deletion_disabled(request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=DISABLED_TEXT)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def create_acls(
    image: MetadataImage, random: Random, request: CreateAclsRequest
) -> Work[ControllerResult[MetadataRecord, CreateAclsResponse]]:
    known: set[Acl] = set()
    for some in pieces(list(image.acls.values()), SCANNED_A_STEP):
        known.update(some)
        yield TURN_COST
    blocks = cidr_acls_supported(metadata_version(image.features))
    taken: set[Uuid] = set()
    records: list[MetadataRecord] = []
    results: list[AclCreationResult] = []
    for piece in pieces(request.creations, RECORDS_A_STEP):
        for creation in piece:
            acl = _binding(creation)
            try:
                _check(acl, blocks)
            except AclRefused as refused:
                results.append(
                    AclCreationResult(error_code=refused.code, error_message=cut_to_fit(str(refused)))
                )
                continue
            results.append(AclCreationResult())
            if acl not in known:
                known.add(acl)
                while (key := random.uuid()) in taken or key in image.acls:
                    pass
                taken.add(key)
                records.append(MetadataRecord(acl_record(key, acl), 0))
        if len(records) > MAX_RECORDS_PER_OPERATION:
            return _too_large(request)
        yield TURN_COST
    return ControllerResult(tuple(records), CreateAclsResponse(results=results))


def _binding(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check(acl: Acl, blocks: bool) -> None:
    """`blocks`: whether a host may be a block of addresses."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise AclRefused(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise AclRefused("Invalid empty resource name")
    kind = ResourceType.of(acl.resource_type)
    if kind <= ResourceType.ANY:
        raise AclRefused(f"Invalid resourceType {kind.name}")
    pattern = PatternType.of(acl.pattern_type)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise AclRefused(f"Invalid patternType {pattern.name}")
    operation = AclOperation.of(acl.operation)
    if operation <= AclOperation.ANY:
        raise AclRefused(f"Invalid operation {operation.name}")
    permission = AclPermissionType.of(acl.permission_type)
    if permission not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        raise AclRefused(f"Invalid permissionType {permission.name}")
    if ":" not in acl.principal:
        raise AclRefused(
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    if not acl.host:
        raise AclRefused("Host pattern cannot be null or empty")
    if SLASH in acl.host:
        if not blocks:
            raise AclRefused(CIDR_TEXT, ErrorCode.UNSUPPORTED_VERSION)
        try:
            parse_cidr(acl.host)
        except CidrFlaw as flaw:
            raise AclRefused(f"Invalid CIDR notation '{acl.host}': {flaw}") from flaw


def _too_large(request: CreateAclsRequest) -> ControllerResult[MetadataRecord, CreateAclsResponse]:
    refused = AclCreationResult(error_code=ErrorCode.POLICY_VIOLATION, error_message=TOO_LARGE_TEXT)
    return ControllerResult((), CreateAclsResponse(results=[refused] * len(request.creations)))


def delete_acls(
    image: MetadataImage, request: DeleteAclsRequest
) -> Work[ControllerResult[MetadataRecord, DeleteAclsResponse]]:
    """Delete everything that the filters match, or nothing if that exceeds the records of one operation."""
    acls = list(image.acls.items())
    by_name: dict[str, list[int]] | None = None
    removed: dict[Uuid, None] = {}
    results: list[DeleteAclsFilterResult] = []
    told_count = 0
    for each in request.filters:
        wanted = AclFilter.of(each)
        try:
            check_filter(wanted)
        except FilterFlaw as flaw:
            results.append(
                DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=str(flaw))
            )
            if len(results) % RECORDS_A_STEP == 0:
                yield TURN_COST
            continue
        matching: list[DeleteAclsMatchingAcl] = []
        if by_name is None and wanted.resource_name is not None and len(request.filters) > 1:
            by_name = yield from _by_name(acls)
        for piece in pieces(acls if by_name is None else _named(acls, by_name, wanted), MATCHED_A_STEP):
            found = [(key, acl) for key, acl in piece if wanted.matches(acl)]
            for some in pieces(found, RECORDS_A_STEP):
                removed.update((key, None) for key, _ in some)
                told_count += len(some)
                if len(removed) > MAX_RECORDS_PER_OPERATION:
                    return _refused_whole(request, TOO_MANY_REMOVED_TEXT)
                if told_count > MATCHES_TOLD_MAX:
                    return _refused_whole(request, TOO_MANY_TOLD_TEXT)
                matching += [_matching(acl) for _, acl in some]
                yield len(some) * TURN_COST // RECORDS_A_STEP
            yield len(piece) * TURN_COST // MATCHED_A_STEP
        yield _filter_us(wanted)
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    records = tuple(MetadataRecord(RemoveAccessControlEntryRecord(id=key), 0) for key in removed)
    return ControllerResult(records, DeleteAclsResponse(filter_results=results))


def _filter_us(wanted: AclFilter) -> int:
    is_match = wanted.pattern_type == PatternType.MATCH
    prefixes = min(len(wanted.resource_name or ""), PREFIXES_MAX) if is_match else 0
    return FILTER_US + prefixes // PREFIXES_A_US


def _by_name(acls: Sequence[tuple[Uuid, Acl]]) -> Work[dict[str, list[int]]]:
    """The positions of the entries of each resource name."""
    found: dict[str, list[int]] = {}
    for position, (_, acl) in enumerate(acls, 1):
        found.setdefault(acl.resource_name, []).append(position - 1)
        if position % SCANNED_A_STEP == 0:
            yield TURN_COST
    return found


def _named(
    acls: Sequence[tuple[Uuid, Acl]], by_name: Mapping[str, list[int]], wanted: AclFilter
) -> Sequence[tuple[Uuid, Acl]]:
    """All entries that the filter may match by their resource name, and perhaps some more, in their order."""
    name = wanted.resource_name
    if name is None:
        return acls
    names = {name}
    if wanted.pattern_type == PatternType.MATCH:
        names.add(WILDCARD)
        if len(name) > PREFIXES_MAX:
            return acls
        names.update(name[:length] for length in range(len(name)))
    return [
        acls[position] for position in sorted(chain.from_iterable(by_name.get(each, ()) for each in names))
    ]


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(error_message=None, **acl._asdict())


def _refused_whole(
    request: DeleteAclsRequest, text: str
) -> ControllerResult[MetadataRecord, DeleteAclsResponse]:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    return ControllerResult((), DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
