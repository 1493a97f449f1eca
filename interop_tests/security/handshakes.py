"""Handshakes of OpenSSL's client with the same listeners of several brokers.

The result of a handshake is the protocol and the cipher suite of a connection on which a request was answered, or
"refused".
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.security.stores import Stores, with_listener
from interop_tests.side_by_side.brokers import BOTH, started_brokers
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat._tests.certificates import Authority, Identity

ANSWER_S = 10
API_VERSIONS = b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x01c"
LISTENERS = {
    "PLAIN_TLS": {},
    "ONLY12": {"ssl.enabled.protocols": "TLSv1.2"},
    "ONLY13": {"ssl.enabled.protocols": "TLSv1.3"},
    "OLD": {"ssl.enabled.protocols": "TLSv1,TLSv1.1,TLSv1.2"},
    "REQUESTED": {"ssl.client.auth": "requested"},
    "REQUIRED": {"ssl.client.auth": "required"},
    "SUITE": {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
    "SUITES": {
        "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256,"
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"
    },
}
VERSIONS = {"any": None, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CIPHERS = (
    None,
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "aNULL:eNULL",
)


def settings_of(
    broker: BrokerProcess, stores: Stores, ports: dict[str, int], own: Identity
) -> dict[str, str]:
    settings = dict(broker.settings)
    for name, port in ports.items():
        settings |= with_listener(settings, port, name=name)
        prefix = f"listener.name.{name.lower()}."
        settings |= {prefix + key: value for key, value in LISTENERS[name].items()}
    return settings | stores.settings(own)


class HandshakeSide:
    """The ports of a broker's listeners by name, and the stores that all brokers share."""

    def __init__(self, stores: Stores, ports: dict[str, int]) -> None:
        self.stores = stores
        self.ports = ports


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[HandshakeSide]]:
    stores = Stores(folder / "stores")
    own = stores.authority.issue()
    sides: list[HandshakeSide] = []

    def prepare(broker: BrokerProcess) -> None:
        ports = {name: free_port() for name in LISTENERS}
        broker.settings |= settings_of(broker, stores, ports, own)
        sides.append(HandshakeSide(stores, ports))

    with started_brokers(folder, kinds, prepare=prepare):
        yield sides


def outcome(port: int, context: ssl.SSLContext) -> str:
    try:
        with (
            socket.create_connection(("127.0.0.1", port), ANSWER_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            secured.sendall(len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS)
            if not secured.recv(1):
                return "refused"
            cipher = secured.cipher()
            assert cipher is not None
            return f"{secured.version()} {cipher[0]}"
    except (ssl.SSLError, ConnectionError):
        return "refused"


def contexts(stores: Stores) -> Iterator[tuple[str, ssl.SSLContext]]:
    """Clients, by their abilities and certificates."""
    authority = stores.authority
    shown = {
        "nothing": None,
        "a certificate": authority.issue("alice", ()),
        "an expired one": authority.issue("alice", (), from_days=-9, to_days=-2),
        "one of tomorrow": authority.issue("alice", (), from_days=2),
        "a foreign one": Authority("Foreign").issue("alice", ()),
        "one of an RSA key": authority.issue("alice", (), use_rsa=True),
        "one of an intermediate authority": Authority("Between", authority).issue("alice", ()),
        "one of another authority of the same name": Authority().issue("alice", ()),
        "one that it has signed itself": Authority("alice").itself(),
        "one that a client has signed": Authority.pretended(authority.issue("eve", ()), authority).issue(
            "alice", ()
        ),
        "one for servers only": authority.issue("alice", (), usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    }
    for version, only in VERSIONS.items():
        for cipher in CIPHERS if version == "1.2" else CIPHERS[:1]:
            for name, identity in shown.items() if cipher is None else [("nothing", None)]:
                context = ssl.create_default_context(cafile=str(stores.ca_pem))
                if cipher is not None:
                    context.set_ciphers(f"{cipher}:@SECLEVEL=0")
                if only is not None:
                    context.minimum_version = context.maximum_version = only
                if identity is not None:
                    context.load_cert_chain(stores.keystore("shown", identity))
                yield f"TLS {version}, {cipher or 'any suite'}, shows {name}", context


def whole_handshakes(comparison: Comparison) -> None:
    """Of every client with every listener."""
    for client, context in contexts(comparison.sides[0].stores):
        for name in LISTENERS:
            outcomes = [outcome(side.ports[name], context) for side in comparison.sides]
            comparison.answered(f"{name} with {client}", outcomes)
