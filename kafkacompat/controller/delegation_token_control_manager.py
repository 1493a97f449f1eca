"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, and the removal of expired tokens.

Image and request -> records and response (DelegationTokenControlManager; KIP-48, KIP-373). Pure. The caller has
checked the rights. The metadata have no HMAC: a token is found by computing the HMAC of every token's id, in steps.
"""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.controller_result import SCANNED_A_STEP, ControllerResult
from kafkacompat.controller.features import metadata_version
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.ids import uuid_to_text
from kafkacompat.security.delegation_tokens import USER_TYPE
from kafkacompat.tasks import TURN_COST, Work, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kafkacompat.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
from kafkacompat.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from kafkacompat.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkacompat.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.controller.settings import ControllerSettings
    from kafkacompat.ports import Random
    from kafkacompat.ports.dispatcher import Principal
    from kafkacompat.security.delegation_tokens import TokenSettings
    from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest

logger = logging.getLogger(__name__)

TOKENS_SINCE = 14
"""The metadata.version (3.6-IV2) that introduced token records."""
MAX_RECORDS_PER_EXPIRATION = 1_000
"""Kafka's bound of the tokens removed in one round."""
RENEWERS_MAX = 100
"""Renewers of one token. Replay and snapshots count records, so each record must be small."""
STRING_BYTES_MAX = 32_767
TIMESTAMP_MAX = 2**63 - 1
HASHED_A_STEP = SCANNED_A_STEP // 100
"""Tokens whose HMAC is computed in one step, at up to twenty microseconds each."""


def change_tokens(
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    now_ms: int,
    request: CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
    requester: Principal,
) -> Work[ControllerResult[MetadataRecord, Any]]:
    """The command for this type of request."""
    if isinstance(request, CreateDelegationTokenRequest):
        return create_delegation_token(image, settings, random, now_ms, request, requester)
    if isinstance(request, RenewDelegationTokenRequest):
        return renew_delegation_token(image, settings, now_ms, request, requester)
    return expire_delegation_token(image, settings, now_ms, request, requester)


def create_delegation_token(
    image: MetadataImage,
    settings: ControllerSettings,
    random: Random,
    now_ms: int,
    request: CreateDelegationTokenRequest,
    requester: Principal,
) -> Work[ControllerResult[MetadataRecord, CreateDelegationTokenResponse]]:
    """Create a token for the requester, or for the owner named in the request."""
    tokens = settings.tokens
    kind, name = requester.type, requester.name
    if request.owner_principal_name:
        assert request.owner_principal_type is not None
        kind, name = request.owner_principal_type, request.owner_principal_name
    response = CreateDelegationTokenResponse(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    response.error_code = _unavailable(image, tokens)
    if response.error_code:
        return ControllerResult((), response)
    renewers = yield from _renewers(request.renewers, response)
    record = DelegationTokenRecord(
        owner=f"{kind}:{name}", requester=f"{requester.type}:{requester.name}", renewers=renewers
    )
    if not response.error_code and _is_too_long(record):
        response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    if response.error_code:
        return ControllerResult((), response)
    lifetime_ms = tokens.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token_id = uuid_to_text(random.uuid())
    while token_id in image.delegation_tokens:
        token_id = uuid_to_text(random.uuid())
    record.token_id = response.token_id = token_id
    record.issue_timestamp = response.issue_timestamp_ms = now_ms
    record.max_timestamp = response.max_timestamp_ms = min(now_ms + lifetime_ms, TIMESTAMP_MAX)
    record.expiration_timestamp = response.expiry_timestamp_ms = min(
        record.max_timestamp, now_ms + tokens.expiry_time_ms
    )
    response.hmac = tokens.hmac(token_id)
    return ControllerResult((MetadataRecord(record, 0),), response)


def _renewers(named: list[CreatableRenewers], response: CreateDelegationTokenResponse) -> Work[list[str]]:
    """The renewers for the record. Sets the response's error if a renewer is not a user, or if there are too many."""
    renewers: list[str] = []
    for piece in pieces(named, SCANNED_A_STEP):
        if any(each.principal_type != USER_TYPE for each in piece):
            response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
            break
        if len(named) <= RENEWERS_MAX:
            renewers += [f"{each.principal_type}:{each.principal_name}" for each in piece]
        yield TURN_COST
    else:
        if len(named) > RENEWERS_MAX:
            response.error_code = ErrorCode.POLICY_VIOLATION
    return renewers


def _is_too_long(record: DelegationTokenRecord) -> bool:
    """Whether a string of the record is too long. A name may be as long as a string of the protocol, and in a record the
    type is in the same string."""
    return any(
        len(each.encode()) > STRING_BYTES_MAX for each in (record.owner, record.requester, *record.renewers)
    )


def renew_delegation_token(
    image: MetadataImage,
    settings: ControllerSettings,
    now_ms: int,
    request: RenewDelegationTokenRequest,
    requester: Principal,
) -> Work[ControllerResult[MetadataRecord, RenewDelegationTokenResponse]]:
    """Renew a token that has not expired. The new expiry may be earlier than the old one."""
    tokens = settings.tokens
    token = yield from _found(image, tokens, request.hmac)
    response = RenewDelegationTokenResponse()
    if isinstance(token, ErrorCode):
        response.error_code = token
    elif _has_expired(token, now_ms):
        response.error_code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    elif not _may_renew(token, requester):
        response.error_code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    else:
        period_ms = tokens.expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        response.expiry_timestamp_ms = min(token.max_timestamp, now_ms + period_ms)
        return ControllerResult((_expiring(token, response.expiry_timestamp_ms),), response)
    return ControllerResult((), response)


def expire_delegation_token(
    image: MetadataImage,
    settings: ControllerSettings,
    now_ms: int,
    request: ExpireDelegationTokenRequest,
    requester: Principal,
) -> Work[ControllerResult[MetadataRecord, ExpireDelegationTokenResponse]]:
    """Set a token's expiry. A negative period removes the token at once, even if it has expired."""
    tokens = settings.tokens
    token = yield from _found(image, tokens, request.hmac)
    response = ExpireDelegationTokenResponse()
    if isinstance(token, ErrorCode):
        response.error_code = token
    elif not _may_renew(token, requester):
        response.error_code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    elif request.expiry_time_period_ms < 0:
        response.expiry_timestamp_ms = now_ms
        return ControllerResult((_removal(token.token_id),), response)
    elif _has_expired(token, now_ms):
        response.error_code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    else:
        response.expiry_timestamp_ms = min(token.max_timestamp, now_ms + request.expiry_time_period_ms)
        return ControllerResult((_expiring(token, response.expiry_timestamp_ms),), response)
    return ControllerResult((), response)


def sweep_expired_delegation_tokens(
    image: MetadataImage, now_ms: int
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Remove expired tokens. True: there may be more of them."""
    records: list[MetadataRecord] = []
    for piece in pieces(list(image.delegation_tokens.values()), SCANNED_A_STEP):
        for token in piece:
            if _has_expired(token, now_ms):
                records.append(_removal(token.token_id))
                if len(records) >= MAX_RECORDS_PER_EXPIRATION:
                    break
        if len(records) >= MAX_RECORDS_PER_EXPIRATION:
            break
        yield TURN_COST
    if records:
        logger.info("removing %d expired delegation tokens", len(records))
    return ControllerResult(tuple(records), len(records) >= MAX_RECORDS_PER_EXPIRATION)


def _unavailable(image: MetadataImage, tokens: TokenSettings) -> ErrorCode:
    if tokens.secret is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if metadata_version(image.features) < TOKENS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _found(
    image: MetadataImage, tokens: TokenSettings, hmac: bytes
) -> Work[DelegationTokenRecord | ErrorCode]:
    """The token that is to be changed, or why there is none."""
    unavailable = _unavailable(image, tokens)
    if unavailable:
        return unavailable
    wanted = bytes(hmac)
    for piece in pieces(list(image.delegation_tokens.items()), HASHED_A_STEP):
        for token_id, token in piece:
            if compare_digest(tokens.hmac(token_id), wanted):
                return token
        yield TURN_COST
    return ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def _has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _may_renew(token: DelegationTokenRecord, requester: Principal) -> bool:
    """A requester who created a token for another owner may neither renew nor expire it."""
    principal = f"{requester.type}:{requester.name}"
    return principal == token.owner or principal in token.renewers


def _expiring(token: DelegationTokenRecord, expiry_ms: int) -> MetadataRecord:
    record = DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry_ms,
        token_id=token.token_id,
    )
    return MetadataRecord(record, 0)


def _removal(token_id: str) -> MetadataRecord:
    return MetadataRecord(RemoveDelegationTokenRecord(token_id=token_id), 0)
