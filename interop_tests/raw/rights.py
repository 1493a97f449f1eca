"""The area of rights: random sets of access control entries, and for each hostile requests of clients that may lack rights.

The addresses distinguish the administrator from the clients whose permissions are tested. These have three connections: of
nobody, and of a user from two addresses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection
from interop_tests.raw.compare import SETTINGS, all_sides, chosen, hostile_requests
from interop_tests.raw.side_by_side import Connect, Side
from interop_tests.security.stores import with_listener
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat._tests.fuzz.values import GROUPS, TOPICS, TRANSACTIONAL_IDS
from kafkacompat.api.registry import broker_apis
from kafkacompat.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafkacompat.security.sasl_server import initial_response

ADMINISTRATOR, USER, PASSWORD = "127.0.0.1", "alice", "s3cret"
SENDER = "127.0.0.2"
SENDERS = (SENDER, "127.0.0.3")
HOSTS = (*SENDERS, "127.0.0.2/31", "127.0.0.3/31", "127.0.0.2/32", "127.0.0.3/32", "10.0.0.0/8", "::/0")
"""Of entries. No block has the administrator's address."""
CONNECTIONS = ((None, SENDERS[0]), (USER, SENDERS[0]), (USER, SENDERS[1]))
"""The user and the address of each connection."""
SECURED = SETTINGS | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody",
}
"""While there are no entries, every client may create them."""
TWO_PHASE_COMMIT = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
NAMES: dict[ResourceType, tuple[str, ...]] = {
    ResourceType.TOPIC: tuple(name for name in TOPICS if name),
    ResourceType.GROUP: tuple(name for name in GROUPS if name),
    ResourceType.TRANSACTIONAL_ID: tuple(name for name in TRANSACTIONAL_IDS if name),
}
NOT_ASKED = {"CreateAcls", "DeleteAcls"}
"""These requests would change the entries that apply to the others."""
ENTRIES_MAX = 8
REQUESTS_A_SET = 40


def entry(
    kind: ResourceType,
    name: str,
    host: str,
    operation: AclOperation = AclOperation.ALL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:ANONYMOUS",
) -> dict[str, Any]:
    return {
        "ResourceType": int(kind),
        "ResourceName": name,
        "ResourcePatternType": int(pattern),
        "Principal": principal,
        "Host": host,
        "Operation": int(operation),
        "PermissionType": int(permission),
    }


def some_entries(chance: random.Random) -> list[dict[str, Any]]:
    return [_any_entry(chance) for _ in range(chance.randrange(ENTRIES_MAX + 1))]


def _any_entry(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(KINDS)
    name, pattern = CLUSTER_NAME, PatternType.LITERAL
    if kind is not ResourceType.CLUSTER:
        name = chance.choice([*NAMES[kind], "*"])
        if name != "*" and chance.random() < 0.3:
            name, pattern = name[: chance.randint(1, len(name))], PatternType.PREFIXED
    operations = [AclOperation.ALL, *SUPPORTED_OPERATIONS[kind]]
    return entry(
        kind,
        name,
        chance.choice(HOSTS),
        chance.choice(operations),
        chance.choices([AclPermissionType.ALLOW, AclPermissionType.DENY], [3, 1])[0],
        pattern,
        chance.choices(["User:ANONYMOUS", f"User:{USER}", "User:*", "User:other"], [3, 3, 2, 1])[0],
    )


def administer(side: Side) -> None:
    """Permit only the administrator what every client may do without entries."""
    names = {kind: CLUSTER_NAME if kind is ResourceType.CLUSTER else "*" for kind in KINDS}
    make(side, [entry(kind, name, ADMINISTRATOR) for kind, name in names.items()])


def make(side: Side, entries: Sequence[dict[str, Any]]) -> None:
    reply = side.own.call("CreateAcls", 3, {"Creations": list(entries)})
    assert not any(each["ErrorCode"] for each in reply["Results"]), reply
    side.pass_barrier()


def _drop(side: Side) -> None:
    everything = {
        "ResourceTypeFilter": 1,
        "ResourceNameFilter": None,
        "PatternTypeFilter": 1,
        "PrincipalFilter": None,
        "Operation": 1,
        "PermissionType": 1,
    }
    filters = [everything | {"HostFilter": host} for host in HOSTS]
    reply = side.own.call("DeleteAcls", 3, {"Filters": filters})
    assert not any(each["ErrorCode"] for each in reply["FilterResults"]), reply
    side.pass_barrier()


def _connecting(broker: BrokerProcess) -> Connect:
    """Give the broker a listener for the user."""
    port = free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker.settings |= with_listener(broker.settings, port, "SASL_PLAINTEXT") | {
        "listener.name.safe.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": f'{module} required user_{USER}="{PASSWORD}";',
    }

    def connect(number: int) -> Connection:
        user, host = CONNECTIONS[number]
        if user is None:
            return Connection(broker.bootstrap, sender=host)
        connection = Connection(f"127.0.0.1:{port}", sender=host)
        handshake = connection.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})
        assert handshake["ErrorCode"] == 0, handshake
        answer = connection.call("SaslAuthenticate", 2, {"AuthBytes": initial_response(user, PASSWORD)})
        assert answer["ErrorCode"] == 0, answer
        return connection

    return connect


def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> AbstractContextManager[list[Side]]:
    asked = [each for each in broker_apis(False, True).entries if each.name not in NOT_ASKED]
    return all_sides(folder, seed, chosen(asked, only), SECURED | TWO_PHASE_COMMIT, _connecting, kinds=kinds)


def random_talk(comparison: Comparison, seed: int, requests: int) -> None:
    """Requests to one set of entries after the other."""
    chance = random.Random(f"{seed}/rights")
    for side in comparison.sides:
        administer(side)
    for number in range(requests // REQUESTS_A_SET):
        made = some_entries(chance)
        for side in comparison.sides:
            _drop(side)
            make(side, made)
        comparison.place = f"seed{seed}, set {number}"
        before = len(comparison.told)
        hostile_requests(comparison, f"{seed}/{number}", REQUESTS_A_SET)
        if len(comparison.told) > before:
            comparison.told.insert(before, f"set {number}, with {made}")


AREA = Area("rights", start, random_talk, is_bound_to_seed=True, goes_on=True)
