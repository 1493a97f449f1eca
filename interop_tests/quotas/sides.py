"""Brokers whose quotas are compared: what changes and describes them, and clients of any user and client id that meet them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import create_topic, fetch_body, produce, produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.security.stores import with_listener
from kafkacompat.security.scram import SCRAM_BY_NAME
from kafkacompat.security.scram_exchange import ScramSaslClient

TOPIC = "quotas"
RECORD_BYTES = 20_000
"""Of each produce, and of what a fetch finds."""
ANONYMOUS = "ANONYMOUS"
PASSWORD, SALT, NONCE, ITERATIONS = "s3cret", b"a salt", "fyko+d2lbbFgONRv9qkxdawL", 4096
MECHANISM = SCRAM_BY_NAME["SCRAM-SHA-256"]
TINY = 1e-9
"""A request percentage that every request is over."""
APPLIES_S = 0.03
"""How long after one change another one of the same moment may apply."""
TIMEOUT_S = 60.0

EntityParts = Sequence[tuple[str, str | None]]
Op = tuple[str, float | None]
"""A quota's key and value. None removes it."""


class QuotaSide:
    def __init__(self, broker: BrokerProcess, secured_port: int) -> None:
        self.kind = broker.kind
        self.broker = broker
        self._secured = f"127.0.0.1:{secured_port}"
        self._markers = 0
        self.met_by_nobody: set[str] = set()
        """Keys of the quotas that clients without authentication have met."""
        create_topic(broker.bootstrap, TOPIC, configs={"retention.ms": "-1"})
        with self.connect() as connection:
            assert produce(connection, TOPIC, BatchPlan(values=[b"x" * RECORD_BYTES]))["ErrorCode"] == 0

    # Requests of the administrator, each on a new connection: the last one may be muted.

    def ask(self, api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        with self.connect(client_id="administrator") as connection:
            return connection.call(api, version, dict(body))

    def alter(
        self,
        entries: Sequence[tuple[EntityParts, Sequence[Op]]],
        *,
        version: int = 1,
        validates: bool = False,
    ) -> list[dict[str, Any]]:
        body = {"Entries": [entry_of(*each) for each in entries], "ValidateOnly": validates}
        return list(self.ask("AlterClientQuotas", version, body)["Entries"])

    def describe(
        self,
        components: Sequence[tuple[str, int, str | None]] = (),
        *,
        strict: bool = False,
        version: int = 1,
    ) -> dict[str, Any]:
        asked = [
            {"EntityType": kind, "MatchType": match_type, "Match": match}
            for kind, match_type, match in components
        ]
        return self.ask("DescribeClientQuotas", version, {"Components": asked, "Strict": strict})

    def settle(self) -> None:
        """Return when the broker applies all quotas that were set before."""
        self._markers += 1
        name = f"marker{self._markers}"
        removed = [(marker_of(f"marker{self._markers - 1}"), [("request_percentage", None)])]
        answers = self.alter([(marker_of(name), [("request_percentage", TINY)]), *removed])
        assert not any(each["ErrorCode"] for each in answers), answers

        def is_applied() -> bool:
            with self.connect(client_id=name) as connection:
                return bool(connection.call("ApiVersions", 3, SOFTWARE)["ThrottleTimeMs"])

        wait_until(is_applied, f"{self.kind} applies the quotas", 20, 0.005)
        time.sleep(APPLIES_S)

    def forget(self) -> None:
        """Remove all quotas."""
        removals = [
            (
                [(part["EntityType"], part["EntityName"]) for part in each["Entity"]],
                [(value["Key"], None) for value in each["Values"]],
            )
            for each in self.describe()["Entries"]
        ]
        answers = self.alter(removals)
        assert not any(each["ErrorCode"] for each in answers), answers
        self.settle()

    # Clients.

    def make_user(self, name: str) -> None:
        salted = MECHANISM.salted_password(PASSWORD, SALT, ITERATIONS)
        upsertion = {
            "Name": name,
            "Mechanism": MECHANISM.type,
            "Iterations": ITERATIONS,
            "Salt": SALT,
            "SaltedPassword": salted,
        }
        answer = self.ask("AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [upsertion]})
        assert not answer["Results"][0]["ErrorCode"], answer

    def connect(self, user: str = ANONYMOUS, client_id: str | None = "client") -> Connection:
        if user == ANONYMOUS:
            return Connection(self.broker.bootstrap, TIMEOUT_S, client_id)
        connection = Connection(self._secured, TIMEOUT_S, client_id)
        handshake = connection.call("SaslHandshake", 1, {"Mechanism": "SCRAM-SHA-256"})
        assert handshake["ErrorCode"] == 0, handshake
        client = ScramSaslClient(MECHANISM, user, PASSWORD, NONCE)
        token: bytes | None = client.initial_response()
        while token is not None:
            answer = connection.call("SaslAuthenticate", 2, {"AuthBytes": token})
            assert answer["ErrorCode"] == 0, (user, answer)
            token = client.evaluate_challenge(bytes(answer["AuthBytes"]))
        return connection


SOFTWARE = {"ClientSoftwareName": "interop", "ClientSoftwareVersion": "1"}


def marker_of(name: str) -> EntityParts:
    return [("user", ANONYMOUS), ("client-id", name)]


def entry_of(entity: EntityParts, ops: Sequence[Op]) -> dict[str, Any]:
    return {
        "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
        "Ops": [
            {"Key": key, "Value": 0.0 if value is None else value, "Remove": value is None}
            for key, value in ops
        ],
    }


def produced(connection: Connection) -> dict[str, Any]:
    body = produce_body(TOPIC, BatchPlan(values=[b"x" * RECORD_BYTES]), acks=1)
    reply = connection.call("Produce", 9, body)
    codes = [each["ErrorCode"] for topic in reply["Responses"] for each in topic["PartitionResponses"]]
    return {"ThrottleTimeMs": reply["ThrottleTimeMs"], "codes": codes}


def fetched(connection: Connection) -> dict[str, Any]:
    reply = connection.call("Fetch", 12, fetch_body(TOPIC, 0, MaxWaitMs=0, MaxBytes=RECORD_BYTES))
    found = [
        (each["ErrorCode"], len(each["Records"] or b""))
        for topic in reply["Responses"]
        for each in topic["Partitions"]
    ]
    return {name: reply[name] for name in ("ThrottleTimeMs", "ErrorCode", "SessionId")} | {"found": found}


def mutated(
    connection: Connection, version: int, name: str, counts: Sequence[int], *, validates: bool
) -> dict[str, Any]:
    """Create topics with so many partitions each."""
    names = [f"{name}-{index}" for index in range(len(counts))]
    topics = [
        {"Name": each, "NumPartitions": count, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
        for each, count in zip(names, counts, strict=True)
    ]
    body = {"Topics": topics, "timeoutMs": 15_000, "validateOnly": validates}
    reply = connection.call("CreateTopics", version, body)
    told = {each["Name"]: (each["ErrorCode"], each["ErrorMessage"]) for each in reply["Topics"]}
    return {"ThrottleTimeMs": reply["ThrottleTimeMs"], "codes": [told[each] for each in names]}


def grown(connection: Connection, version: int, names: Sequence[str], count: int) -> dict[str, Any]:
    """Let topics have so many partitions."""
    topics = [{"Name": name, "Count": count, "Assignments": None} for name in names]
    body = {"Topics": topics, "TimeoutMs": 15_000, "ValidateOnly": False}
    reply = connection.call("CreatePartitions", version, body)
    codes = [(each["ErrorCode"], each["ErrorMessage"]) for each in reply["Results"]]
    return {"ThrottleTimeMs": reply["ThrottleTimeMs"], "codes": codes}


def deleted(connection: Connection, version: int, name: str) -> dict[str, Any]:
    """Delete one topic: of several, Kafka's order is random."""
    reply = connection.call("DeleteTopics", version, {"TopicNames": [name], "TimeoutMs": 15_000})
    codes = [(each["ErrorCode"], each.get("ErrorMessage")) for each in reply["Responses"]]
    return {"ThrottleTimeMs": reply["ThrottleTimeMs"], "codes": codes}


def secured_settings(broker: BrokerProcess, port: int) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return with_listener(broker.settings, port, "SASL_PLAINTEXT") | {
        "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.safe.scram-sha-256.sasl.jaas.config": f"{module} required;",
    }
