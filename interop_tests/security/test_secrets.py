"""No secret leaves a node: it is searched for in logs, answers, messages, command lines and files, after everything has failed.

Everything logs at DEBUG: CVE-2026-33558, passwords and tokens of requests and responses in debug logs.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.console.process import ConsoleProcess
from interop_tests.harness.broker import APACHE, BrokerProcess, chosen_kind
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import frame
from interop_tests.security.api_rows import Row, request_of
from interop_tests.security.page_rows import PAGES
from interop_tests.security.sasl_talks import MODULES
from interop_tests.security.stores import Stores
from kafkacompat._tests.tokens import claims, private_key, public_entry, signed, write_jwks
from kafkacompat.client.blocking import Connection
from kafkacompat.failure import CommandFailed
from kafkacompat.security.client_settings import security_of_client
from kafkacompat.security.scram import SCRAM_SHA_256
from kafkacompat.wire.apis import ApiKey, response_class
from kafkacompat.wire.errors import ErrorCode

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="Apache Kafka's logs are its own"),
]
OAUTHBEARER = f"{MODULES}oauthbearer.OAuthBearerLoginModule required;"
ANSWER_S = 20.0
REFUSED_START_S = 60


class Known:
    """Every secret of the test, by what it is."""

    def __init__(self) -> None:
        self.by_name: dict[str, str] = {}
        self._forms: dict[str, tuple[bytes, ...]] = {}

    def made(self, name: str) -> str:
        self.by_name[name] = f"{name}-{secrets.token_hex(12)}"
        self.add(name, self.by_name[name].encode())
        return self.by_name[name]

    def add(self, name: str, secret: bytes) -> None:
        encoded = b64encode(secret).rstrip(b"=")
        self._forms[name] = secret, repr(secret)[2:-1].encode(), encoded, secret.hex().encode()

    def __len__(self) -> int:
        return len(self._forms)

    def found_in(self, text: bytes) -> list[str]:
        """Names of the secrets that stand in it: as they are, as Python shows bytes, in base64 or in hexadecimal digits."""
        return [name for name, forms in self._forms.items() if any(form in text for form in forms)]


def plain(user: str, password: str) -> str:
    return f'{MODULES}plain.PlainLoginModule required username="{user}" password="{password}";'


def client_of(mechanism: str, jaas: str, stores: Stores, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca_pem),
        **more,
    }


def secured(broker: BrokerProcess, port: int, known: Known, stores: Stores, folder: Path) -> None:
    """A node with a secret in every setting that takes one."""
    node, key_password = known.made("node-password"), known.made("key-password")
    users = f'user_node="{node}" user_root="{known.made("root-password")}" user_alice="{known.made("alice-password")}"'
    both = plain("node", node).removesuffix(";") + f" {users};"
    identity = stores.authority.issue()
    store = folder / "node.p12"
    store.write_bytes(identity.pkcs12(key_password))
    key = identity.key_pem()
    known.add("private-key", key.splitlines()[1].encode())
    secret_file = folder / "provided.properties"
    secret_file.write_text(f"secret={known.made('token-secret-key')}\n")
    broker.settings |= {
        "listeners": f"{broker.settings['listeners']},SAFE://127.0.0.1:{port}",
        "advertised.listeners": f"{broker.settings['advertised.listeners']},SAFE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL,SAFE:SASL_SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": key_password,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca_pem),
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.safe.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.safe.plain.sasl.jaas.config": both,
        "listener.name.safe.scram-sha-256.sasl.jaas.config": f"{MODULES}scram.ScramLoginModule required;",
        "listener.name.safe.oauthbearer.sasl.jaas.config": OAUTHBEARER,
        "listener.name.safe.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": write_jwks(
            folder / "keys.json", public_entry(private_key())
        ),
        "listener.name.safe.oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true",
        "listener.name.safe.oauthbearer.sasl.oauthbearer.allow.unverified.issuer": "true",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": both,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:node",
        "connection.failed.authentication.delay.ms": "5",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "delegation.token.secret.key": "${file:" + str(secret_file) + ":secret}",
    }


class Search:
    """What was said to somebody, and what it must not hold."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.wrong: list[str] = []
        self.looked_at = 0

    def look(self, where: str, text: str | bytes) -> None:
        self.looked_at += 1
        data = text.encode() if isinstance(text, str) else text
        self.wrong += [f"{name} in {where}" for name in self._known.found_in(data)]

    def command_lines(self) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                self.look(str(path), path.read_bytes())


def answer_to(connection: Connection, key: ApiKey, **fields: object) -> Any:
    asked = request_of(key, Row(ErrorCode.NONE, ErrorCode.NONE, fields), bytes(16))
    return connection.call(asked, response_class(key))


def look_at_a_console(search: Search, address: str, file: Path, log: Path) -> None:
    """What a console says, to those who have its token and to others."""
    console = ConsoleProcess(address, log, "0.0.0.0", ("--command-config", str(file)))
    try:
        console.start()
        bearer = {"Authorization": f"Bearer {console.token}"}
        wait_until(lambda: console.get("/health", **bearer).status == 200, "the console has connected", 60)
        for page in PAGES.values():
            for headers in ({}, bearer):
                search.look(f"the console's {page.path}", console.get(page.path, **headers).body)
        search.command_lines()
        assert console.stop() == 0
    finally:
        console.kill()
    search.look("the console's log", log.read_bytes())


def test_no_secret_is_found_anywhere(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKACOMPAT_LOG", "DEBUG")
    known, stores = Known(), Stores(tmp_path / "stores")
    search = Search(known)
    broker, port = make_broker(start=False), free_port()
    secured(broker, port, known, stores, tmp_path)
    broker.hides_settings = True
    scraped = free_port()
    broker.settings["metrics.listener.port"] = str(scraped)
    broker.start()
    assert len(known.found_in(broker.settings_path.read_bytes())) > 3, "the search finds what is there"
    search.command_lines()

    def connect(properties: dict[str, str]) -> Connection:
        return Connection("127.0.0.1", port, ANSWER_S, security_of_client(properties))

    root = client_of("PLAIN", plain("root", known.by_name["root-password"]), stores)
    with contextlib.closing(connect(root)) as connection:

        def ask(key: ApiKey, **fields: object) -> None:
            """The answer is searched, whatever it says."""
            search.look(key.name, repr(answer_to(connection, key, **fields)))

        broker_resource = {"resource_type": 4, "resource_name": "1"}
        ask(
            ApiKey.DESCRIBE_CONFIGS,
            resources=[broker_resource | {"configuration_keys": None}],
            include_synonyms=True,
            include_documentation=True,
        )
        for name in ("ssl.keystore.password", "ssl.keystore.key", "ssl.key.password", "sasl.jaas.config"):
            for prefix in ("listener.name.safe.", "listener.name.safe.plain.", ""):
                entry = {"name": prefix + name, "config_operation": 0, "value": known.made(f"altered-{name}")}
                ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[broker_resource | {"configs": [entry]}])
                ask(ApiKey.ALTER_CONFIGS, resources=[broker_resource | {"configs": [entry]}])
        ask(
            ApiKey.DESCRIBE_CONFIGS,
            resources=[broker_resource | {"configuration_keys": None}],
            include_synonyms=True,
        )
        salted = known.made("salted-password").encode()
        # Who knows them may try passwords, or pass for the node. The metadata log has them, as Kafka's.
        credential = SCRAM_SHA_256.credential(b"salt", salted, 4096)
        known.add("altered-stored-key", credential.stored_key)
        known.add("altered-server-key", credential.server_key)
        for iterations, user in ((4096, "carol"), (1, "dave"), (4096, "")):
            upsertion = {
                "name": user, "mechanism": 1, "iterations": iterations, "salt": b"salt", "salted_password": salted,
            }  # fmt: skip
            ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, upsertions=[upsertion])
        ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=[])
        made = answer_to(connection, ApiKey.CREATE_DELEGATION_TOKEN, max_lifetime_ms=-1)
        assert made.error_code == ErrorCode.NONE, made
        hmac = bytes(made.hmac)
        known.add("token-hmac", hmac)
        for period_ms in (-1, 1 << 62):
            ask(ApiKey.RENEW_DELEGATION_TOKEN, hmac=hmac, renew_period_ms=period_ms)
            ask(ApiKey.RENEW_DELEGATION_TOKEN, hmac=known.made("no-hmac").encode(), renew_period_ms=period_ms)
            ask(ApiKey.EXPIRE_DELEGATION_TOKEN, hmac=known.made("no-hmac").encode(), expiry_time_period_ms=1)
        ask(
            ApiKey.DESCRIBE_ACLS,
            resource_type_filter=1,
            pattern_type_filter=1,
            operation=1,
            permission_type=1,
        )

    # Clients that fail, each with a secret of its own.
    late = int(time.time()) - 1000
    for number, token in enumerate(
        (
            signed(claims(exp=late, iat=late - 10)),
            signed(claims(), "stranger"),
            signed(claims(sub=None)),
            f"{known.made('no-token')}.x.y",
            signed(claims()),
        )
    ):
        known.add(f"token {number}", token.encode())
        path = tmp_path / f"token-{number}"
        path.write_text(token)
        url = {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}
        try:
            connect(client_of("OAUTHBEARER", OAUTHBEARER, stores, **url)).close()
            assert number == 4, number
        except CommandFailed as failure:
            search.look(f"the refusal of token {number}", str(failure))
    for mechanism, module in (
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
    ):
        for user in ("alice", "carol", "nobody"):
            jaas = f'{MODULES}{module} required username="{user}" password="{known.made(f"wrong-{mechanism}-{user}")}";'
            with pytest.raises(CommandFailed) as refused:
                connect(client_of(mechanism, jaas, stores))
            search.look(f"the refusal of {user} by {mechanism}", str(refused.value))
            file = tmp_path / "client.properties"
            settings = client_of(mechanism, jaas, stores)
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            arguments = ("topics", "list", "--bootstrap", f"127.0.0.1:{port}", "--command-config", str(file))
            command = [sys.executable, "-m", "kafkacompat", *arguments]
            done = subprocess.run(command, capture_output=True, timeout=REFUSED_START_S)
            assert done.returncode == 1
            search.look(f"what the command says to {user}", done.stdout + done.stderr)
    garbage = known.made("garbage").encode()
    for data in (
        garbage,
        frame(garbage),
        frame(b"\0\x11\0\1\0\0\0\1" + garbage),
        b"\x16\x03\x01\0\x40" + garbage * 9,
    ):
        for each in (broker.port, port, broker.controller_port):
            with socket.create_connection(("127.0.0.1", each), ANSWER_S) as raw, contextlib.suppress(OSError):
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                search.look("an answer to garbage", raw.recv(4096))
    alice = client_of("PLAIN", plain("alice", known.by_name["alice-password"]), stores)
    with contextlib.closing(connect(alice)) as connection:
        for key, fields in (
            (ApiKey.DESCRIBE_CONFIGS, {"resources": [broker_resource | {"configuration_keys": None}]}),
            (ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None}),
            (ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": hmac, "renew_period_ms": -1}),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": hmac, "expiry_time_period_ms": -1}),
        ):
            search.look(f"what alice gets for {key.name}", repr(answer_to(connection, key, **fields)))
    for password in (b64encode(hmac).decode(), known.made("wrong-token-password")):
        options = f'username="{made.token_id}" password="{password}" tokenauth="true"'
        jaas = f"{MODULES}scram.ScramLoginModule required {options};"
        with (
            contextlib.suppress(CommandFailed),
            contextlib.closing(connect(client_of("SCRAM-SHA-256", jaas, stores))),
        ):
            pass
    file.write_text("".join(f"{name}={value}\n" for name, value in root.items()))
    look_at_a_console(search, f"127.0.0.1:{port}", file, tmp_path / "console.log")
    how = ("--bootstrap", f"127.0.0.1:{port}", "--command-config", str(file))
    for words in ("doctor", "topics list", "groups list", "quorum describe"):
        command = [sys.executable, "-m", "kafkacompat", *words.split(), *how]
        done = subprocess.run(command, capture_output=True, timeout=REFUSED_START_S)
        search.look(f"what {words} says", done.stdout + done.stderr)
    search.command_lines()
    with urlopen(f"http://127.0.0.1:{scraped}/metrics", timeout=ANSWER_S) as answer:
        search.look("metrics", answer.read())
    assert broker.stop() == 0
    search.look("the node's log", broker.log_text())
    # Whatever else a node keeps. The salted password stands there by no other name than the keys made of it.
    for path in broker.data_dir.rglob("*"):
        if path.is_file() and "altered-" not in path.name:
            kept = [each for each in known.found_in(path.read_bytes()) if not each.startswith("altered-")]
            search.wrong += [f"{name} in {path}" for name in kept]

    # A start that is refused names the setting.
    (tmp_path / "provided.properties").unlink()
    refusals = {
        "ssl.keystore.password": known.made("wrong-keystore-password"),
        "listener.name.safe.plain.sasl.jaas.config": f'x required password="{known.made("jaas-password")}',
        "ssl.keystore.key": known.made("inline-key"),
        "delegation.token.secret.key": broker.settings["delegation.token.secret.key"],
    }
    for name, value in refusals.items():
        path = tmp_path / "refused.properties"
        settings = broker.settings | {
            "delegation.token.secret.key": known.made("other-secret-key"),
            name: value,
        }
        path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        command = [sys.executable, "-m", "kafkacompat", "start", str(path)]
        done = subprocess.run(command, capture_output=True, timeout=REFUSED_START_S)
        assert done.returncode != 0, name
        search.look(f"the refusal of {name}", done.stdout + done.stderr)
    assert not search.wrong, "\n".join(dict.fromkeys(search.wrong))
    assert search.looked_at > 100
    assert len(known) > 30
