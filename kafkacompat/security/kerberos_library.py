"""Security contexts of Kerberos, made by the optional library gssapi (kafkacompat[gssapi]) on the system's libgssapi.

The library reads keytabs, ticket caches and krb5.conf (KRB5_CONFIG), writes the replay cache, and on the client's side
asks the key distribution center. Every call of a context may block.
"""

from __future__ import annotations

import itertools
from typing import Any

import gssapi

from kafkacompat.security.gssapi import GssRefused

_CACHES = itertools.count()


class LibraryContext:
    """A GssContext."""

    def __init__(self, context: Any) -> None:
        # A failed step raises at once. Java's side sends no error token either.
        context.__DEFER_STEP_ERRORS__ = False
        self._context = context

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token) or b""
        except gssapi.exceptions.GSSError as error:
            raise refused(error) from None

    def wrap(self, message: bytes) -> bytes:
        try:
            wrapped: bytes = self._context.wrap(message, False).message
        except gssapi.exceptions.GSSError as error:
            raise refused(error) from None
        return wrapped

    def unwrap(self, message: bytes) -> bytes:
        try:
            unwrapped: bytes = self._context.unwrap(message).message
        except gssapi.exceptions.GSSError as error:
            raise refused(error) from None
        return unwrapped


class Acceptor:
    """A service with its keytab. A key that is added to the file later counts without a restart. Raises GssRefused."""

    def __init__(self, principal: str, keytab: str | None) -> None:
        store = None if keytab is None else {"keytab": keytab}
        self._credentials = _credentials(principal, "accept", store)

    def begin(self) -> LibraryContext:
        return LibraryContext(gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class Initiator:
    """A client with its keytab or its ticket cache. Tickets are renewed when they are needed."""

    def __init__(
        self,
        service: str,
        principal: str | None,
        keytab: str | None,
        uses_ticket_cache: bool,
        ticket_cache: str | None,
    ) -> None:
        """The fields of a KerberosLogin."""
        self._service = service
        self._principal = principal
        self._store: dict[str, str] | None = None
        if not uses_ticket_cache:
            # Tickets by a keytab stay in memory, for all exchanges of this client.
            self._store = {"ccache": f"MEMORY:kafkacompat-{next(_CACHES)}"}
            if keytab is not None:
                self._store["client_keytab"] = keytab
        elif ticket_cache is not None:
            self._store = {"ccache": ticket_cache}

    def begin(self, host: str) -> LibraryContext:
        """A context for the service on this host. Raises GssRefused."""
        credentials = _credentials(self._principal, "initiate", self._store)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        try:
            name = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(
                name=name, creds=credentials, flags=flags, mech=gssapi.MechType.kerberos, usage="initiate"
            )
        except gssapi.exceptions.GSSError as error:
            raise refused(error) from None
        return LibraryContext(context)


def default_realm() -> str:
    """Of krb5.conf; empty if there is none."""
    try:
        name = gssapi.Name("name", gssapi.NameType.kerberos_principal)
        return str(name.canonicalize(gssapi.MechType.kerberos)).partition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""


def refused(error: Any) -> GssRefused:
    """The library's error, with its reason and without its numbers."""
    codes = ((error.min_code, False), (error.maj_code, True)) if error.min_code else ((error.maj_code, True),)
    reasons = [str(each) for code, is_major in codes for each in error.get_all_statuses(code, is_major)]
    return GssRefused("; ".join(reasons) or type(error).__name__)


def _credentials(principal: str | None, usage: str, store: dict[str, str] | None) -> Any:
    """Raises GssRefused."""
    try:
        name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name, usage=usage, mechs=[gssapi.MechType.kerberos], store=store)
    except gssapi.exceptions.GSSError as error:
        raise refused(error) from None
