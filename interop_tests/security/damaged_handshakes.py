"""The area of TLS handshakes: whole ones, and damaged ones, which are compared by how they end.

A client's flights are what it sends between two waits for the broker. One of them is cut, changed or sent twice, or
something else is sent in its place.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from interop_tests.security.handshakes import API_VERSIONS, start, whole_handshakes
from interop_tests.security.stores import Stores
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.comparison import Comparison

LISTENERS = ("PLAIN_TLS", "ONLY12", "ONLY13", "REQUESTED", "REQUIRED")
SILENT_S = 1.0
"""A broker that says nothing for this long waits for more."""
PATIENT_S = 15.0
"""The same if the brokers seem to differ, because one of them may only be slow on a busy machine."""
ANSWER_S = 30
SERVED, REFUSED, WAITS = "served", "refused", "waits"
STRICTER = "OpenSSL and Java judge the parts of a handshake in another order"
JAVA_MESSAGE_BYTES_MAX, OPENSSL_HELLO_BYTES_MAX = 32 * 1024, 131_396
"""The largest handshake message that Java waits for (jdk.tls.maxHandshakeMessageSize), and the largest ClientHello of
OpenSSL."""
_MESSAGE_SIZE = slice(6, 9)
"""Of the first handshake message in a flight: behind the record's header of 5 bytes and the message's type."""
Damage = Callable[[bytes, random.Random], bytes]


def cut(flight: bytes, chance: random.Random) -> bytes:
    return flight[: chance.randrange(len(flight))]


def flipped(flight: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(flight))
    return flight[:at] + bytes([flight[at] ^ 1 << chance.randrange(8)]) + flight[at + 1 :]


def twice(flight: bytes, chance: random.Random) -> bytes:
    return flight + flight


def of_zeros(flight: bytes, chance: random.Random) -> bytes:
    return bytes(len(flight))


def of_noise(flight: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(len(flight))


def in_the_clear(flight: bytes, chance: random.Random) -> bytes:
    return len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS


def of_http(flight: bytes, chance: random.Random) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def of_ssl2(flight: bytes, chance: random.Random) -> bytes:
    return b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + chance.randbytes(37)


def too_large(flight: bytes, chance: random.Random) -> bytes:
    """A record that announces more bytes than TLS allows."""
    return b"\x16\x03\x03\xff\xff" + chance.randbytes(400)


def empty_record(flight: bytes, chance: random.Random) -> bytes:
    return b"\x16\x03\x03\x00\x00" + flight


def alerted(flight: bytes, chance: random.Random) -> bytes:
    """A fatal alert in the clear, before the flight."""
    return b"\x15\x03\x03\x00\x02\x02\x28" + flight


DAMAGES: tuple[Damage, ...] = (
    cut,
    flipped,
    flipped,
    twice,
    of_zeros,
    of_noise,
    in_the_clear,
    of_http,
    of_ssl2,
    too_large,
    empty_record,
    alerted,
)


@dataclass(frozen=True)
class Case:
    """Flight 0 is the first. `seed` determines the random parts of the damage, so that both brokers get the same."""

    listener: str
    version: ssl.TLSVersion
    shows: bool
    """The client has a certificate."""
    damage: Damage
    flight: int
    seed: int

    def __str__(self) -> str:
        shows = "with" if self.shows else "without"
        damage = f"flight {self.flight} {self.damage.__name__} ({self.seed})"
        return f"{self.listener}, {self.version.name}, {shows} a certificate: {damage}"


def cases(seed: int, count: int) -> Iterator[Case]:
    chance = random.Random(seed)
    for _ in range(count):
        listener = chance.choice(LISTENERS)
        versions = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
        if listener.startswith("ONLY1"):
            versions = versions[:1] if listener == "ONLY12" else versions[1:]
        yield Case(
            listener,
            chance.choice(versions),
            chance.random() < 0.5,
            chance.choice(DAMAGES),
            chance.randrange(2),
            chance.randrange(1 << 30),
        )


class Client:
    """One handshake over memory buffers, so that its flights can be changed."""

    def __init__(self, port: int, context: ssl.SSLContext, silent_s: float) -> None:
        self._silent_s = silent_s
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._has_shaken = False
        self.flights = 0
        self._damaged = b""

    def outcome(self, case: Case) -> tuple[str, bytes]:
        """How the talk ended, and the damaged flight as it was sent."""
        with self._socket:
            try:
                ended = self._talk(case)
            except TimeoutError:
                ended = self._after_silence()
            except (ssl.SSLError, ConnectionError, BrokenPipeError):
                ended = REFUSED
        return ended, self._damaged

    def _talk(self, case: Case) -> str:
        while True:
            if self._step():
                return SERVED
            flight = self._outgoing.read()
            if flight:
                if self.flights == case.flight:
                    self._damaged = flight = case.damage(flight, random.Random(case.seed))
                self.flights += 1
                self._socket.sendall(flight)
            self._socket.settimeout(self._silent_s)
            received = self._socket.recv(65_536)
            if not received:
                return REFUSED
            self._incoming.write(received)

    def _step(self) -> bool:
        """Whether a request was answered."""
        try:
            if not self._has_shaken:
                self._tls.do_handshake()
                self._has_shaken = True
                self._tls.write(len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS)
            return bool(self._tls.read(1))
        except ssl.SSLWantReadError:
            return False

    def _after_silence(self) -> str:
        """The broker waits for more. It gives up when the client closes its side."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(ANSWER_S)
            while self._socket.recv(65_536):
                pass
        except ConnectionError:
            return WAITS
        except TimeoutError:
            return "never ends"
        return WAITS


def is_excused(case: Case, apache: str, ours: str, damaged: bytes) -> bool:
    """Where OpenSSL is stricter. It looks at the type of a record when its header is there, while Java reads as many
    bytes as the header announces first. It also checks parts that nothing authenticates and Java ignores: the version
    of a record and the contents of ChangeCipherSpec.

    And where it is not: it waits for a first message of up to 128 KiB, Java of up to 32 KiB. `damaged` is the flight as
    it was sent."""
    if (apache, ours) == (WAITS, REFUSED):
        return case.damage in (of_http, of_noise, flipped)
    if (apache, ours) == (REFUSED, WAITS):
        announced = int.from_bytes(damaged[_MESSAGE_SIZE], "big")
        return (
            case.damage is flipped
            and case.flight == 0
            and JAVA_MESSAGE_BYTES_MAX < announced <= OPENSSL_HELLO_BYTES_MAX
        )
    return (apache, ours) == (SERVED, REFUSED) and case.damage is flipped and case.flight > 0


def context_of(case: Case, stores: Stores, shown: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(stores.ca_pem))
    context.minimum_version = context.maximum_version = case.version
    if case.shows:
        context.load_cert_chain(shown)
    return context


def damaged_handshakes(comparison: Comparison, seed: int, requests: int) -> None:
    """`requests`: the number of handshakes."""
    stores: Stores = comparison.sides[0].stores
    shown = stores.keystore("alice", stores.authority.issue("alice", ()))
    for case in cases(seed, requests):
        context = context_of(case, stores, shown)
        outcomes: list[str] = []
        for silent_s in (SILENT_S, PATIENT_S):
            # One after the other, because an idle handshake is closed.
            found = [
                Client(side.ports[case.listener], context, silent_s).outcome(case)
                for side in comparison.sides
            ]
            outcomes = [ended for ended, _ in found]
            excused = [
                ended != outcomes[0] and is_excused(case, outcomes[0], ended, damaged)
                for ended, damaged in found
            ]
            if all(
                ended == outcomes[0] or is_permitted
                for ended, is_permitted in zip(outcomes, excused, strict=True)
            ):
                break
        for index, is_permitted in enumerate(excused):
            if is_permitted:
                comparison.excused.append((STRICTER, f"{case}: {outcomes}"))
                outcomes[index] = outcomes[0]
        comparison.answered(str(case), outcomes)


AREA = Area("handshakes", start, damaged_handshakes, {"whole_handshakes": whole_handshakes}, goes_on=True)
