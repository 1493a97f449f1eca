"""AlterUserScramCredentials: records and refusals, user by user."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.controller import scram_control_manager as module
from kafkacompat.controller._tests.clusters import after, cluster
from kafkacompat.controller.scram_control_manager import alter_user_scram_credentials
from kafkacompat.security.scram import SCRAM_MECHANISMS, SCRAM_SHA_256, ScramMechanism
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

UNACCEPTABLE, TWICE, UNKNOWN = (
    ErrorCode.UNACCEPTABLE_CREDENTIAL,
    ErrorCode.DUPLICATE_RESOURCE,
    ErrorCode.RESOURCE_NOT_FOUND,
)


def upsertion(name: str = "alice", mechanism: int = 1, iterations: int = 4096, **others: Any) -> Any:
    values = {"salt": b"salt", "salted_password": b"salted", **others}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, **values)


def deletion(name: str = "alice", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(image: Any, upsertions: Any = (), deletions: Any = ()) -> Any:
    return at_once(
        alter_user_scram_credentials(
            image, AlterUserScramCredentialsRequest(upsertions=list(upsertions), deletions=list(deletions))
        )
    )


def told(result: Any) -> dict[str, tuple[int, str | None]]:
    users = {each.user: (each.error_code, each.error_message) for each in result.response.results}
    assert len(users) == len(result.response.results)
    return users


def test_credentials_are_refused_below_the_metadata_version_that_has_their_records() -> None:
    def changed(level: int) -> dict[str, tuple[int, str | None]]:
        image = cluster(features={"metadata.version": level})
        changes = [upsertion("bob"), upsertion("bob"), upsertion("carol", mechanism=9)]
        result = alter(image, changes, [deletion("alice")])
        assert result.records == ()
        return told(result)

    text = "The current metadata.version does not support SCRAM"
    assert changed(10) == dict.fromkeys(("alice", "bob", "carol"), (ErrorCode.UNSUPPORTED_VERSION, text))
    assert ErrorCode.UNSUPPORTED_VERSION not in {code for code, _ in changed(11).values()}


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS, ids=lambda each: each.name)
def test_what_is_kept_lets_the_password_in_and_is_not_what_was_sent(mechanism: ScramMechanism) -> None:
    salted = mechanism.salted_password("secret", b"salt", 4096)
    result = alter(cluster(), [upsertion(mechanism=mechanism.type, salted_password=salted)])
    assert told(result) == {"alice": (0, None)}
    kept = after(cluster(), result).scram_credentials["alice", mechanism.type]
    assert (kept.salt, kept.stored_key, kept.server_key, kept.iterations) == tuple(
        mechanism.credential(b"salt", salted, 4096)
    )
    assert salted not in (kept.salt, kept.stored_key, kept.server_key)


def test_a_credential_is_replaced_and_deleted_for_its_mechanism_alone() -> None:
    image = cluster()
    for mechanism in (1, 2):
        image = after(image, alter(image, [upsertion(mechanism=mechanism)]))
    image = after(image, alter(image, [upsertion(iterations=8192)]))
    assert {key: kept.iterations for key, kept in image.scram_credentials.items()} == {
        ("alice", 1): 8192,
        ("alice", 2): 4096,
    }
    result = alter(image, deletions=[deletion(mechanism=2)])
    assert told(result) == {"alice": (0, None)}
    assert set(after(image, result).scram_credentials) == {("alice", 1)}


@pytest.mark.parametrize(
    ("alteration", "code", "text"),
    [
        (upsertion(name=""), UNACCEPTABLE, "Username must not be empty"),
        (upsertion(iterations=4095), UNACCEPTABLE, "Too few iterations"),
        (upsertion(mechanism=2, iterations=-1), UNACCEPTABLE, "Too few iterations"),
        (upsertion(iterations=16385), UNACCEPTABLE, "Too many iterations"),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(salted_password=b""), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (deletion(name=""), UNACCEPTABLE, "Username must not be empty"),
        (deletion(mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion(), UNKNOWN, "Attempt to delete a user credential that does not exist"),
    ],
)
def test_one_is_refused_and_the_other_is_not(alteration: Any, code: ErrorCode, text: str | None) -> None:
    is_deletion = isinstance(alteration, ScramCredentialDeletion)
    upsertions = [upsertion("bob")] if is_deletion else [alteration, upsertion("bob", iterations=16384)]
    result = alter(cluster(), upsertions, [alteration] if is_deletion else [])
    assert told(result) == {alteration.name: (code, text), "bob": (0, None)}
    assert [record.message.name for record in result.records] == ["bob"]


@pytest.mark.parametrize("size", [1, 200])
def test_a_user_that_is_named_twice_is_left_as_before(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    whole = module.pieces
    monkeypatch.setattr(module, "pieces", lambda items, _: whole(items, size))
    image = after(cluster(), alter(cluster(), [upsertion(), upsertion("bob")]))
    result = alter(
        image, [upsertion(mechanism=2), upsertion("bob"), upsertion("bob", 2), upsertion("bob")], [deletion()]
    )
    text = "A user credential cannot be altered twice in the same request"
    assert told(result) == {"alice": (TWICE, text), "bob": (TWICE, text)}
    assert not result.records


def test_too_many_at_once_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS_PER_OPERATION", 2)
    users = [upsertion("a"), upsertion("b"), upsertion("")]
    assert len(alter(cluster(), users).records) == 2
    result = alter(cluster(), [*users, upsertion("c")])
    assert {code for code, _ in told(result).values()} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert (set(told(result)), result.records) == ({"a", "b", "c", ""}, ())


def test_a_mechanism_keeps_its_bounds() -> None:
    assert (SCRAM_SHA_256.min_iterations, SCRAM_SHA_256.max_iterations) == (4096, 16384)
