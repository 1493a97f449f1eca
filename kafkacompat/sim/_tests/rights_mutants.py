"""Bugs planted in authentication and authorization. The oracle of rights must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from kafkacompat.api import fetch, sasl_dispatch
from kafkacompat.ids import Uuid
from kafkacompat.node import forwarding_manager
from kafkacompat.ports.dispatcher import ANONYMOUS
from kafkacompat.security import authorizer
from kafkacompat.security.acl import Acl
from kafkacompat.security.authorizer import StandardAuthorizer
from kafkacompat.security.delegation_tokens import TokenCredential, TokenCredentials
from kafkacompat.security.sasl_authenticator import SaslServerAuthenticator
from kafkacompat.server import authentication
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def deleted_entries_stay(patch: pytest.MonkeyPatch) -> None:
    """The authorizer only adds entries."""
    original = StandardAuthorizer.update
    patch.setattr(
        StandardAuthorizer,
        "update",
        lambda self, acls, changed: original(self, {**self._acls, **acls}),
    )


def new_entries_are_not_taken(patch: pytest.MonkeyPatch) -> None:
    """Until entries are deleted, or the node starts again."""
    original = StandardAuthorizer.update

    def update(self: StandardAuthorizer, acls: Mapping[Uuid, Acl], changed: Iterable[Uuid] | None) -> None:
        if not self._acls or not self._acls.keys() <= acls.keys():
            original(self, acls)

    patch.setattr(StandardAuthorizer, "update", update)


def entries_for_everyone_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """Neither what everyone may do, nor what nobody may."""
    patch.setattr(authorizer, "WILDCARD_PRINCIPAL", "User:")


def prefixes_are_names(patch: pytest.MonkeyPatch) -> None:
    """An entry for a prefix applies to no resource."""
    original = StandardAuthorizer.update

    def update(self: StandardAuthorizer, acls: Mapping[Uuid, Acl], changed: Iterable[Uuid] | None) -> None:
        original(self, acls, changed)
        for names in self._names.values():
            names.lengths = []

    patch.setattr(StandardAuthorizer, "update", update)


def a_right_to_read_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A node looks a principal's right to read a topic up once."""
    original = fetch._readable
    kept: dict[tuple[int, str, str | None], bool] = {}

    def readable(access: Any, replica_id: int) -> Callable[[str | None], bool] | None:
        may_read = original(access, replica_id)
        if may_read is None:
            return None
        who = id(access._authorizer), access._asker.principal

        def remembered(topic: str | None) -> bool:
            if (*who, topic) not in kept:
                kept[*who, topic] = may_read(topic)
            return kept[*who, topic]

        return remembered

    patch.setattr(fetch, "_readable", readable)


def brokers_forward_in_their_own_name(patch: pytest.MonkeyPatch) -> None:
    """The controller takes the broker for the sender."""
    original = forwarding_manager._envelope

    async def envelope(context: Any, request: Any) -> Any:
        before, context.principal = context.principal, ANONYMOUS
        try:
            return await original(context, request)
        finally:
            context.principal = before

    patch.setattr(forwarding_manager, "_envelope", envelope)


def credentials_are_kept(patch: pytest.MonkeyPatch) -> None:
    """A node looks a user's credential up once."""
    original = authentication.mechanisms_by_listener

    def mechanisms_by_listener(config: Any, endpoints: Any, credential_of: Any, *given: Any) -> Any:
        kept: dict[Any, Any] = {}

        def remembered(user: str, mechanism: Any) -> Any:
            found = kept.get((user, mechanism.name))
            if found is None:
                found = kept[user, mechanism.name] = credential_of(user, mechanism)
            return found

        return original(config, endpoints, remembered, *given)

    patch.setattr(authentication, "mechanisms_by_listener", mechanisms_by_listener)


def tokens_outlive_their_removal(patch: pytest.MonkeyPatch) -> None:
    """A token that was used once stays valid at that node."""
    original = TokenCredentials.of
    kept: dict[tuple[int, str, str], TokenCredential] = {}

    def of(self: TokenCredentials, token_id: str, token: Any, mechanism: Any) -> TokenCredential | None:
        found = original(self, token_id, token, mechanism)
        key = id(self), token_id, mechanism.name
        if found is None:
            return kept.get(key)
        kept[key] = found
        return found

    patch.setattr(TokenCredentials, "of", of)


def sessions_outlive_their_tokens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SaslServerAuthenticator, "has_expired", lambda self, now_ms: False)


def nobody_has_to_authenticate(patch: pytest.MonkeyPatch) -> None:
    """A connection is served without an exchange."""
    original = sasl_dispatch.SaslDispatcher.dispatch

    def dispatch(self: Any, connection: Any, frame: memoryview) -> Any:
        is_new = connection.connection_id not in self._authenticators
        if is_new and int.from_bytes(frame[:2], "big") not in (17, 36):
            return self.served.dispatch(connection, frame)
        return original(self, connection, frame)

    patch.setattr(sasl_dispatch.SaslDispatcher, "dispatch", dispatch)


def tokens_get_tokens(patch: pytest.MonkeyPatch) -> None:
    """Whoever has shown a token is taken for its owner in every respect."""
    original = sasl_dispatch.Principal
    patch.setattr(sasl_dispatch, "Principal", lambda kind, name, token=False: original(kind, name, False))


RIGHTS_MUTANTS: tuple[Plant, ...] = (
    deleted_entries_stay,
    new_entries_are_not_taken,
    entries_for_everyone_do_not_count,
    prefixes_are_names,
    a_right_to_read_is_kept,
    brokers_forward_in_their_own_name,
    credentials_are_kept,
    tokens_outlive_their_removal,
    sessions_outlive_their_tokens,
    nobody_has_to_authenticate,
    tokens_get_tokens,
)
RIGHTS_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "deleted_entries_stay": 13,
    "new_entries_are_not_taken": 8,
    "entries_for_everyone_do_not_count": 8,
    "prefixes_are_names": (51, 49, 39),
    "a_right_to_read_is_kept": 48,
    "brokers_forward_in_their_own_name": 8,
    "credentials_are_kept": 8,
    "tokens_outlive_their_removal": (13, 26),
    "sessions_outlive_their_tokens": 8,
    "nobody_has_to_authenticate": 8,
    "tokens_get_tokens": 26,
}
