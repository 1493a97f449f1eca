"""DescribeUserScramCredentials: each user's mechanisms, and failures of whole requests of both APIs."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api import alter_user_scram_credentials
from kafkacompat.api import describe_user_scram_credentials as module
from kafkacompat.api._tests.kit import Api
from kafkacompat.controller.image import SCRAM_CREDENTIALS
from kafkacompat.wire.codec import encoder
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkacompat.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord


def api(*users: tuple[str, int, int]) -> Api:
    made = Api()
    kept = {
        (name, mechanism): UserScramCredentialRecord(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=b"SALT",
            stored_key=b"STORED",
            server_key=b"SERVER",
        )
        for name, mechanism, iterations in users
    }
    made.node.image = made.node.image.__class__(opaque={SCRAM_CREDENTIALS: kept})
    return made


def described(answer: Any) -> list[tuple[str, int, str | None, list[tuple[int, int]]]]:
    assert (answer.error_code, answer.error_message) == (0, "")
    return [
        (
            each.user,
            each.error_code,
            each.error_message,
            [(i.mechanism, i.iterations) for i in each.credential_infos],
        )
        for each in answer.results
    ]


@pytest.mark.parametrize("users", [None, []])
@pytest.mark.parametrize("step", [1, 2, 5000])
def test_all_users_are_described(users: Any, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USERS_A_STEP", step)
    answer = api(("bob", 1, 4096), ("alice", 2, 8192), ("alice", 1, 5000)).call(
        DescribeUserScramCredentialsRequest(users=users), 0
    )
    assert described(answer) == [
        ("alice", 0, "", [(1, 5000), (2, 8192)]),
        ("bob", 0, "", [(1, 4096)]),
    ]


@pytest.mark.parametrize("step", [1, 5000])
def test_named_users_are_answered_each(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USERS_A_STEP", step)
    names = [UserName(name=name) for name in ("bob", "carol", "alice", "carol", "dave")]
    answer = api(("bob", 1, 4096), ("alice", 2, 8192), ("carol", 1, 4096)).call(
        DescribeUserScramCredentialsRequest(users=names), 0
    )
    assert described(answer) == [
        ("bob", 0, "", [(1, 4096)]),
        (
            "carol",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: carol",
            [],
        ),
        ("alice", 0, "", [(2, 8192)]),
        (
            "dave",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: dave",
            [],
        ),
    ]


def test_nothing_that_is_kept_of_a_password_is_told() -> None:
    answer = api(("alice", 1, 4096)).call(DescribeUserScramCredentialsRequest(users=None), 0)
    out = bytearray()
    encoder(type(answer), 0)(answer, out)
    assert b"alice" in out
    assert not any(secret in out for secret in (b"SALT", b"STORED", b"SERVER"))


def test_a_failure_of_the_whole_is_each_users() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="b"), ScramCredentialDeletion(name="a")],
        upsertions=[ScramCredentialUpsertion(name="c"), ScramCredentialUpsertion(name="a")],
    )
    failed = alter_user_scram_credentials.HANDLER.error_response(request, ErrorCode.NOT_CONTROLLER, 0)
    assert [(each.user, each.error_code) for each in failed.results] == [
        (user, ErrorCode.NOT_CONTROLLER) for user in ("a", "b", "c")
    ]
