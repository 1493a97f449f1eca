"""Requests about delegation tokens: the allowed connections, the rights to tokens, and the content of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api import create_delegation_token
from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_access import authorizer
from kafkacompat.api._tests.test_controller_listener import ListeningController, decoded, envelope
from kafkacompat.api.request_context import RequestContext
from kafkacompat.api.token_requests import allows_token_requests
from kafkacompat.controller.image import DELEGATION_TOKENS, MetadataImage
from kafkacompat.ports.dispatcher import ANONYMOUS, ConnectionInfo, Principal
from kafkacompat.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from kafkacompat.security.delegation_tokens import token_settings
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kafkacompat.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from kafkacompat.wire.messages.default_principal_data import DefaultPrincipalData
from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
from kafkacompat.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkacompat.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from kafkacompat.wire.principal import encode_principal

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
WITH_TOKEN = Principal("User", "alice", True)
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
REQUESTS = (
    CreateDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    DescribeDelegationTokenRequest,
)


def token(token_id: str, owner: str, requester: str = "", renewers: tuple[str, ...] = ()) -> Any:
    return DelegationTokenRecord(
        owner=owner,
        requester=requester or owner,
        renewers=list(renewers),
        issue_timestamp=1,
        expiration_timestamp=2,
        max_timestamp=3,
        token_id=token_id,
    )


def secured(
    principal: Principal = ALICE, *acls: Acl, tokens: Any = (), is_sasl: bool = True, secret: str = "key"
) -> Api:
    """A broker with an authorizer, and a connection of this principal."""
    api = Api(overrides={"delegation.token.secret.key": secret})
    api.node.authorizer = authorizer(*acls)
    api.node.image = MetadataImage(opaque={DELEGATION_TOKENS: {each.token_id: each for each in tokens}})
    api.connection = ConnectionInfo(1, "SAFE", "10.0.0.1", 5555, is_sasl, principal=principal)
    return api


def alice_may(operation: AclOperation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)


@pytest.mark.parametrize(
    ("principal", "is_sasl", "is_forwarded", "is_allowed"),
    [
        (ALICE, True, False, True),
        (ALICE, False, False, True),  # authenticated by a certificate
        (ANONYMOUS, False, False, False),
        (ANONYMOUS, True, False, True),  # a user with this name
        (WITH_TOKEN, True, False, False),
        (ANONYMOUS, False, True, True),
        (WITH_TOKEN, False, True, False),
    ],
)
def test_from_which_connections_tokens_are_asked_for(
    principal: Principal, is_sasl: bool, is_forwarded: bool, is_allowed: bool
) -> None:
    context = RequestContext(38, 3, 1, "test", 1, "SAFE", "127.0.0.1", is_sasl, principal)
    context.is_forwarded = is_forwarded
    assert allows_token_requests(context) is is_allowed


@pytest.mark.parametrize("request_type", REQUESTS)
def test_every_request_by_a_token_is_refused(request_type: Any) -> None:
    api = secured(WITH_TOKEN)
    for version in range(request_type.MIN_VERSION, request_type.MAX_VERSION + 1):
        answer = api.call(request_type(), version)
        assert answer.error_code == NOT_ALLOWED
        for name in ("expiry_timestamp_ms", "issue_timestamp_ms", "max_timestamp_ms"):
            assert getattr(answer, name, -1) == -1
    assert not api.controller.calls


@pytest.mark.parametrize("request_type", REQUESTS[:3])
def test_the_controller_refuses_a_token_behind_an_envelope(request_type: Any) -> None:
    w = ListeningController()
    by_token = DefaultPrincipalData(type="User", name="alice", token_authenticated=True)
    version = request_type.MAX_VERSION
    wrapped = w.call(envelope(request_type(), version, encode_principal(by_token)), 0)
    assert wrapped.error_code == 0
    assert int(NOT_ALLOWED).to_bytes(2, "big") in wrapped.response_data
    assert not w.controller.calls
    w.controller.answer = (
        CreateDelegationTokenResponse()
        if request_type is CreateDelegationTokenRequest
        else ExpireDelegationTokenResponse()
    )
    w.call(envelope(request_type(), version), 0)
    ((_, _, context),) = w.controller.calls
    assert (context.is_forwarded, context.principal) == (True, ALICE)


def create(api: Api, version: int = 3, renewers: tuple[Principal, ...] = (), **owner: Any) -> Any:
    named = [CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers]
    return api.send(CreateDelegationTokenRequest(renewers=named, **owner), version)


OF_BOB = {"owner_principal_type": "User", "owner_principal_name": "bob"}


def test_the_token_of_another_owner_needs_a_right() -> None:
    refused = create(secured(), **OF_BOB)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    assert (refused.issue_timestamp_ms, refused.hmac) == (-1, b"")
    for right in (AclOperation.CREATE_TOKENS, AclOperation.ALL):
        api = secured(ALICE, alice_may(right, ResourceType.USER, "User:bob"))
        create(api, **OF_BOB)
        assert [name for name, _, _ in api.controller.calls] == ["create_delegation_token"]
    for wrong in (
        alice_may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"),
        alice_may(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:carol"),
    ):
        assert create(secured(ALICE, wrong), **OF_BOB).error_code


def test_a_token_of_ones_own_needs_no_right() -> None:
    for owner in ({}, {"owner_principal_type": "User", "owner_principal_name": "alice"}):
        api = secured()
        create(api, **owner)
        assert api.controller.calls


def test_a_renewer_that_is_no_user_is_refused_by_the_broker() -> None:
    api = secured()
    refused = create(api, renewers=(BOB, Principal("Group", "g")))
    assert (refused.error_code, refused.expiry_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)
    assert not api.controller.calls


def test_an_owner_without_a_type_fails_the_request() -> None:
    failed = create(secured(), owner_principal_type=None, owner_principal_name="bob")
    assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (failed.principal_name, failed.token_requester_principal_name) == ("ANONYMOUS", "ANONYMOUS")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_answer_names_the_requester_where_its_version_can(version: int) -> None:
    api = secured()
    pending = create(api, version)
    ((_, _, answer),) = api.controller.calls
    answer.resolve(
        CreateDelegationTokenResponse(
            principal_type="User",
            principal_name="alice",
            token_requester_principal_type="User",
            token_requester_principal_name="alice",
            token_id="id",
            hmac=b"hmac",
        )
    )
    made = api.decoded(pending.reply.result(), 38, version)
    assert (made.token_id, made.hmac) == ("id", b"hmac")
    assert made.token_requester_principal_name == ("alice" if version == 3 else "")
    failed = create_delegation_token.HANDLER.error_response(
        CreateDelegationTokenRequest(), ErrorCode.NOT_CONTROLLER, version
    )
    assert encode(failed, version)


TOKENS = (
    token("mine", "User:alice"),
    token("asked", "User:bob", requester="User:alice"),
    token("renewed", "User:bob", renewers=("User:carol", "User:alice")),
    token("theirs", "User:bob", renewers=("User:carol",)),
    token("robots", "Robot:r2"),
)


def described(api: Api, owners: list[tuple[str, str]] | None = None, version: int = 3) -> list[Any]:
    named = None
    if owners is not None:
        named = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners
        ]
    answer = api.call(DescribeDelegationTokenRequest(owners=named), version)
    assert answer.error_code == 0
    tokens: list[Any] = answer.tokens
    return tokens


@pytest.mark.parametrize(
    ("acls", "seen"),
    [
        ((), ["mine", "asked", "renewed"]),
        (
            (alice_may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "theirs"),),
            ["mine", "asked", "renewed", "theirs"],
        ),
        (
            (alice_may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "Robot:r2"),),
            ["mine", "asked", "renewed", "robots"],
        ),
        ((alice_may(AclOperation.CREATE_TOKENS, ResourceType.USER, "*"),), ["mine", "asked", "renewed"]),
    ],
)
def test_a_user_sees_the_tokens_that_its_entries_permit(acls: tuple[Acl, ...], seen: list[str]) -> None:
    assert [each.token_id for each in described(secured(ALICE, *acls, tokens=TOKENS))] == seen


def test_everybody_sees_all_tokens_without_an_authorizer() -> None:
    api = secured(tokens=TOKENS)
    api.node.authorizer = None
    assert len(described(api)) == len(TOKENS)
    bobs = described(api, [("User", "bob")])
    assert [each.token_id for each in bobs] == ["asked", "renewed", "theirs"]
    assert [each.token_id for each in described(api, [("User", "carol"), ("Robot", "r2")])] == [
        "renewed",
        "theirs",
        "robots",
    ]
    assert described(api, []) == described(api, [("User:bob", "x"), ("Robot", "r3")]) == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_is_told_of_a_token(version: int) -> None:
    api = secured(tokens=TOKENS[2:3])
    (told,) = described(api, version=version)
    assert (told.principal_type, told.principal_name) == ("User", "bob")
    assert told.token_requester_principal_name == ("bob" if version == 3 else "")
    assert (told.issue_timestamp, told.expiry_timestamp, told.max_timestamp) == (1, 2, 3)
    assert told.hmac == token_settings(api.node.config).hmac("renewed")
    assert [each.principal_name for each in told.renewers] == ["carol", "alice"]


def test_without_a_secret_key_no_token_is_described() -> None:
    answer = secured(secret="", tokens=TOKENS).call(DescribeDelegationTokenRequest(owners=[]), 3)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_the_controller_asks_for_the_right_itself() -> None:
    w = ListeningController()
    w.node.authorizer = authorizer()
    w.connection = ConnectionInfo(9, "CONTROLLER", "127.0.0.1", 5, True, principal=ALICE)
    request = CreateDelegationTokenRequest(**OF_BOB)
    assert w.call(request, 3).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert not w.controller.calls
    w.controller.answer = CreateDelegationTokenResponse()
    robots = [CreatableRenewers(principal_type="Robot", principal_name="r2")]
    reply = w.dispatch(CreateDelegationTokenRequest(renewers=robots), 3)
    assert decoded(reply, 38, 3).error_code == 0, "the controller's command judges renewers"
