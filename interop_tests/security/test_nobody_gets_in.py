"""Every API that a node serves, and every page of a console, asked by an unknown client, by one without rights, and by a
super user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.console.process import ConsoleProcess
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.security.api_rows import (
    APACHE_ANSWERS,
    BROKER_ROWS,
    CONTROLLER_ROWS,
    DISABLED,
    GROUP,
    RIGHTS,
    TOPIC,
    TRANSACTION,
    USER,
    WITHOUT_RIGHTS,
    Row,
    codes_in,
    request_of,
)
from interop_tests.security.page_rows import NOT_FOUND, PAGES
from interop_tests.security.sasl_talks import MODULES
from interop_tests.telemetry.sides import offer_telemetry
from kafkacompat.api.registry import CONTROLLER_APIS, Entry, broker_apis
from kafkacompat.client.blocking import Connection
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.console.server import Pages, routes_of
from kafkacompat.console.state import ConsoleState
from kafkacompat.security.client_settings import security_of_client
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.apis import ApiKey, response_class
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.metadata_response import MetadataResponse

pytestmark = pytest.mark.needs_control
PASSWORD = "rows-s3cret"
KNOWN, PRIVILEGED, NODE = "known", "root", "node"
PORT, CONTROLLERS = "SAFE", "CONTROLLER"
ANSWER_S = 20.0
BROKER_ENTRIES = broker_apis(has_telemetry=True, has_unstable=False).entries
CONTROLLER_ENTRIES = CONTROLLER_APIS.entries
UNCONNECTED = ConsoleState(ClusterAddress(), 0, "run")
UNAUTHORIZED = 401
BEFORE_AUTHENTICATION = {ApiKey.SASL_HANDSHAKE}
"""ApiVersions is answered once, before this."""


def missing(entries: Sequence[Entry], rows: dict[ApiKey, Row]) -> list[str]:
    return [each.name for each in entries if each.key not in rows]


def test_every_api_has_a_row() -> None:
    """Who adds an API says who is let in."""
    assert not missing(BROKER_ENTRIES, BROKER_ROWS)
    assert not missing(CONTROLLER_ENTRIES, CONTROLLER_ROWS)
    assert [route.path for route in routes_of(Pages(UNCONNECTED, lambda: 0))] == [*PAGES]
    for rows in (BROKER_ROWS, CONTROLLER_ROWS):
        for key, row in rows.items():
            assert row.privileged not in RIGHTS, key
            assert row.known in {*RIGHTS, DISABLED} or row.shows or key in WITHOUT_RIGHTS, key


class Secured:
    """A node whose listeners ask for a user, and what there is to see on it."""

    def __init__(self, make_broker: MakeBroker) -> None:
        broker = make_broker(start=False)
        self.ports = {PORT: free_port(), CONTROLLERS: broker.controller_port}
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in (KNOWN, PRIVILEGED, NODE))
        plain = f'{MODULES}plain.PlainLoginModule required username="{NODE}" password="{PASSWORD}" {users};'
        broker.settings |= {
            "listeners": f"{broker.settings['listeners']},SAFE://127.0.0.1:{self.ports[PORT]}",
            "advertised.listeners": f"{broker.settings['advertised.listeners']},SAFE://127.0.0.1:{self.ports[PORT]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SAFE:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.safe.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": plain,
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{PRIVILEGED};User:{NODE}",
            "connection.failed.authentication.delay.ms": "5",
        }
        offer_telemetry(broker)
        self.broker = broker.start()

    @contextlib.contextmanager
    def client(self, user: str, listener: str = PORT) -> Iterator[Connection]:
        connection = Connection("127.0.0.1", self.ports[listener], ANSWER_S, security(user))
        try:
            yield connection
        finally:
            connection.close()

    def fill(self) -> bytes:
        """Make what the rows name; the topic's id."""
        with self.client(PRIVILEGED) as root:

            def ask(key: ApiKey, **fields: object) -> Message:
                asked = Row(ErrorCode.NONE, ErrorCode.NONE, fields)
                return root.call(request_of(key, asked, topic_id), response_class(key))

            topic_id = bytes(16)
            made = ask(
                ApiKey.CREATE_TOPICS,
                topics=[{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}],
                timeout_ms=10_000,
            )
            assert set(codes_in(made)) == {ErrorCode.NONE}, made

            def find() -> bytes:
                answer = root.call(MetadataRequest(topics=None), MetadataResponse)
                found = [each for each in answer.topics if each.name == TOPIC and each.partitions]
                return found[0].topic_id if found and found[0].partitions[0].leader_id == 1 else b""

            topic_id = wait_until(find, "the topic has a leader")

            def worked(key: ApiKey, **fields: object) -> bool:
                return set(codes_in(ask(key, **fields))) <= {ErrorCode.NONE}

            for key_type, name in ((0, GROUP), (1, TRANSACTION)):
                wait_until(
                    lambda key_type=key_type, name=name: worked(
                        ApiKey.FIND_COORDINATOR, key_type=key_type, coordinator_keys=[name]
                    ),
                    f"{name} has a coordinator",
                )
            partitions = [{"committed_offset": 0}]
            wait_until(
                lambda: worked(
                    ApiKey.OFFSET_COMMIT,
                    group_id=GROUP,
                    generation_id_or_member_epoch=-1,
                    topics=[{"topic_id": topic_id, "partitions": partitions}],
                ),
                "an offset is committed",
            )
            wait_until(
                lambda: worked(
                    ApiKey.INIT_PRODUCER_ID,
                    transactional_id=TRANSACTION,
                    transaction_timeout_ms=10_000,
                    producer_id=-1,
                    producer_epoch=-1,
                ),
                "there is a producer",
            )
            upsertion = {
                "name": USER,
                "mechanism": 1,
                "iterations": 4096,
                "salt": b"s",
                "salted_password": b"p" * 32,
            }
            assert worked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, upsertions=[upsertion])
        return topic_id


def properties(user: str) -> dict[str, str]:
    module = f'{MODULES}plain.PlainLoginModule required username="{user}" password="{PASSWORD}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": module}


def security(user: str) -> ClientSecurity:
    return security_of_client(properties(user))


@pytest.fixture
def secured(make_broker: MakeBroker) -> Secured:
    return Secured(make_broker)


def unknown_gets(secured: Secured, listener: str, request: Message) -> str:
    """What a client that does not authenticate is answered."""
    connection = Connection("127.0.0.1", secured.ports[listener], ANSWER_S)
    try:
        connection.call(request, response_class(request.API_KEY or 0))
    except BrokerAway:
        return "closed"
    finally:
        connection.close()
    return "answered"


def answer_to(secured: Secured, listener: str, user: str, request: Message) -> Message:
    assert request.API_KEY is not None
    with secured.client(user, listener) as client:
        return client.call(request, response_class(request.API_KEY))


@pytest.mark.parametrize("listener", [PORT, CONTROLLERS])
def test_nobody_gets_more_than_their_rights(secured: Secured, listener: str) -> None:
    topic_id = secured.fill()
    entries, rows = (
        (BROKER_ENTRIES, BROKER_ROWS) if listener == PORT else (CONTROLLER_ENTRIES, CONTROLLER_ROWS)
    )
    served = {each.key for each in entries}
    if chosen_kind() != APACHE:
        with secured.client(KNOWN, listener) as client:
            assert {key for key in ApiKey if client.serves(key, client_version(client, key))} == served
    wrong = []
    asked = {key: request_of(key, row, topic_id) for key, row in rows.items() if key in served}
    for key, request in asked.items():
        told = unknown_gets(secured, listener, request)
        if (told == "closed") == (key in BEFORE_AUTHENTICATION):
            wrong.append(f"{key.name}: an unknown client is {told}")
    # Before the privileged client changes anything.
    answers = {
        user: {key: answer_to(secured, listener, user, request) for key, request in asked.items()}
        for user in (KNOWN, PRIVILEGED)
    }
    for key in asked:
        row = rows[key]
        of_root = APACHE_ANSWERS.get(key, row.privileged) if chosen_kind() == APACHE else row.privileged
        for user, expected in ((KNOWN, row.known), (PRIVILEGED, of_root)):
            answer = answers[user][key]
            codes = set(codes_in(answer)) - {ErrorCode.NONE} or {ErrorCode.NONE}
            if codes != {expected}:
                wrong.append(f"{key.name}: {user} gets {[each.name for each in codes]}, not {expected.name}")
            if row.shows and (row.shows in repr(answer)) != (user == PRIVILEGED):
                wrong.append(f"{key.name}: {row.shows} for {user}: {answer!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("user", [KNOWN, PRIVILEGED])
def test_no_page_shows_more_than_the_rights_of_its_console(
    secured: Secured, tmp_path: Path, user: str
) -> None:
    """A console shows what the client of its --command-config may see, to those who have its token."""
    secured.fill()
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties(user).items()))
    address, how = f"127.0.0.1:{secured.ports[PORT]}", ("--command-config", str(file))
    console = ConsoleProcess(address, tmp_path / "console.log", "0.0.0.0", how)
    wrong = []
    try:
        console.start()
        bearer = {"Authorization": f"Bearer {console.token}"}

        def has_looked() -> bool:
            cluster = console.get("/api/cluster", **bearer).json["cluster"]
            return cluster is not None and (user == KNOWN or GROUP in repr(cluster))

        wait_until(has_looked, "the console has looked at the cluster", 60)
        for page in PAGES.values():
            if (status := console.get(page.path).status) != UNAUTHORIZED:
                wrong.append(f"{page.path}: without the token {status}")
            answer = console.get(page.path, **bearer)
            expected = page.known if user == KNOWN else page.privileged
            if answer.status != expected:
                wrong.append(f"{page.path}: {answer.status} for {user}, not {expected}: {answer.body!r}")
            names = {each for each in (TOPIC, GROUP, USER, TRANSACTION) if each.encode() in answer.body}
            if user == KNOWN and names - ({TOPIC} if page.known == NOT_FOUND else set()):
                wrong.append(f"{page.path}: {user} sees {names}")
            if user == PRIVILEGED and page.shows and page.shows not in names:
                wrong.append(f"{page.path}: {user} does not see {page.shows}")
    finally:
        console.kill()
    assert not wrong, "\n".join(wrong)


def client_version(client: Connection, key: int) -> int:
    """A version that both sides know, or one that nobody has."""
    return next((each for each in range(32) if client.serves(key, each)), -1)
