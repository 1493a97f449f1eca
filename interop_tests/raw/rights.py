"""Sends the same requests to Apache Kafka and kafkacompat with the same access control entries, and reports different
responses.

python -m interop_tests.raw.rights --seed 1 --sets 20 --requests 100

The addresses distinguish the administrator from the clients whose permissions are tested. These have three connections: of
nobody, and of a user from two addresses.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection
from interop_tests.raw.compare import SETTINGS, Outcome, compare, two_sides
from interop_tests.raw.side_by_side import Connect, Side
from interop_tests.security.stores import with_listener
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
from kafkacompat.security.plain import initial_response

ADMINISTRATOR, USER, PASSWORD = "127.0.0.1", "alice", "s3cret"
SENDER = "127.0.0.2"
SENDERS = (SENDER, "127.0.0.3")
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
        chance.choice(SENDERS),
        chance.choice(operations),
        chance.choices([AclPermissionType.ALLOW, AclPermissionType.DENY], [3, 1])[0],
        pattern,
        chance.choices(["User:ANONYMOUS", f"User:{USER}", "User:*", "User:other"], [3, 3, 2, 1])[0],
    )


def _administer(side: Side) -> None:
    """Permit only the administrator what every client may do without entries."""
    names = {kind: CLUSTER_NAME if kind is ResourceType.CLUSTER else "*" for kind in KINDS}
    _make(side, [entry(kind, name, ADMINISTRATOR) for kind, name in names.items()])


def _make(side: Side, entries: Sequence[dict[str, Any]]) -> None:
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
    filters = [everything | {"HostFilter": host} for host in SENDERS]
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


def compared_rights(
    folder: Path,
    seed: int,
    sets: int,
    requests: int,
    apis: Container[str] = (),
    tell: Callable[[Sequence[str]], None] = lambda lines: None,
) -> Outcome:
    """With two new brokers: this number of sets of entries, and requests for each set. `tell` gets the differences of each
    set."""
    entries = [
        each
        for each in broker_apis(False, True).entries
        if each.name not in NOT_ASKED and (not apis or each.name in apis)
    ]
    outcome = Outcome()
    chance = random.Random(f"{seed}/rights")
    with two_sides(folder, seed, entries, SECURED | TWO_PHASE_COMMIT, _connecting) as sides:
        for side in sides:
            _administer(side)
        for number in range(sets):
            made = some_entries(chance)
            for side in sides:
                _drop(side)
                _make(side, made)
            before = len(outcome.told)
            compare(sides, f"{seed}/{number}", requests, outcome)
            if len(outcome.told) > before:
                outcome.told.insert(before, f"set {number}, with {made}")
            tell(outcome.told[before:])
        outcome.never_asked = sides[0].author.never_asked()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", type=int, default=20, help="of access control entries")
    parser.add_argument("--requests", type=int, default=100, help="to each set")
    parser.add_argument("--api", action="append", default=[], help="only this one; again for more")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rights-") as folder:
        outcome = compared_rights(
            Path(folder),
            options.seed,
            options.sets,
            options.requests,
            options.api,
            lambda lines: print("".join(f"{each}\n" for each in lines), end="", flush=True),
        )
    print(f"{outcome.sent} requests, {len(outcome.told)} lines of differences")
    return 1 if outcome.told else 0


if __name__ == "__main__":
    sys.exit(main())
