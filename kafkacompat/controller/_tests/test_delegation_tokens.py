"""Delegation tokens in the controller: creation, changes by owners and renewers, and removal."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.api.request_context import RequestContext
from kafkacompat.controller import delegation_token_control_manager as module
from kafkacompat.controller._tests.clusters import after, cluster, settings
from kafkacompat.controller._tests.harness import Harness
from kafkacompat.controller.delegation_token_control_manager import (
    change_tokens,
    sweep_expired_delegation_tokens,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.controller.snapshot_records import image_records
from kafkacompat.ports.dispatcher import Principal
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
SECRET = "a secret key"
DAY, WEEK = 86_400_000, 604_800_000
NOW = 1_000_000


class Tokens:
    """A cluster's image, changed by one command after another."""

    def __init__(self, image: MetadataImage | None = None, **properties: str) -> None:
        self.image = image or cluster()
        self.settings = settings(**{"delegation_token_secret_key": SECRET, **properties})
        self.random = CountingRandom()
        self.now_ms = NOW

    def change(self, request: Any, asker: Principal) -> Any:
        result = at_once(change_tokens(self.image, self.settings, self.random, self.now_ms, request, asker))
        self.image = after(self.image, result)
        assert not (result.records and result.response.error_code)
        return result.response

    def create(
        self, asker: Principal = ALICE, renewers: Any = (), lifetime_ms: int = -1, **owner: Any
    ) -> Any:
        named = [CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers]
        request = CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=lifetime_ms, **owner)
        return self.change(request, asker)

    def renew(self, token_hmac: bytes, asker: Principal = ALICE, period_ms: int = -1) -> Any:
        return self.change(RenewDelegationTokenRequest(hmac=token_hmac, renew_period_ms=period_ms), asker)

    def expire(self, token_hmac: bytes, asker: Principal = ALICE, period_ms: int = -1) -> Any:
        request = ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period_ms=period_ms)
        return self.change(request, asker)

    @property
    def kept(self) -> list[Any]:
        return list(self.image.delegation_tokens.values())


def test_a_token_is_its_id_and_the_hmac_of_the_id() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=[BOB])
    assert made.error_code == 0
    assert made.hmac == hmac.digest(SECRET.encode(), made.token_id.encode(), hashlib.sha512)
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert (made.token_requester_principal_type, made.token_requester_principal_name) == ("User", "alice")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        NOW,
        NOW + DAY,
        NOW + WEEK,
    )
    (kept,) = tokens.kept
    assert (kept.owner, kept.requester, kept.renewers) == ("User:alice", "User:alice", ["User:bob"])
    assert (kept.token_id, kept.issue_timestamp) == (made.token_id, NOW)
    assert (kept.expiration_timestamp, kept.max_timestamp) == (NOW + DAY, NOW + WEEK)


def test_a_token_may_belong_to_somebody_else_than_its_requester() -> None:
    tokens = Tokens()
    made = tokens.create(owner_principal_type="Robot", owner_principal_name="r2")
    assert (made.principal_type, made.principal_name) == ("Robot", "r2")
    assert made.token_requester_principal_name == "alice"
    assert (tokens.kept[0].owner, tokens.kept[0].requester) == ("Robot:r2", "User:alice")


@pytest.mark.parametrize("nobody", ["", None])
def test_without_an_owner_the_requester_is_the_owner(nobody: str | None) -> None:
    tokens = Tokens()
    assert tokens.create(owner_principal_type=nobody, owner_principal_name=nobody).principal_name == "alice"


@pytest.mark.parametrize(
    ("asked_ms", "properties", "expiry_ms", "max_ms"),
    [
        (-1, {}, DAY, WEEK),
        (0, {}, DAY, WEEK),
        (500, {}, 500, 500),
        (2 * WEEK, {}, DAY, WEEK),
        (2**63 - 1, {}, DAY, WEEK),
        (-1, {"delegation_token_max_lifetime_ms": "100"}, 100, 100),
        (-1, {"delegation_token_expiry_time_ms": "100"}, 100, WEEK),
    ],
)
def test_how_long_a_token_lives(asked_ms: int, properties: Any, expiry_ms: int, max_ms: int) -> None:
    made = Tokens(**properties).create(lifetime_ms=asked_ms)
    assert (made.expiry_timestamp_ms - NOW, made.max_timestamp_ms - NOW) == (expiry_ms, max_ms)


def test_times_end_where_their_fields_end() -> None:
    most = str(2**63 - 1)
    tokens = Tokens(delegation_token_max_lifetime_ms=most, delegation_token_expiry_time_ms=most)
    made = tokens.create()
    assert (made.expiry_timestamp_ms, made.max_timestamp_ms) == (2**63 - 1, 2**63 - 1)
    assert tokens.renew(made.hmac).expiry_timestamp_ms == 2**63 - 1
    assert tokens.expire(made.hmac, period_ms=2**63 - 1).expiry_timestamp_ms == 2**63 - 1


def test_a_renewer_is_a_user() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=[BOB, Principal("Group", "g")])
    assert (made.error_code, made.token_id, made.hmac) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "", b"")
    assert not tokens.kept


def test_what_does_not_fit_a_record_is_refused() -> None:
    tokens = Tokens()
    assert tokens.create(renewers=[Principal("User", "n" * 32_762)]).error_code == 0
    long = tokens.create(renewers=[Principal("User", "n" * 32_763)])
    assert long.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert tokens.create(renewers=[BOB] * module.RENEWERS_MAX).error_code == 0
    many = tokens.create(renewers=[BOB] * (module.RENEWERS_MAX + 1))
    assert many.error_code == ErrorCode.POLICY_VIOLATION
    assert len(tokens.kept) == 2


def test_owner_and_renewers_renew_a_token_up_to_its_last_moment() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=[BOB])
    tokens.now_ms += 1_000
    for asker, period_ms, expected_ms in ((ALICE, -1, DAY), (BOB, 5_000, 5_000), (BOB, 2 * DAY, DAY)):
        renewed = tokens.renew(made.hmac, asker, period_ms)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, tokens.now_ms + expected_ms)
        assert tokens.kept[0].expiration_timestamp == renewed.expiry_timestamp_ms
    assert (tokens.kept[0].renewers, tokens.kept[0].issue_timestamp) == (["User:bob"], NOW)
    short = tokens.create(lifetime_ms=10_000)
    assert tokens.renew(short.hmac).expiry_timestamp_ms == short.max_timestamp_ms


def test_others_neither_renew_nor_expire_a_token_not_even_its_requester() -> None:
    tokens = Tokens()
    made = tokens.create(CAROL, owner_principal_type="User", owner_principal_name="alice")
    for change in (tokens.renew, tokens.expire):
        for asker in (BOB, CAROL):
            refused = change(made.hmac, asker)
            assert (refused.error_code, refused.expiry_timestamp_ms) == (
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                0,
            )
        assert change(made.hmac, ALICE).error_code == 0


def test_an_unknown_hmac_is_told_first() -> None:
    tokens = Tokens()
    made = tokens.create()
    for change in (tokens.renew, tokens.expire):
        for wrong in (b"", made.hmac[:-1], bytes(64)):
            assert change(wrong, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_is_removed_and_not_renewed() -> None:
    tokens = Tokens()
    made = tokens.create(lifetime_ms=100)
    tokens.now_ms = made.max_timestamp_ms
    assert tokens.renew(made.hmac).error_code == 0
    tokens.now_ms += 1
    assert tokens.renew(made.hmac, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire(made.hmac, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.expire(made.hmac, period_ms=0).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    removed = tokens.expire(made.hmac, period_ms=-1)
    assert (removed.error_code, removed.expiry_timestamp_ms, tokens.kept) == (0, tokens.now_ms, [])


def test_an_expiry_may_be_set() -> None:
    tokens = Tokens()
    made = tokens.create()
    assert tokens.expire(made.hmac, period_ms=7).expiry_timestamp_ms == NOW + 7
    assert tokens.kept[0].expiration_timestamp == NOW + 7
    assert tokens.expire(made.hmac, period_ms=2 * WEEK).expiry_timestamp_ms == made.max_timestamp_ms


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_secret_key_there_are_no_tokens(key: str | None) -> None:
    properties = {} if key is None else {"delegation_token_secret_key": key}
    tokens = Tokens()
    made = tokens.create()
    tokens.settings = settings(**properties)
    disabled = tokens.create()
    assert (disabled.error_code, disabled.principal_name, disabled.issue_timestamp_ms) == (
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        "alice",
        0,
    )
    for change in (tokens.renew, tokens.expire):
        assert change(made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize(("level", "code"), [(13, ErrorCode.UNSUPPORTED_VERSION), (14, ErrorCode.NONE)])
def test_the_metadata_version_must_know_tokens(level: int, code: ErrorCode) -> None:
    tokens = Tokens(cluster(features={"metadata.version": level}))
    assert tokens.create().error_code == code
    if code:
        assert tokens.renew(b"").error_code == tokens.expire(b"").error_code == code


def test_the_sweep_removes_what_has_expired_in_bounded_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS_PER_EXPIRATION", 2)
    tokens = Tokens()
    for _ in range(3):
        tokens.create(lifetime_ms=100)
    lasting = tokens.create()
    rounds = []
    for _ in range(3):
        result = at_once(sweep_expired_delegation_tokens(tokens.image, NOW + 101))
        tokens.image = after(tokens.image, result)
        rounds.append((len(result.records), result.response))
    assert rounds == [(2, True), (1, False), (0, False)]
    assert [each.token_id for each in tokens.kept] == [lasting.token_id]


def test_a_snapshot_has_the_tokens() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=[BOB])
    delta = MetadataDelta(MetadataImage())
    for record in image_records(tokens.image):
        assert record.message.API_KEY is not None
        delta.replay(record.message.API_KEY, record.message)
    tokens.image = delta.apply(1, 1)
    assert tokens.renew(made.hmac, BOB).error_code == 0


def test_no_secret_is_shown() -> None:
    tokens = Tokens()
    assert SECRET not in repr(tokens.settings.tokens)


def asked_by(principal: Principal) -> RequestContext:
    return RequestContext(38, 3, 1, "test", 7, "CONTROLLER", "127.0.0.1", True, principal)


def started(**properties: str) -> Harness:
    return Harness(properties={"delegation.token.secret.key": SECRET, **properties}).start()


def of_alice(harness: Harness, command: str, request: Any) -> Any:
    answer = getattr(harness.controller, command)(request, asked_by(ALICE))
    harness.workers.run_all()
    return answer.result()


def test_the_log_keeps_tokens_and_the_controller_removes_them_in_its_rounds() -> None:
    harness = started(**{"delegation.token.expiry.check.interval.ms": "500"})
    made = of_alice(harness, "create_delegation_token", CreateDelegationTokenRequest(max_lifetime_ms=1_200))
    assert (made.error_code, list(harness.image.delegation_tokens)) == (0, [made.token_id])
    again = harness.after_kill().start()
    request = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=900)
    assert of_alice(again, "renew_delegation_token", request).error_code == 0
    for elapsed_ms, is_there in ((900, True), (600, False)):
        again.world.advance(elapsed_ms)
        again.workers.run_all()
        assert (made.token_id in again.image.delegation_tokens) is is_there
    request_to_expire = ExpireDelegationTokenRequest(hmac=made.hmac)
    gone = of_alice(again, "expire_delegation_token", request_to_expire)
    assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
