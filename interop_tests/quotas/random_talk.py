"""Random quotas, and random clients that meet them. The seed decides everything.

A scene has users and client ids of its own, because Kafka also measures clients without a quota while others have one
(docs/reference/compatibility.md). So nothing has been measured of them before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from interop_tests.harness.wire import Connection
from interop_tests.quotas.sides import (
    ANONYMOUS,
    EntityParts,
    Op,
    deleted,
    fetched,
    grown,
    mutated,
    produced,
)
from interop_tests.quotas.talk import Answer, Talk

KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEY = "connection_creation_rate"
UNKNOWN_KEYS = ("", "unknown", "Producer_byte_rate", "retention.ms", "SCRAM-SHA-256", "x" * 300)
NUMBERS = (1.0, 5.0, 1024.0, 1e6, 12.5, 0.5, 1 + 1e-7, 1.001, 2.0**31 - 1, 2.0**31, 2.0**63, 2.0**64, 1e300)
ODD_NUMBERS = (0.0, -0.0, -1.0, -1e-9, 5e-324, float("inf"), float("-inf"), float("nan"))
TYPES = ("user", "client-id", "ip")
ODD_TYPES = ("", "users", "User", "client_id", "topic", "user ")
ODD_NAMES = (
    "",
    "<default>",
    "a b",
    "a=b,c",
    "User:a",
    "ünï",
    "x" * 300,
    "*",
    "%40",
    '"q"',
    "a\\b",
    "a:b",
    "a/b",
)
ADDRESSES = ("10.1.2.3", "10.1.2.4", "::1", "2001:db8::1", "0:0:0:0:0:0:0:2", "10.1.2.3")
OWN_ADDRESSES = ("127.0.0.1", "localhost")
"""Of the talk itself. Their rates are large."""
ODD_ADDRESSES = (
    "10.1.2",
    "10.1.2.3.4",
    "10.1.2.256",
    "[::1]",
    "no such host",
    "10.1.2.3/8",
    "1:2",
    "-",
    "1e3",
)
LARGE = (1e6, 2e6, 2.0**31 - 1)
MATCH_TYPES = (0, 1, 2)
ODD_MATCH_TYPES = (-1, 3, 127)
CLIENT_IDS = ("a b", "a=b", "ü", "<default>", "%2F", "x" * 250, "a,b", '"', ":")
QUOTAS = tuple(10.0 * 2**power for power in range(8))
"""Bytes a second. Each has a throttle time that differs from the others' by seconds."""
MUTATION_RATES = (0.05, 0.11, 0.3)
PROBED = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")


def random_talk(talk: Talk, seed: int, requests: int) -> None:
    """`requests`: at least so many answers are compared."""
    chance = random.Random(seed)
    scene = 0
    while talk.asked < requests and len(talk.told) < 40:
        scene += 1
        if chance.random() < 0.5:
            change_and_describe(talk, chance, f"{seed}-{scene}", 30)
        else:
            meet(talk, chance, f"{seed}-{scene}")
        talk.close()


# Quotas as they are changed and described.


def change_and_describe(talk: Talk, chance: random.Random, scene: str, requests: int) -> None:
    names = [f"n{scene}-{number}" for number in range(2)]
    for _ in range(requests):
        if chance.random() < 0.6:
            entries = [some_entry(chance, names) for _ in range(chance.choice((1, 1, 1, 2, 3, 0)))]
            if len(entries) > 1 and chance.random() < 0.2:
                entries[1] = entries[0]
            talk.alter(entries, version=chance.choice((0, 1)), validates=chance.random() < 0.15)
        else:
            talk.settle()
            components = [some_component(chance, names) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3)))]
            talk.describe(components, strict=chance.random() < 0.4, version=chance.choice((0, 1)))


def some_entry(chance: random.Random, names: Sequence[str]) -> tuple[EntityParts, list[Op]]:
    kinds = chance.choice((("user",), ("client-id",), ("user", "client-id"), ("client-id", "user"), ("ip",)))
    if chance.random() < 0.08:
        kinds = tuple(chance.choice(TYPES + ODD_TYPES) for _ in range(chance.choice((0, 1, 2, 3))))
    entity = [(kind, some_name(chance, kind, names)) for kind in kinds]
    is_own = any(kind == "ip" and (name is None or name in OWN_ADDRESSES) for kind, name in entity)
    keys = (IP_KEY,) if "ip" in kinds else KEYS
    ops = [some_op(chance, keys, is_own) for _ in range(chance.choice((1, 1, 1, 2, 3, 0)))]
    return entity, ops


def some_name(chance: random.Random, kind: str, names: Sequence[str]) -> str | None:
    if chance.random() < 0.25:
        return None
    if kind == "ip":
        return chance.choice(ADDRESSES + OWN_ADDRESSES if chance.random() < 0.8 else (*ODD_ADDRESSES, ""))
    return chance.choice(names) if chance.random() < 0.7 else chance.choice(ODD_NAMES)


def some_op(chance: random.Random, keys: Sequence[str], is_own: bool) -> Op:
    key = chance.choice(keys if chance.random() < 0.93 else (*UNKNOWN_KEYS, *KEYS, IP_KEY))
    if chance.random() < 0.25:
        return key, None
    if is_own and key == IP_KEY:
        return key, chance.choice(LARGE)
    return key, chance.choice(NUMBERS if chance.random() < 0.7 else ODD_NUMBERS)


def some_component(chance: random.Random, names: Sequence[str]) -> tuple[str, int, str | None]:
    kind = chance.choice(TYPES if chance.random() < 0.93 else ODD_TYPES)
    match_type = chance.choice(MATCH_TYPES if chance.random() < 0.93 else ODD_MATCH_TYPES)
    match = some_name(chance, kind, names) if (match_type == 0) is (chance.random() < 0.93) else None
    return kind, match_type, match


# Clients that meet quotas.


def meet(talk: Talk, chance: random.Random, scene: str) -> None:
    """Quotas of some of the eight levels, and requests of clients to which they apply, or not."""
    key = chance.choice(PROBED)
    users = [f"u{scene}", f"o=dd, {scene}"]
    if chance.random() < 0.5 and talk.is_first_of_nobody(key):
        users[1] = ANONYMOUS
    client_ids = [f"c{scene}", f"{chance.choice(CLIENT_IDS)}{scene}"]
    for user in users:
        if user != ANONYMOUS:
            talk.make_user(user)
    probes = probes_of(key, chance, scene)
    levels = some_levels(chance, users, client_ids)
    values = rates_of(key, chance, len(levels))
    talk.alter([(entity, [(key, value)]) for entity, value in zip(levels, values, strict=True)])
    talk.settle()
    clients: list[tuple[str, str | None]] = [(user, each) for user in users for each in client_ids]
    clients += [(chance.choice(users), other) for other in ("", f"other{scene}")]
    chance.shuffle(clients)
    for user, client_id in clients:
        name, request = chance.choice(probes)
        talk.meet(user, client_id, name, request)
    # What was measured counts under the new quotas.
    changed = chance.sample(levels, min(len(levels), 2))
    more = rates_of(key, chance, len(changed))
    talk.alter([(entity, [(key, value)]) for entity, value in zip(changed, more, strict=True)])
    talk.settle()
    for user, client_id in chance.sample(clients, 3):
        name, request = chance.choice(probes)
        talk.meet(user, client_id, name, request)


def some_levels(
    chance: random.Random, users: Sequence[str], client_ids: Sequence[str]
) -> list[list[tuple[str, str | None]]]:
    levels: list[list[tuple[str, str | None]]] = []
    for user in (None, *users):
        levels.append([("user", user)])
        levels += [[("user", user), ("client-id", each)] for each in (None, *client_ids)]
    levels += [[("client-id", each)] for each in (None, *client_ids)]
    if chance.random() < 0.3:
        # While all quotas are of one kind, Kafka does not look for others.
        length, kind = len(levels[chance.randrange(len(levels))]), chance.choice(("user", "client-id"))
        levels = [each for each in levels if len(each) == length and each[0][0] in (kind, "user")]
    return chance.sample(levels, min(len(levels), chance.choice((1, 2, 3, 4, 6))))


def rates_of(key: str, chance: random.Random, count: int) -> list[float]:
    if key == "controller_mutation_rate":
        return [chance.choice(MUTATION_RATES) for _ in range(count)]
    return chance.sample(QUOTAS, count)


def probes_of(
    key: str, chance: random.Random, scene: str
) -> list[tuple[str, Callable[[Connection], Answer]]]:
    if key == "producer_byte_rate":
        return [("produce", produced)]
    if key == "consumer_byte_rate":
        return [("fetch", fetched)]
    made: list[tuple[str, Callable[[Connection], Any]]] = []
    for number in range(8):
        version = chance.choice((5, 6, 7))
        counts = [chance.choice((1, 2, 3)) for _ in range(chance.choice((1, 2, 3)))]
        validates = chance.random() < 0.3
        name = f"t{scene}-{number}"
        made.append(
            (
                f"create v{version} {counts} {validates=}",
                partial(mutated, version=version, name=name, counts=counts, validates=validates),
            )
        )
        topic = f"t{scene}-{chance.randrange(8)}-0"
        version, count = chance.choice((2, 3)), chance.choice((2, 3, 5))
        grow = partial(grown, version=version, names=[topic], count=count)
        made.append((f"grow v{version} {topic} to {count}", grow))
        version = chance.choice((4, 5))
        made.append((f"delete v{version} {topic}", partial(deleted, version=version, name=topic)))
    return made
