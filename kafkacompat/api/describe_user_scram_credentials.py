"""DescribeUserScramCredentials (key 50): the users' mechanisms and iteration counts, never the stored keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.tasks import TURN_COST, Work, sorted_in_steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.describe_user_scram_credentials_request import (
        DescribeUserScramCredentialsRequest,
    )

USERS_A_STEP = 2_000
"""Users per step. One takes one to three microseconds."""
NAME_TOLD_MAX = 8_000
"""Characters of a user name that an error message repeats. A string of the protocol has at most 32,767 bytes."""
UNKNOWN_TEXT = "Attempt to describe a user credential that does not exist: "
TWICE_TEXT = "Cannot describe SCRAM credentials for the same user twice in a single request: "


def handle(
    node: Node, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Work[DescribeUserScramCredentialsResponse]:
    found: dict[str, list[CredentialInfo]] = {}
    credentials = node.image.scram_credentials
    for number, name in enumerate((yield from sorted_in_steps(credentials)), 1):
        told = CredentialInfo(mechanism=name[1], iterations=credentials[name].iterations)
        found.setdefault(name[0], []).append(told)
        if number % USERS_A_STEP == 0:
            yield TURN_COST
    asked: dict[str, bool] = {} if request.users else dict.fromkeys(found, False)
    for number, each in enumerate(request.users or (), 1):
        asked[each.name] = each.name in asked
        if number % USERS_A_STEP == 0:
            yield TURN_COST
    results = []
    for number, (user, is_twice) in enumerate(asked.items(), 1):
        if is_twice:
            results.append(_refused(user, ErrorCode.DUPLICATE_RESOURCE, TWICE_TEXT))
        elif user in found:
            results.append(_described(user, found[user]))
        else:
            results.append(_refused(user, ErrorCode.RESOURCE_NOT_FOUND, UNKNOWN_TEXT))
        if number % USERS_A_STEP == 0:
            yield TURN_COST
    return DescribeUserScramCredentialsResponse(results=results)


def _described(user: str, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _refused(user: str, code: ErrorCode, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=text + user[:NAME_TOLD_MAX]
    )


def error_response(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, version: int
) -> DescribeUserScramCredentialsResponse:
    refused = DescribeUserScramCredentialsResult(error_code=code, error_message=None)
    results = [refused] * len(request.users or ())
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=results)


HANDLER = Handler(handle, error_response)
