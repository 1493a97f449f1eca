"""The area of delegation tokens.

Ids, HMACs and moments differ between any two brokers. A token is named by its number, and a moment by its distance from now in
hours.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, frame
from interop_tests.raw.rights import entry
from interop_tests.security.sasl_talks import MODULES
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.security.sasl_client import AuthenticationFailed, SaslClient
from kafkacompat.security.sasl_server import initial_response
from kafkacompat.security.scram import SCRAM_BY_NAME
from kafkacompat.security.scram_exchange import ScramSaslClient
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.message import Struct
from kafkacompat.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kafkacompat.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest

USERS = ("alice", "bob", "carol")
PASSWORD, SECRET_KEY = "w0rd of everybody", "k3y of all tokens"
HOUR_MS = 3_600_000
REQUESTS: tuple[Any, ...] = (
    CreateDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    DescribeDelegationTokenRequest,
)
PRINCIPALS = [*(("User", name) for name in USERS), ("Robot", "r2"), ("", ""), ("User", "a:b")]
PERIODS_MS = (-2, -1, 0, HOUR_MS, 5 * HOUR_MS, 1000 * HOUR_MS, 2**63 - 1)
PUBLISHED_S = 0.1
ENTRIES: tuple[tuple[str, ResourceType, str, AclOperation], ...] = (
    ("User:alice", ResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS),
    ("User:bob", ResourceType.USER, "Robot:r2", AclOperation.ALL),
    ("User:carol", ResourceType.USER, "User:alice", AclOperation.DESCRIBE_TOKENS),
)


def token_settings(broker: BrokerProcess, port: int) -> dict[str, str]:
    of = "listener.name.safe."
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    scram = f"{MODULES}scram.ScramLoginModule required;"
    return {
        "listeners": f"{broker.settings['listeners']},SAFE://127.0.0.1:{port}",
        "advertised.listeners": f"{broker.settings['advertised.listeners']},SAFE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        f"{of}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{of}plain.sasl.jaas.config": f"{MODULES}plain.PlainLoginModule required {users};",
        f"{of}scram-sha-256.sasl.jaas.config": scram,
        f"{of}scram-sha-512.sasl.jaas.config": scram,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": SECRET_KEY,
        "delegation.token.max.lifetime.ms": str(48 * HOUR_MS),
        "delegation.token.expiry.time.ms": str(24 * HOUR_MS),
    }


class _Plain:
    def __init__(self, user: str) -> None:
        self._user = user

    def initial_response(self) -> bytes:
        return initial_response(self._user, PASSWORD)

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        return None


def logged_in(address: str, mechanism: str, client: SaslClient) -> tuple[Connection, int]:
    """An authenticated connection, and how long its session lasts in ms. AuthenticationFailed."""
    connection = Connection(address)
    handshake = connection.call("SaslHandshake", 1, {"Mechanism": mechanism})
    assert handshake["ErrorCode"] == 0, handshake
    message: bytes | None = client.initial_response()
    lifetime_ms = 0
    while message is not None:
        answer = connection.call("SaslAuthenticate", 2, {"AuthBytes": message})
        if answer["ErrorCode"]:
            connection.close()
            raise AuthenticationFailed(answer["ErrorMessage"])
        lifetime_ms = answer["SessionLifetimeMs"]
        message = client.evaluate_challenge(answer["AuthBytes"])
    return connection, lifetime_ms


def asked(connection: Connection, request: Any, version: int) -> Any:
    """The answer to a request, as a message."""
    key = type(request).API_KEY
    connection.send_bytes(
        frame(bytes(request_header_bytes(key, version, 7, "talks") + encode(request, version)))
    )
    reply = connection.receive_frame()
    number, position = parse_response_header(reply, key, version)
    assert number == 7
    return decode(response_class(key), version, reply, position)


def by_password(address: str, user: str) -> Connection:
    return logged_in(address, "PLAIN", _Plain(user))[0]


def by_token(
    address: str, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> tuple[Connection, int]:
    client = ScramSaslClient(SCRAM_BY_NAME[mechanism], token_id, password, "nonce", is_token=True)
    return logged_in(address, mechanism, client)


def make_entries(broker: BrokerProcess) -> None:
    creations = [
        entry(kind, name, "*", operation, principal=principal) for principal, kind, name, operation in ENTRIES
    ]
    with Connection(broker.bootstrap) as connection:
        reply = connection.call("CreateAcls", 3, {"Creations": creations})
    assert not any(each["ErrorCode"] for each in reply["Results"]), reply


class Side:
    """One broker, its clients' connections, and its tokens by their numbers."""

    def __init__(self, broker: BrokerProcess, address: str) -> None:
        self.kind = broker.kind
        self.connections = {user: by_password(address, user) for user in USERS}
        self.plain = Connection(broker.bootstrap)
        self.ids: list[str] = []
        self.hmacs: list[bytes] = []

    def close(self) -> None:
        for each in (self.plain, *self.connections.values()):
            each.close()

    def ask(self, user: str, request: Any, version: int, number: int | None) -> Any:
        """The answer without what differs between the two. `number`: of the token that the request is about."""
        if number is not None:
            request.hmac = self.hmacs[number]
        answer = asked(self.connections.get(user, self.plain), request, version)
        if answer.error_code or isinstance(request, DescribeDelegationTokenRequest):
            return self._compared(answer)
        if isinstance(request, CreateDelegationTokenRequest):
            self.ids.append(answer.token_id)
            self.hmacs.append(bytes(answer.hmac))
            expiry_ms = answer.expiry_timestamp_ms
        else:
            removed = getattr(request, "expiry_time_period_ms", 0) < 0
            expiry_ms = None if removed else answer.expiry_timestamp_ms
        hmac = self.hmacs[-1 if number is None else number]
        wait_until(lambda: self._expiry_of(user, hmac) == expiry_ms, f"{self.kind} knows of the change", 20)
        # Apache Kafka's controller learns of it after the broker.
        time.sleep(PUBLISHED_S)
        return self._compared(answer)

    def _expiry_of(self, user: str, hmac: bytes) -> int | None:
        """As one is told who may change the token; None if there is no such token."""
        described = asked(self.connections[user], DescribeDelegationTokenRequest(owners=None), 3)
        found = [each.expiry_timestamp for each in described.tokens if bytes(each.hmac) == hmac]
        return found[0] if found else None

    def _compared(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {key: self._compared(getattr(value, key), key) for key in type(value).__slots__}
        if name == "tokens":
            return sorted((self._compared(each) for each in value), key=lambda each: str(each["token_id"]))
        if isinstance(value, list):
            return [self._compared(each) for each in value]
        if name == "token_id" and value:
            return self.ids.index(value)
        if name == "hmac" and value:
            return self.hmacs.index(bytes(value))
        if "timestamp" in name and value > 0:
            return "hours", round((value - time.time() * 1000) / HOUR_MS)
        return value


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[Side]]:
    ports: dict[BrokerProcess, int] = {}

    def prepare(broker: BrokerProcess) -> None:
        ports[broker] = free_port()
        broker.settings |= token_settings(broker, ports[broker])

    def make(broker: BrokerProcess) -> Side:
        make_entries(broker)
        return Side(broker, f"127.0.0.1:{ports[broker]}")

    with started(make, folder, kinds, prepare=prepare) as sides:
        time.sleep(1)  # the entries are known
        yield sides


def some_request(chance: random.Random, tokens: int) -> tuple[str, Any, int, int | None]:
    """The user, the request, its version, and the number of the token that it is about."""
    user = chance.choices([*USERS, "nobody"], [4, 3, 3, 1])[0]
    kind = chance.choice(REQUESTS)
    version = chance.randint(kind.MIN_VERSION, kind.MAX_VERSION)
    if kind is CreateDelegationTokenRequest:
        count = chance.choice((0, 0, 1, 2))
        renewers = [chance.choices(PRINCIPALS, [4, 4, 4, 1, 1, 1])[0] for _ in range(count)]
        named = [CreatableRenewers(principal_type=each[0], principal_name=each[1]) for each in renewers]
        request = CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=chance.choice(PERIODS_MS))
        if version >= 3:
            owner = chance.choice([*PRINCIPALS, (None, None), (None, "bob"), ("User", None)])
            request.owner_principal_type, request.owner_principal_name = owner
        return user, request, version, None
    if kind is DescribeDelegationTokenRequest:
        owners = None
        if chance.random() < 0.6:
            owners = [
                DescribeDelegationTokenOwner(principal_type=each[0], principal_name=each[1])
                for each in chance.choices(PRINCIPALS, k=chance.choice((0, 1, 2)))
            ]
        return user, DescribeDelegationTokenRequest(owners=owners), version, None
    number = chance.randrange(tokens) if tokens and chance.random() < 0.9 else None
    period_ms, garbage = chance.choice(PERIODS_MS), chance.randbytes(64)
    if kind is RenewDelegationTokenRequest:
        return user, RenewDelegationTokenRequest(hmac=garbage, renew_period_ms=period_ms), version, number
    return user, ExpireDelegationTokenRequest(hmac=garbage, expiry_time_period_ms=period_ms), version, number


def random_requests(comparison: Comparison, seed: int, requests: int) -> None:
    chance = random.Random(seed)
    for number in range(requests):
        request = some_request(chance, len(comparison.sides[0].hmacs))
        answers = [side.ask(*request) for side in comparison.sides]
        comparison.answered(f"request {number}: {request}", answers)
        if len({len(side.hmacs) for side in comparison.sides}) > 1:
            break


AREA = Area("tokens", start, random_requests, is_bound_to_seed=True, goes_on=True)
