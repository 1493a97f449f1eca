"""Exchanges of GSSAPI by hand, valid and damaged ones, and what a broker answers, without what differs between two runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from interop_tests.harness.kdc import HOST, REALM, Kdc
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence, frame
from interop_tests.security.kerberos import ALICE, BOB, CAROL, NAMED, OTHER_SERVICE, SERVICE

CLOSED, WAITS = "closed", "waits"
ANSWER_S = 30.0
CHOICE = b"\1\0\0\0"
SIGNED = bytes.fromhex("0504")
"""The first bytes of a signed message (RFC 4121)."""


@contextmanager
def environment(kdc: Kdc) -> Iterator[None]:
    """The Kerberos library of this process uses the realm."""
    before = {name: os.environ.get(name) for name in kdc.environment}
    os.environ.update(kdc.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Talk:
    """One connection of a client with a keytab."""

    def __init__(self, address: str, kdc: Kdc) -> None:
        self._connection = Connection(address, ANSWER_S)
        self._kdc = kdc
        self.context: Any = None

    def close(self) -> None:
        self._connection.close()

    def handshake(self, version: int = 1) -> Any:
        return self._heard(lambda: self._call("SaslHandshake", version, {"Mechanism": "GSSAPI"})["ErrorCode"])

    def ticket(self, principal: str = ALICE, service: str = SERVICE, mutual: bool = True) -> bytes:
        """The client's first token."""
        import gssapi

        flags = gssapi.RequirementFlag.integrity
        if mutual:
            flags |= gssapi.RequirementFlag.mutual_authentication
        credentials = gssapi.Credentials(
            name=gssapi.Name(f"{principal}@{REALM}", gssapi.NameType.kerberos_principal),
            usage="initiate",
            store={"client_keytab": str(self._kdc.keytab(principal)), "ccache": f"MEMORY:talks-{principal}"},
        )
        name = gssapi.Name(f"{service}@{HOST}", gssapi.NameType.hostbased_service)
        self.context = gssapi.SecurityContext(
            name=name, creds=credentials, flags=flags, mech=gssapi.MechType.kerberos, usage="initiate"
        )
        token: bytes = self.context.step()
        return token

    def send(self, token: bytes, version: int | None = 2) -> Any:
        """(error, its text, what the token is, session in ms), or the token of an answer without a header."""
        return self._heard(lambda: self._sent(token, version))

    def metadata(self) -> Any:
        return self._heard(lambda: len(self._call("Metadata", 12, {"Topics": []})["Brokers"]))

    def whole(
        self, principal: str = ALICE, mutual: bool = True, version: int | None = 2, more: bytes = b""
    ) -> list[Any]:
        """From the ticket to the choice; `more` behind it is an authorization id."""
        heard = [self.send(self.ticket(principal, mutual=mutual), version)]
        if mutual:
            heard.append(self.send(b"", version))
        choice = self.context.wrap(CHOICE + more, False).message
        if version is None:
            # The last message is not answered, as the answer to the next request shows.
            self._connection.send_bytes(frame(choice))
        else:
            heard.append(self.send(choice, version))
        return heard

    def _sent(self, token: bytes, version: int | None) -> Any:
        if version is None:
            self._connection.send_bytes(frame(token))
            return self._understood(self._connection.receive_frame())
        answer = self._call("SaslAuthenticate", version, {"AuthBytes": token})
        told = self._understood(answer["AuthBytes"])
        return answer["ErrorCode"], answer["ErrorMessage"], told, answer.get("SessionLifetimeMs")

    def _understood(self, token: bytes) -> Any:
        """The kind of the server's token; an offer is opened."""
        if not token:
            return "nothing"
        if token.startswith(SIGNED):
            return self.context.unwrap(token).message
        if not self.context.complete:
            self.context.step(token)
        return "its ticket"

    def _call(self, api: str, version: int, body: dict[str, Any]) -> Any:
        return self._connection.call(api, version, body)

    @staticmethod
    def _heard(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except ConnectionClosed:
            return CLOSED
        except Silence:
            return WAITS


def _whole(talk: Talk, *arguments: Any, **how: Any) -> list[Any]:
    return [talk.handshake(), *talk.whole(*arguments, **how), talk.metadata()]


def _without_headers(talk: Talk) -> list[Any]:
    return [talk.handshake(0), *talk.whole(version=None), talk.metadata()]


def _of_another_service(talk: Talk) -> list[Any]:
    return [talk.handshake(), talk.send(talk.ticket(service=OTHER_SERVICE.partition("/")[0]))]


def _damaged(damage: Callable[[bytes], bytes]) -> Callable[[Talk], list[Any]]:
    return lambda talk: [talk.handshake(), talk.send(damage(talk.ticket())), talk.metadata()]


def _of_wrong_choice(choice: bytes, signed: bool = True) -> Callable[[Talk], list[Any]]:
    def said(talk: Talk) -> list[Any]:
        heard = [talk.handshake(), talk.send(talk.ticket(mutual=False))]
        return [*heard, talk.send(talk.context.wrap(choice, False).message if signed else choice)]

    return said


def _data_for_the_offer(talk: Talk) -> list[Any]:
    return [talk.handshake(), talk.send(talk.ticket()), talk.send(b"data")]


def _again(*principals: str) -> Callable[[Talk], list[Any]]:
    def said(talk: Talk) -> list[Any]:
        heard = []
        for each in principals:
            heard += [talk.handshake(), *talk.whole(each), talk.metadata()]
        return heard

    return said


TALKS: dict[str, Callable[[Talk], list[Any]]] = {
    "whole": _whole,
    "without mutual authentication": lambda talk: _whole(talk, mutual=False),
    "in the second version": lambda talk: _whole(talk, version=1),
    "in the first version": lambda talk: _whole(talk, version=0),
    "without headers": _without_headers,
    "of a name by a rule": lambda talk: _whole(talk, NAMED),
    "of nobody's name": lambda talk: _whole(talk, CAROL),
    "as herself": lambda talk: _whole(talk, more=f"{ALICE}@{REALM}".encode()),
    "as another": lambda talk: _whole(talk, more=f"{BOB}@{REALM}".encode()),
    "for another service": _of_another_service,
    "with half a ticket": _damaged(lambda token: token[: len(token) // 2]),
    "with a changed ticket": _damaged(lambda token: token[:-5] + bytes(5)),
    "with nothing": _damaged(lambda token: b""),
    "with garbage": _damaged(lambda token: b"garbage" * 9),
    "choosing integrity": _of_wrong_choice(b"\2\0\0\0"),
    "choosing all layers": _of_wrong_choice(b"\7\0\0\0"),
    "choosing nothing": _of_wrong_choice(b"\0\0\0\0"),
    "choosing in three bytes": _of_wrong_choice(b"\1\0\0"),
    "choosing in no byte": _of_wrong_choice(b""),
    "choosing without a signature": _of_wrong_choice(CHOICE, signed=False),
    "with data before the offer": _data_for_the_offer,
    "again": _again(ALICE, ALICE),
    "again as another": _again(ALICE, BOB),
    "again as nobody": _again(ALICE, CAROL),
}


def transcript(address: str, kdc: Kdc, say: Callable[[Talk], list[Any]]) -> list[Any]:
    talk = Talk(address, kdc)
    try:
        return say(talk)
    finally:
        talk.close()


def repeated(address: str, kdc: Kdc) -> list[Any]:
    """Two connections that show the same ticket with the same authenticator."""
    first, second = Talk(address, kdc), Talk(address, kdc)
    try:
        ticket = first.ticket()
        second.context = first.context
        return [first.handshake(), first.send(ticket), second.handshake(), second.send(ticket)]
    finally:
        first.close()
        second.close()
