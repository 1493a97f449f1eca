"""DescribeDelegationToken (key 41): the tokens that the sender may see, with their HMACs, from this
broker's image.

The owner, the requester and the renewers may see a token. Others need DESCRIBE on the token, or DESCRIBE_TOKENS on its
owner (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.token_requests import allows_token_requests
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.security.delegation_tokens import is_owner_or_renewer, principal_of, token_settings
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.access import Access
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
    from kafkacompat.wire.messages.describe_delegation_token_request import (
        DescribeDelegationTokenRequest,
    )

REQUESTER_SINCE = 3
"""The version whose response names each token's requester."""
JUDGED_A_STEP = 500
"""Tokens per step. One takes up to twenty microseconds."""
RENEWERS_LIKE_A_TOKEN = 10
"""The renewers of a token that take as long to describe as one more token."""


def handle(
    node: Node, context: RequestContext, request: DescribeDelegationTokenRequest
) -> Work[DescribeDelegationTokenResponse]:
    if not allows_token_requests(context):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    settings = token_settings(node.config)
    if settings.secret is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    pace = Pace(JUDGED_A_STEP)
    owners: set[str] | None = None
    if request.owners is not None:
        owners = set()
        for each in request.owners:
            # A stored principal's type ends at its first colon, so no stored principal has this type.
            if ":" not in each.principal_type:
                owners.add(f"{each.principal_type}:{each.principal_name}")
            if pace.is_over():
                yield TURN_COST
    sender = f"{context.principal.type}:{context.principal.name}"
    access = access_of(node, context)
    described: list[DescribedDelegationToken] = []
    for token in list(node.image.delegation_tokens.values()):
        if _is_wanted(token, owners) and _may_see(token, sender, access):
            described.append(_described(token, settings.hmac(token.token_id), context.api_version))
        if pace.is_over(1 + len(token.renewers) // RENEWERS_LIKE_A_TOKEN):
            yield TURN_COST
    return DescribeDelegationTokenResponse(tokens=described)


def _is_wanted(token: DelegationTokenRecord, owners: set[str] | None) -> bool:
    """Whether the token is selected. `owners` also select the tokens that they requested and those that they may renew."""
    if owners is None:
        return True
    return token.owner in owners or token.requester in owners or not owners.isdisjoint(token.renewers)


def _may_see(token: DelegationTokenRecord, sender: str, access: Access | None) -> bool:
    if access is None or is_owner_or_renewer(token, sender):
        return True
    return access.allows(
        AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
    ) or access.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)


def _described(token: DelegationTokenRecord, hmac: bytes, version: int) -> DescribedDelegationToken:
    kind, name = principal_of(token.owner)
    renewers = [
        DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
        for kind, name in map(principal_of, token.renewers)
    ]
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=renewers,
    )
    if version >= REQUESTER_SINCE:
        requester = principal_of(token.requester)
        described.token_requester_principal_type, described.token_requester_principal_name = requester
    return described


HANDLER = Handler(handle, top_level_error(DescribeDelegationTokenResponse))
