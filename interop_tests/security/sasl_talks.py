"""The area of SASL exchanges, with the same users on both brokers.

A talk is a connection and some steps, valid and invalid ones in any order. Random parts of an answer are not compared.
"""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence, decode_response, frame
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started_brokers
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat.security.scram import SCRAM_BY_NAME, exclusive_or

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD, SALT, ITERATIONS = "alice", "se,cr=et", b"salt of alice", 4096
NONCE = "fyko+d2lbbFgONRv9qkxdawL"
SESSION_MS = 3_600_000
SILENT_S = 2.0
MODULES = "org.apache.kafka.common.security."
CLOSED, WAITS = "closed", "waits"
Step = tuple[Any, ...]


def settings_of(broker: BrokerProcess, port: int) -> dict[str, str]:
    of = "listener.name.safe."
    scram = f"{MODULES}scram.ScramLoginModule required;"
    plain = f'{MODULES}plain.PlainLoginModule required user_{USER}="{PASSWORD}" user_bob="{PASSWORD}";'
    return {
        "listeners": f"{broker.settings['listeners']},SAFE://127.0.0.1:{port}",
        "advertised.listeners": f"{broker.settings['advertised.listeners']},SAFE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        f"{of}sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{of}plain.sasl.jaas.config": plain,
        f"{of}scram-sha-256.sasl.jaas.config": scram,
        f"{of}scram-sha-512.sasl.jaas.config": scram,
        f"{of}scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
        "connection.failed.authentication.delay.ms": "5",
        "sasl.server.max.receive.size": "20000",
    }


def make_user(broker: BrokerProcess) -> None:
    with Connection(broker.bootstrap) as connection:
        for mechanism in SCRAM_BY_NAME.values():
            upsertion = {
                "Name": USER,
                "Mechanism": mechanism.type,
                "Iterations": ITERATIONS,
                "Salt": SALT,
                "SaltedPassword": mechanism.salted_password(PASSWORD, SALT, ITERATIONS),
            }
            body = {"Deletions": [], "Upsertions": [upsertion]}
            reply = connection.call("AlterUserScramCredentials", 0, body)
            assert not reply["Results"][0]["ErrorCode"], reply


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[str]]:
    """The addresses of the SASL listeners."""
    addresses: list[str] = []

    def prepare(broker: BrokerProcess) -> None:
        port = free_port()
        broker.settings |= settings_of(broker, port)
        addresses.append(f"127.0.0.1:{port}")

    with started_brokers(folder, kinds, prepare=prepare) as brokers:
        for broker in brokers:
            make_user(broker)
        yield addresses


# The steps.


def some_talk(chance: random.Random) -> list[Step]:
    """Mostly a talk that could succeed, with one step replaced, repeated or left out."""
    steps = _whole_talk(chance)
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        at = chance.randrange(len(steps))
        what = chance.randrange(4)
        if what == 0:
            steps[at] = _any_step(chance)
        elif what == 1:
            steps.insert(at, _any_step(chance))
        elif what == 2:
            steps.insert(at, steps[at])
        elif len(steps) > 1:
            del steps[at]
    return steps


def _whole_talk(chance: random.Random) -> list[Step]:
    steps: list[Step] = []
    if chance.random() < 0.6:
        steps.append(("versions", chance.choice((0, 3, 4))))
    for _ in range(chance.choice((1, 1, 2))):
        mechanism = chance.choice(MECHANISMS)
        version = chance.choice((0, 1, 1))
        steps.append(("handshake", version, mechanism))
        wrapped = chance.choice((0, 1, 2)) if version else None
        tokens = ("plain",) if mechanism == "PLAIN" else ("first", "final")
        steps += [(token, wrapped, _twist(chance), mechanism) for token in tokens]
        steps.append(("metadata",))
    return steps


TWISTS = (
    "password",
    "user",
    "authorization",
    "own authorization",
    "truncated",
    "garbage",
    "empty",
    "extension",
    "token",
    "binding",
    "nonce",
    "long",
    "escape",
)


def _twist(chance: random.Random) -> str:
    return chance.choice(TWISTS) if chance.random() < 0.25 else ""


def _any_step(chance: random.Random) -> Step:
    version = chance.choice((0, 1, 2, 3))
    mechanism = chance.choice((*MECHANISMS, "GSSAPI", "plain", "", "OAUTHBEARER"))
    return chance.choice(
        [
            ("versions", chance.choice((0, 1, 2, 3, 4, 9))),
            ("bad software",),
            ("handshake", version, mechanism),
            ("plain", chance.choice((None, 0, 1, 2, 3)), _twist(chance), mechanism),
            ("first", chance.choice((None, 0, 1, 2)), _twist(chance), chance.choice(MECHANISMS)),
            ("final", chance.choice((None, 0, 1, 2)), _twist(chance), chance.choice(MECHANISMS)),
            ("metadata",),
            ("raw", chance.randbytes(chance.choice((0, 1, 7, 8, 30)))),
            ("size", chance.choice((-1, 20_001, 2**31 - 1))),
            ("unknown api", chance.choice((-1, 97, 999))),
            ("produce",),
        ]
    )


class Talk:
    """A connection to one of the two brokers."""

    def __init__(self, address: str) -> None:
        self._connection = Connection(address, timeout_s=SILENT_S)
        self._server_first = ""
        self._client_first_bare = ""

    def close(self) -> None:
        self._connection.close()

    def say(self, step: Step) -> Any:
        """The answer without its random parts."""
        kind = step[0]
        try:
            if kind == "versions":
                body = {"ClientSoftwareName": "talks", "ClientSoftwareVersion": "1"} if step[1] >= 3 else {}
                return self._ask("ApiVersions", min(step[1], 4), body, step[1])["ErrorCode"]
            if kind == "bad software":
                body = {"ClientSoftwareName": "a b", "ClientSoftwareVersion": ""}
                return self._ask("ApiVersions", 3, body)["ErrorCode"]
            if kind == "handshake":
                answer = self._ask("SaslHandshake", min(step[1], 1), {"Mechanism": step[2]}, step[1])
                # Apache Kafka returns them in no particular order.
                return answer["ErrorCode"], sorted(answer["Mechanisms"])
            if kind == "metadata":
                return len(self._ask("Metadata", 12, {"Topics": []})["Brokers"])
            if kind == "produce":
                body = {"Acks": 1, "TimeoutMs": 1000, "TopicData": []}
                return self._ask("Produce", 9, body)
            if kind == "raw":
                return self._exchange(frame(step[1]))
            if kind == "size":
                return self._exchange(step[1].to_bytes(4, "big", signed=True) + bytes(64))
            if kind == "unknown api":
                return self._exchange(frame(step[1].to_bytes(2, "big", signed=True) + bytes(8)))
            return self._token(*step)
        except ConnectionClosed:
            return CLOSED
        except Silence:
            return WAITS

    def _token(self, kind: str, wrapped: int | None, twist: str, mechanism: str) -> Any:
        token = _twisted(
            self._plain(twist) if kind == "plain" else self._scram(kind, twist, mechanism), twist
        )
        if wrapped is None:
            reply = self._exchange(frame(token))
            return reply if isinstance(reply, str) else self._heard(reply, twist)
        answer = self._ask("SaslAuthenticate", min(wrapped, 2), {"AuthBytes": token}, wrapped)
        if isinstance(answer, dict) and answer["AuthBytes"]:
            answer["AuthBytes"] = self._heard(answer["AuthBytes"], twist)
        return answer

    def _plain(self, twist: str) -> bytes:
        return "\0".join((_authorization(twist), _user(twist), _password(twist))).encode()

    def _scram(self, kind: str, twist: str, mechanism: str) -> bytes:
        scram = SCRAM_BY_NAME.get(mechanism, SCRAM_BY_NAME["SCRAM-SHA-256"])
        if kind == "first":
            authorization = _authorization(twist)
            extension = {"extension": ",x=y", "token": ",tokenauth=true"}.get(twist, "")
            user = "a=2Dlice" if twist == "escape" else _user(twist)
            self._client_first_bare = f"n={user},r={NONCE}{extension}"
            return f"n,{'a=' + authorization if authorization else ''},{self._client_first_bare}".encode()
        nonce = self._server_first.split(",")[0].removeprefix("r=") or NONCE
        if twist == "nonce":
            nonce += "x"
        binding = {"binding": "eSws"}.get(twist, "biws")
        signed = f"{self._client_first_bare},{self._server_first},c={binding},r={nonce}".encode()
        key = scram.client_key(scram.salted_password(_password(twist), SALT, ITERATIONS))
        proof = exclusive_or(key, scram.hmac(scram.digest(key), signed))
        extension = ",x=y" if twist == "extension" else ""
        return f"c={binding},r={nonce}{extension},p={b64encode(proof).decode()}".encode()

    def _heard(self, token: bytes, twist: str) -> Any:
        """A message of the server without its nonce and its signature."""
        text = token.decode("utf-8", "replace")
        if text.startswith("r="):
            self._server_first = text
            nonce, rest = text.split(",", 1)
            return nonce.startswith("r=" + NONCE), rest
        if text.startswith("v="):
            return "signature", len(b64decode(text[2:]))
        return token

    def _ask(self, api: str, version: int, body: dict[str, Any], real_version: int | None = None) -> Any:
        number, request = self._connection.encode(api, version, body, 7)
        if real_version is not None and real_version != version:
            request = request[:2] + real_version.to_bytes(2, "big") + request[4:]
        self._connection.send_bytes(frame(request))
        reply = self._connection.receive_frame()
        unserved = real_version is not None and real_version != version
        return decode_response(reply, api, 0 if unserved else version, number)

    def _exchange(self, data: bytes) -> Any:
        self._connection.send_bytes(data)
        return self._connection.receive_frame()


def _user(twist: str) -> str:
    return "nobody" if twist == "user" else USER


def _password(twist: str) -> str:
    return "wrong" if twist == "password" else PASSWORD


def _authorization(twist: str) -> str:
    return {"authorization": "bob", "own authorization": USER}.get(twist, "")


def _twisted(token: bytes, twist: str) -> bytes:
    if twist == "truncated":
        return token[: len(token) // 2]
    if twist == "garbage":
        return b"\xff\xfe" + token
    if twist == "long":
        return token + b"x" * 10_000
    return b"" if twist == "empty" else token


def transcript(address: str, steps: Sequence[Step]) -> list[Any]:
    talk = Talk(address)
    heard: list[Any] = []
    try:
        for step in steps:
            heard.append(talk.say(step))
            if heard[-1] in (CLOSED, WAITS):
                break
    finally:
        talk.close()
    return heard


def random_talks(comparison: Comparison, seed: int, requests: int) -> None:
    """`requests`: the number of talks."""
    for number in range(requests):
        steps = some_talk(random.Random(f"{seed}/{number}"))
        heard = [transcript(address, steps) for address in comparison.sides]
        comparison.answered(f"talk {number}: {steps}", heard)


AREA = Area("sasl", start, random_talks, goes_on=True)
