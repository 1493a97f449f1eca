"""The judgement of the oracle of rights, which planted bugs are measured by."""

from __future__ import annotations

import pytest

from kafkacompat.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafkacompat.sim.cluster_options import draw_cluster_options
from kafkacompat.sim.rights_oracle import judged
from kafkacompat.sim.security import Need

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ = Need(AclOperation.READ, ResourceType.TOPIC, "t0")
DESCRIBE = Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "t0")
CONFIGS = Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t0")
CLUSTER = Need(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)


def entry(
    operation: AclOperation = AclOperation.READ,
    permission: AclPermissionType = ALLOW,
    name: str = "t0",
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, host, operation, permission)


def is_allowed(*entries: Acl, needs: tuple[Need, ...] = (READ,)) -> bool:
    return judged({bytes([number]) * 16: each for number, each in enumerate(entries)}, "User:alice", needs)


@pytest.mark.parametrize(
    "allowing",
    [
        entry(),
        entry(AclOperation.ALL),
        entry(name="*"),
        entry(name="t", pattern=PREFIXED),
        entry(principal="User:*"),
        entry(host="127.0.0.1"),
    ],
)
def test_what_an_entry_allows(allowing: Acl) -> None:
    assert is_allowed(allowing)
    assert not is_allowed(allowing, entry(AclOperation.ALL, DENY))
    assert not is_allowed(entry(), allowing._replace(permission_type=DENY))


@pytest.mark.parametrize(
    "other",
    [
        entry(AclOperation.WRITE),
        entry(name="t"),
        entry(name="t1", pattern=PREFIXED),
        entry(name="*", pattern=PREFIXED),
        entry(principal="User:bob"),
        entry(host="192.0.2.7"),
        entry()._replace(resource_type=ResourceType.GROUP),
    ],
)
def test_what_an_entry_does_not_concern(other: Acl) -> None:
    assert not is_allowed(other)
    assert is_allowed(entry(), other._replace(permission_type=DENY))


def test_nothing_is_allowed_without_entries() -> None:
    assert not is_allowed()


def test_a_right_to_change_implies_one_to_describe_and_its_denial_does_not() -> None:
    assert is_allowed(entry(AclOperation.WRITE), needs=(DESCRIBE,))
    assert is_allowed(entry(AclOperation.ALTER_CONFIGS), needs=(CONFIGS,))
    assert not is_allowed(entry(AclOperation.DESCRIBE), needs=(READ,))
    assert is_allowed(entry(AclOperation.DESCRIBE), entry(AclOperation.WRITE, DENY), needs=(DESCRIBE,))


def test_one_of_several_rights_suffices() -> None:
    assert is_allowed(entry(), needs=(CLUSTER, READ))
    assert not is_allowed(entry(), needs=(CLUSTER, DESCRIBE._replace(name="t1")))


def test_some_clusters_have_an_authorizer_and_most_have_none() -> None:
    secured = [seed for seed in range(200) if draw_cluster_options(seed).secured_clients]
    assert 20 < len(secured) < 60
