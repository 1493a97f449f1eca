"""Who may do what: SCRAM handshakes, and a produce that is authorized under many access control entries."""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
import time
from base64 import b64decode, b64encode
from collections.abc import Callable

from benchmarks.measure import client, cpu_seconds, create_topic, running
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection
from interop_tests.security.sasl_talks import ITERATIONS, PASSWORD, SALT, USER, make_user, settings_of
from kafkacompat.security.scram import SCRAM_BY_NAME

Figures = dict[str, float]
MECHANISM = "SCRAM-SHA-256"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
NONCE = "rOprNGfwEbeRWgbNEkqO"
ANSWER_S = 30
CREATE_AT_ONCE = 500
TOPIC, LITERAL, USERS_TYPE = 2, 3, "User:"
WRITE, ALLOW = 4, 3


def scram_handshakes(count: int) -> Callable[[str], Figures]:
    """Connections one after another, each with a whole SCRAM exchange. The client derives its keys once, as clients that
    remember them do, so the figures show the broker."""

    def run(kind: str) -> Figures:
        port = free_port()
        with running(kind) as broker:
            broker.stop()
            broker.settings |= settings_of(broker, port)
            broker.start()
            make_user(broker)
            keys = Keys()
            talk(port, keys, count)
            before, started = cpu_seconds(broker), time.perf_counter()
            talk(port, keys, count)
            took = time.perf_counter() - started
            cpu_s = cpu_seconds(broker) - before
        return {"handshakes/s": count / took, "broker CPU us/handshake": cpu_s / count * 1e6}

    return run


class Keys:
    """The client's keys (RFC 5802)."""

    def __init__(self) -> None:
        salted = SCRAM_BY_NAME[MECHANISM].salted_password(PASSWORD, SALT, ITERATIONS)
        self.client = hmac.digest(salted, b"Client Key", "sha256")
        self.stored = hashlib.sha256(self.client).digest()

    def proof(self, said: str) -> str:
        signature = hmac.digest(self.stored, said.encode(), "sha256")
        return b64encode(bytes(a ^ b for a, b in zip(self.client, signature, strict=True))).decode()


def talk(port: int, keys: Keys, count: int) -> None:
    name = struct.pack(">h", len(MECHANISM)) + MECHANISM.encode()
    first_bare = f"n={USER},r={NONCE}"
    first = ("n,," + first_bare).encode()
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as stream:
            ask(stream, SASL_HANDSHAKE, name)
            answer = authenticate(stream, first)
            fields = dict(each.split("=", 1) for each in answer.split(","))
            assert b64decode(fields["s"]) == SALT
            without_proof = f"c=biws,r={fields['r']}"
            proof = keys.proof(f"{first_bare},{answer},{without_proof}")
            assert authenticate(stream, f"{without_proof},p={proof}".encode()).startswith("v=")


def authenticate(stream: socket.socket, token: bytes) -> str:
    """SaslAuthenticate version 0: error code, message, bytes."""
    answer = ask(stream, SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)
    error, length = struct.unpack_from(">hh", answer)
    assert error == 0, answer
    return answer[2 + 2 + max(length, 0) + 4 :].decode()


def ask(stream: socket.socket, api_key: int, body: bytes) -> bytes:
    """The response without its header, of version 1 of SaslHandshake or version 0 of SaslAuthenticate."""
    request = struct.pack(">hhih", api_key, int(api_key == SASL_HANDSHAKE), 1, -1) + body
    stream.sendall(struct.pack(">i", len(request)) + request)
    held = b""
    while len(held) < 4 or len(held) < 4 + struct.unpack_from(">i", held)[0]:
        chunk = stream.recv(65_536)
        assert chunk, "the broker closed the connection"
        held += chunk
    return held[8:]


def produce_under_entries(entries: int, count: int) -> Callable[[str], Figures]:
    """One-record requests of a user without special rights. `entries`: those that are about other users and topics, of
    which a tenth are about this topic."""

    def run(kind: str) -> Figures:
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
        with running(kind, settings) as broker:
            create_topic(broker, "bench", 1)
            acls = [acl("bench", "ANONYMOUS")]
            acls += [
                acl("bench" if each % 10 == 0 else f"other-{each}", f"user-{each}") for each in range(entries)
            ]
            with Connection(broker.bootstrap) as connection:
                for start in range(0, len(acls), CREATE_AT_ONCE):
                    body = {"Creations": acls[start : start + CREATE_AT_ONCE]}
                    reply = connection.call("CreateAcls", 3, body)
                    assert not any(each["ErrorCode"] for each in reply["Results"]), reply["Results"][0]
            job = {"topic": "bench", "size": 100, "acks": "all", "in_flight": 1}
            client(broker, work="raw_produce", requests=count, **job)
            figures = client(broker, work="raw_produce", requests=count, **job)
        return {
            "requests/s": figures["requests_per_s"],
            "broker CPU us/request": figures["broker_cpu_s"] / count * 1e6,
        }

    return run


def acl(topic: str, user: str) -> dict[str, object]:
    return {
        "ResourceType": TOPIC,
        "ResourceName": topic,
        "ResourcePatternType": LITERAL,
        "Principal": USERS_TYPE + user,
        "Host": "*",
        "Operation": WRITE,
        "PermissionType": ALLOW,
    }
