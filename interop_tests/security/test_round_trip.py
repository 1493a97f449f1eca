"""Data directories with access control entries, SCRAM users and delegation tokens go to Apache Kafka and back, each time
with changes, and each node makes snapshots of what the other has written."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.raw_kafka import produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.raw.rights import entry
from interop_tests.security.test_delegation_tokens import lets_in, prepared
from interop_tests.security.token_talks import asked, by_password, logged_in
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.scram import SCRAM_BY_NAME
from kafkacompat.security.scram_exchange import ScramSaslClient
from kafkacompat.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kafkacompat.wire.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest

pytestmark = pytest.mark.needs_control
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "500"}
EVERYTHING = {
    "ResourceTypeFilter": 1,
    "ResourceNameFilter": None,
    "PatternTypeFilter": 1,
    "PrincipalFilter": None,
    "HostFilter": None,
    "Operation": 1,
    "PermissionType": 1,
}
DENIED = 29
DAVE = "User:dave"
Entry = dict[str, Any]
Acl = tuple[Any, ...]


def of_dave(kind: ResourceType, name: str, operation: AclOperation, **more: Any) -> Entry:
    return entry(kind, name, more.pop("host", "*"), operation, principal=DAVE, **more)


FIRST = [
    of_dave(ResourceType.TOPIC, "team-", WRITE, pattern=PatternType.PREFIXED),
    of_dave(ResourceType.TOPIC, "team-secret", WRITE, permission=AclPermissionType.DENY),
    of_dave(ResourceType.TOPIC, "ünïcode", READ, host="192.0.2.7"),
    of_dave(ResourceType.TOPIC, "near", WRITE, host="127.0.0.9/8"),
    of_dave(ResourceType.TOPIC, "far", WRITE, host="2001:DB8::/32"),
    of_dave(ResourceType.GROUP, "*", READ),
    of_dave(ResourceType.CLUSTER, CLUSTER_NAME, DESCRIBE),
    of_dave(ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.TWO_PHASE_COMMIT),
    of_dave(ResourceType.DELEGATION_TOKEN, "token", DESCRIBE),
    of_dave(ResourceType.USER, "User:erin", AclOperation.CREATE_TOKENS),
]
ERIN = "erin", "SCRAM-SHA-256", "of erin", 4100
GONE, LATER = FIRST[1], of_dave(ResourceType.TOPIC, "team-secret", ALL)


def as_tuple(made: Entry) -> Acl:
    return (
        made["ResourceType"],
        made["ResourceName"],
        made["ResourcePatternType"],
        made["Principal"],
        made["Host"],
        made["Operation"],
        made["PermissionType"],
    )


@dataclass
class Expected:
    """What a node has to know."""

    acls: set[Acl] = field(default_factory=set)
    passwords: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """Password and iterations by user and mechanism."""
    tokens: dict[str, bytes] = field(default_factory=dict)
    """HMACs by id."""
    removed: dict[str, bytes] = field(default_factory=dict)
    writable: dict[str, bool] = field(default_factory=dict)
    """Topics, and whether dave may write to them."""


class Security:
    """Changes the security of a node, and checks that it is as expected."""

    def __init__(self, broker: SwitchingBroker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.expected = Expected()

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        with Connection(self.broker.bootstrap) as connection:
            return connection.call(api, version, body)

    def add(self, *entries: Entry) -> None:
        reply = self.ask("CreateAcls", 3, {"Creations": list(entries)})
        assert not any(each["ErrorCode"] for each in reply["Results"]), reply
        self.expected.acls |= {as_tuple(each) for each in entries}

    def remove(self, gone: Entry) -> None:
        names = ("ResourceType", "ResourceName", "Principal", "Host")
        wanted = {f"{name}Filter": gone[name] for name in names} | {
            "PatternTypeFilter": gone["ResourcePatternType"],
            "Operation": gone["Operation"],
            "PermissionType": gone["PermissionType"],
        }
        reply = self.ask("DeleteAcls", 3, {"Filters": [wanted]})
        assert len(reply["FilterResults"][0]["MatchingAcls"]) == 1, reply
        self.expected.acls.remove(as_tuple(gone))

    def set_password(self, user: str, mechanism: str, password: str, iterations: int) -> None:
        scram, salt = SCRAM_BY_NAME[mechanism], f"salt of {user}".encode()
        upsertion = {
            "Name": user,
            "Mechanism": scram.type,
            "Iterations": iterations,
            "Salt": salt,
            "SaltedPassword": scram.salted_password(password, salt, iterations),
        }
        reply = self.ask("AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [upsertion]})
        assert not reply["Results"][0]["ErrorCode"], reply
        self.expected.passwords[user, mechanism] = password, iterations

    def drop_password(self, user: str, mechanism: str) -> None:
        deletion = {"Name": user, "Mechanism": SCRAM_BY_NAME[mechanism].type}
        reply = self.ask("AlterUserScramCredentials", 0, {"Deletions": [deletion], "Upsertions": []})
        assert not reply["Results"][0]["ErrorCode"], reply
        del self.expected.passwords[user, mechanism]

    def make_token(self, owner: str) -> str:
        renewers = [CreatableRenewers(principal_type="User", principal_name="carol")]
        with by_password(self.address, owner) as connection:
            made = asked(connection, CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), 3)
        assert made.error_code == 0
        self.expected.tokens[made.token_id] = bytes(made.hmac)
        return str(made.token_id)

    def renew(self, token_id: str) -> None:
        request = RenewDelegationTokenRequest(hmac=self.expected.tokens[token_id], renew_period_ms=-1)
        with by_password(self.address, "carol") as connection:
            assert asked(connection, request, 2).error_code == 0

    def expire(self, token_id: str, owner: str) -> None:
        hmac = self.expected.removed[token_id] = self.expected.tokens.pop(token_id)
        with by_password(self.address, owner) as connection:
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
            assert asked(connection, request, 2).error_code == 0

    def is_as_expected(self) -> None:
        """Wait until this node knows it: it may just have started."""
        expected, kind = self.expected, self.broker.kind
        wait_until(lambda: self.acls() == expected.acls, f"{kind} knows the entries")
        wanted = {
            user: sorted(
                (SCRAM_BY_NAME[mechanism].type, iterations)
                for (name, mechanism), (_, iterations) in expected.passwords.items()
                if name == user
            )
            for user, _ in expected.passwords
        }
        wait_until(lambda: self.users() == wanted, f"{kind} knows the users")
        for (user, mechanism), (password, _) in expected.passwords.items():
            assert self.lets_in(user, mechanism, password), (kind, user, mechanism)
            assert not self.lets_in(user, mechanism, f"not {password}"), (kind, user, mechanism)
        wait_until(lambda: self.tokens() == expected.tokens, f"{kind} knows the tokens")
        for token_id, hmac in expected.tokens.items():
            assert lets_in(self.address, token_id, b64encode(hmac).decode()), (kind, token_id)
        for token_id, hmac in expected.removed.items():
            assert not lets_in(self.address, token_id, b64encode(hmac).decode()), (kind, token_id)
        assert {topic: self.may_write(topic) for topic in expected.writable} == expected.writable, kind

    def acls(self) -> set[Acl]:
        reply = self.ask("DescribeAcls", 3, EVERYTHING)
        assert not reply["ErrorCode"], reply
        return {
            (
                each["ResourceType"],
                each["ResourceName"],
                each["PatternType"],
                acl["Principal"],
                acl["Host"],
                acl["Operation"],
                acl["PermissionType"],
            )
            for each in reply["Resources"]
            for acl in each["Acls"]
        }

    def users(self) -> dict[str, list[tuple[int, int]]]:
        reply = self.ask("DescribeUserScramCredentials", 0, {"Users": None})
        return {
            each["User"]: sorted((info["Mechanism"], info["Iterations"]) for info in each["CredentialInfos"])
            for each in reply["Results"]
        }

    def tokens(self) -> dict[str, bytes]:
        """Those of both owners, as their renewer sees them."""
        with by_password(self.address, "carol") as connection:
            described = asked(connection, DescribeDelegationTokenRequest(owners=None), 3)
        assert described.error_code == 0
        return {each.token_id: bytes(each.hmac) for each in described.tokens}

    def lets_in(self, user: str, mechanism: str, password: str) -> bool:
        with contextlib.suppress(AuthenticationFailed):
            self.logged_in(user, mechanism, password).close()
            return True
        return False

    def logged_in(self, user: str, mechanism: str, password: str) -> Connection:
        client = ScramSaslClient(SCRAM_BY_NAME[mechanism], user, password, "nonce")
        return logged_in(self.address, mechanism, client)[0]

    def may_write(self, topic: str) -> bool:
        """Whether dave may produce there. The topic does not exist."""
        (mechanism,) = (mechanism for user, mechanism in self.expected.passwords if user == "dave")
        password, _ = self.expected.passwords["dave", mechanism]
        with self.logged_in("dave", mechanism, password) as connection:
            reply = connection.call("Produce", 9, produce_body(topic, BatchPlan()))
        (answer,) = reply["Responses"][0]["PartitionResponses"]
        return bool(answer["ErrorCode"] != DENIED)


def snapshots(broker: SwitchingBroker) -> set[str]:
    return {path.name for path in (broker.data_dir / "__cluster_metadata-0").glob("*.checkpoint")}


def make_a_snapshot(security: Security) -> None:
    """What a node writes by itself may be too little for one."""
    broker = security.broker
    old = snapshots(broker)

    def is_made() -> bool:
        security.set_password(*ERIN)
        return bool(snapshots(broker) - old)

    wait_until(is_made, f"{broker.kind} makes a snapshot")


@pytest.mark.parametrize("first", [KAFKACOMPAT, APACHE])
def test_credentials_and_entries_go_with_the_data_directory(tmp_path: Path, first: str) -> None:
    broker = SwitchingBroker(first, tmp_path / "node", True, SNAPSHOTS)
    security = Security(broker, prepared(broker))
    expected = security.expected
    try:
        broker.start()
        security.add(*FIRST)
        security.set_password("dave", "SCRAM-SHA-256", "first w0rd", 4096)
        security.set_password(*ERIN)
        security.set_password("erin", "SCRAM-SHA-512", "of erin too", 8192)
        tokens = [security.make_token(owner) for owner in ("alice", "bob")]
        expected.writable = {
            "team-a": True,
            "team-secret": False,
            "near": True,
            "far": False,
            "others": False,
        }
        security.is_as_expected()
        for kind in (APACHE, KAFKACOMPAT) if first == KAFKACOMPAT else (KAFKACOMPAT, APACHE):
            broker.become(kind)
            security.is_as_expected()
            if kind != first:
                security.remove(GONE)
                security.add(LATER)
                security.set_password("dave", "SCRAM-SHA-256", "second w0rd", 5000)
                security.drop_password("erin", "SCRAM-SHA-512")
                security.renew(tokens[0])
                security.expire(tokens[1], "bob")
                security.make_token("alice")
                expected.writable["team-secret"] = True
            # What follows is read from a snapshot of this node.
            make_a_snapshot(security)
            security.is_as_expected()
    finally:
        broker.kill()
