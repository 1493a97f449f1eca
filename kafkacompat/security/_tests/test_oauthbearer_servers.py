"""Keys and tokens of OAUTHBEARER from an authorization server: refreshes, bounds, what is asked, and what is told of a failure."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacompat._tests.certificates import Authority
from kafkacompat._tests.doubles import START_MS, HandTime, HandWorkers
from kafkacompat._tests.http_server import Server, serving
from kafkacompat._tests.tokens import claims, private_key, public_entry, signed
from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.ports import WorkersBusy
from kafkacompat.security.client_settings import connection_of_client, security_of_client, security_to_brokers
from kafkacompat.security.http_fetch import Bounds, FetchFailed, fetch, http_address
from kafkacompat.security.jwks import MISSING_INTERVAL_MS, Background
from kafkacompat.security.librdkafka import librdkafka_settings
from kafkacompat.security.mechanisms import mechanisms_of
from kafkacompat.security.oauthbearer import REFUSED, ClientInitialResponse
from kafkacompat.security.oauthbearer_client import TokenEndpoint, TokenSource
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.sasl_server import SaslServer
from kafkacompat.tasks import Tasks

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
NOW_S = START_MS // 1000
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
SECRET = "s3cret+of the client"
SMALL = Bounds(5.0, 5.0, 1000)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def jwks(*key_ids: str) -> bytes:
    return json.dumps({"keys": [public_entry(private_key(each), each) for each in key_ids]}).encode()


class Listener:
    """A listener that checks tokens by the keys of a URL; its fetches run when the test says so."""

    def __init__(self, url: str, options: str = "", **settings: str) -> None:
        self.time, self.workers = HandTime(), HandWorkers()
        config = ServerConfig.from_properties(
            defaults_without_file(),
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.safe.oauthbearer.sasl.jaas.config": f"{MODULE}{options};",
                JWKS_URL: url,
                "sasl.oauthbearer.allow.unverified.audience": "true",
                "sasl.oauthbearer.allow.unverified.issuer": "true",
                **settings,
            },
        )
        background = Background(self.workers, Tasks(self.time), self.time)
        found = mechanisms_of(
            config, "SAFE", lambda *_: None, SystemRandom(), self.time.now_ms, background=background
        )
        self._begin = found["OAUTHBEARER"].begin
        self.time.advance(0)

    def lets_in(self, which: str) -> bool:
        """A good token that the key of this name has signed."""
        server: SaslServer = self._begin()
        token = signed(claims(self.time.now_ms() / 1000), which, kid=which)
        answer = server.evaluate_response(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        assert answer in (b"", REFUSED.encode())
        return answer == b""


def test_keys_are_fetched_beside_the_loop_and_refreshed(server: Server) -> None:
    server.answer = lambda asked: (200, jwks("one"))
    listener = Listener(server.base + "/keys?tenant=1")
    assert not server.asked
    assert not listener.lets_in("one")
    listener.workers.run()
    assert listener.lets_in("one")
    assert (server.asked[0].method, server.asked[0].target) == ("GET", "/keys?tenant=1")
    assert listener.time.waiting == [3_600_000]
    server.answer = lambda asked: (200, jwks("two"))
    listener.time.advance(3_600_000)
    assert listener.lets_in("one")
    listener.workers.run()
    assert (listener.lets_in("one"), listener.lets_in("two")) == (False, True)


def test_a_failed_fetch_is_repeated_and_keeps_the_keys(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "300",
    }
    listener = Listener(server.base + "/keys?s3cret", **settings)
    waits = []
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            listener.workers.run()
            waits.extend(listener.time.waiting)
            listener.time.fire_next()
    assert waits == [100, 200, 300, 300]
    assert "answered with status 404" in caplog.text
    assert "s3cret" not in caplog.text
    server.answer = lambda asked: (200, jwks("one"))
    listener.workers.run()
    assert listener.lets_in("one")
    for wrong in (b"", b"{", b'{"keys": []}', b" " * (1 << 20 | 1)):
        server.answer = lambda asked, wrong=wrong: (200, wrong)  # type: ignore[misc]
        listener.time.fire_next()
        listener.workers.run()
        assert listener.lets_in("one")
        assert listener.time.waiting[0] <= 300


def test_a_fetch_that_fails_for_an_unexpected_reason_is_reported_and_repeated(
    server: Server, monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    server.answer = lambda asked: (200, jwks("one"))
    listener = Listener(server.base)

    def fails(data: bytes) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("kafkacompat.security.jwks.parse_jwks", fails)
        listener.workers.run()
    assert [type(each) for each in faults.take()] == [RuntimeError]
    listener.time.fire_next()
    listener.workers.run()
    assert listener.lets_in("one")


def test_a_fetch_for_which_there_is_no_thread_is_no_bug_and_is_repeated(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = lambda asked: (200, jwks("one"))
    listener = Listener(server.base)
    _, fetch = listener.workers.submitted.pop()
    with caplog.at_level(logging.WARNING):
        fetch.fail(WorkersBusy("100 jobs wait for threads"))
    assert "were not fetched" in caplog.text
    assert "bug" not in caplog.text
    listener.time.fire_next()
    listener.workers.run()
    assert listener.lets_in("one")


def test_tokens_with_an_unknown_key_cause_few_fetches(server: Server) -> None:
    server.answer = lambda asked: (200, jwks("one"))
    listener = Listener(server.base)
    listener.lets_in("two")
    assert len(listener.workers.submitted) == 1
    listener.workers.run()
    server.answer = lambda asked: (200, jwks("one", "two"))
    for which in ("two", "three", "two"):
        assert not listener.lets_in(which)
    assert len(listener.workers.submitted) == 1
    listener.workers.run()
    assert listener.lets_in("two")
    listener.lets_in("three")
    assert not listener.workers.submitted
    listener.time.advance(MISSING_INTERVAL_MS)
    listener.lets_in("three")
    assert len(listener.workers.submitted) == 1


def test_a_server_with_tls_must_be_trusted(tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem())
    trust = f' ssl.truststore.type="PEM" ssl.truststore.location="{ca}"'
    with serving(tmp_path, authority.issue()) as server:
        server.answer = lambda asked: (200, jwks("one"))
        listener, blind = Listener(server.base, trust), Listener(server.base)
        for each in (listener, blind):
            each.workers.run()
        assert listener.lets_in("one")
        assert not blind.lets_in("one")
    with serving(tmp_path, authority.issue(hosts=("elsewhere",))) as server:
        listener = Listener(server.base, trust)
        listener.workers.run()
        assert not server.asked


def test_other_authorities_of_a_server_count_without_a_restart(tmp_path: Path) -> None:
    """Of keys and of tokens: the file of a truststore is replaced."""
    authority, ca = Authority(), tmp_path / "ca.pem"

    def trust(one: Authority, at_s: int) -> None:
        ca.write_text(one.pem())
        os.utime(ca, (at_s, at_s))

    trust(Authority("Before"), 1)
    option = f' ssl.truststore.type="PEM" ssl.truststore.location="{ca}"'
    with serving(tmp_path, authority.issue()) as server:
        server.answer = lambda asked: (200, jwks("one") if asked.method == "GET" else token)
        token = answer(access_token="a.b.c")[1]
        listener = Listener(server.base, option)
        tokens = source(server, HandTime(), [], option)
        listener.workers.run()
        with pytest.raises(AuthenticationFailed):
            tokens.token()
        assert (server.asked, listener.lets_in("one")) == ([], False)
        trust(authority, 2)
        listener.time.fire_next()
        listener.workers.run()
        assert (tokens.token(), listener.lets_in("one")) == ("a.b.c", True)


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("http://", {}),
        ("http://user:s3cret@host/keys", {}),
        ("http://host:port/keys", {}),
        ("http://host/ke ys", {}),
        ("ftp://host/keys", {}),
        ("http://host/keys", {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}),
    ],
)
def test_a_wrong_address_is_refused_by_its_setting(url: str, settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"jwks\.endpoint") as refused:
        Listener(url, **settings)
    assert "s3cret" not in str(refused.value)


# One fetch.


def fetched(server: Server, bounds: Bounds = SMALL) -> bytes:
    address = http_address("x", server.base + "/a?secret=s3cret")
    assert address is not None
    return fetch(address, bounds, None, {"Authorization": "s3cret"})


def test_an_answer_is_bounded_in_size(server: Server) -> None:
    server.answer = lambda asked: (200, b"x" * 1000)
    assert len(fetched(server)) == 1000
    server.answer = lambda asked: (200, b"x" * 1001)
    with pytest.raises(FetchFailed, match="larger than 1000 bytes"):
        fetched(server)


def test_an_answer_is_bounded_in_time(server: Server) -> None:
    def never(asked: object) -> tuple[int, bytes]:
        server.never.wait()
        return 200, b""

    server.answer = never
    with pytest.raises(FetchFailed, match="no answer of") as failure:
        fetched(server, Bounds(5.0, 0.05, 1000))
    assert "s3cret" not in str(failure.value)


def test_an_answer_that_drips_is_bounded_in_time(server: Server) -> None:
    """Each byte comes in time; the whole does not."""
    address = http_address("x", server.base)
    assert address is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            held, _ = listener.accept()
            with held, contextlib.suppress(OSError):
                held.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n")
                for _ in range(50):
                    server.never.wait(0.02)
                    held.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        dripping = address._replace(port=listener.getsockname()[1])
        with pytest.raises(FetchFailed, match=r"no answer of|not whole"):
            fetch(dripping, Bounds(5.0, 0.2, 1000), None, {})
        thread.join()


def test_a_redirect_is_not_followed(server: Server) -> None:
    server.headers["Location"] = server.base + "/other"
    server.answer = lambda asked: (302, b"")
    with pytest.raises(FetchFailed, match="status 302"):
        fetched(server)
    assert len(server.asked) == 1


def test_an_answer_that_is_cut_off_is_none(server: Server) -> None:
    server.headers["Content-Length"] = "900"
    server.headers["Connection"] = "close"
    server.answer = lambda asked: (200, b"half")
    with pytest.raises(FetchFailed):
        fetched(server)


# A client's token.


def client(server: Server, options: str = "", **more: str) -> dict[str, str]:
    return {
        **CLIENT,
        "sasl.jaas.config": f'{MODULE} clientId="me" clientSecret="{SECRET}"{options};',
        TOKEN_URL: server.base + "/token",
        **more,
    }


def answer(**fields: Any) -> tuple[int, bytes]:
    return 200, json.dumps(fields).encode()


def test_a_client_asks_for_its_token_with_its_credentials(server: Server) -> None:
    server.answer = lambda asked: answer(access_token="a.b.c")
    security = security_of_client(client(server, ' scope="kafka all" extension_tenant="x"'))
    assert security.begin is not None
    said = ClientInitialResponse.parse(security.begin("host").initial_response())
    assert said == ("a.b.c", "", {"tenant": "x"})
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("POST", "/token")
    assert asked.body == b"grant_type=client_credentials&scope=kafka all"
    assert asked.headers["authorization"] == f"Basic {b64encode(f'me:{SECRET}'.encode()).decode()}"
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"


def test_settings_go_before_options_and_may_be_url_encoded(server: Server) -> None:
    server.answer = lambda asked: answer(id_token="a.b.c")
    prefix = "sasl.oauthbearer."
    more = {
        f"{prefix}client.credentials.client.id": "ä:1",
        f"{prefix}client.credentials.client.secret": "a+b &c*",
        f"{prefix}scope": "read write",
        f"{prefix}header.urlencode": "true",
    }
    begin = security_of_client(client(server, ' scope="other"', **more)).begin
    assert begin is not None
    begin("host").initial_response()
    (asked,) = server.asked
    assert asked.body == b"grant_type=client_credentials&scope=read+write"
    assert asked.headers["authorization"] == f"Basic {b64encode(b'%C3%A4%3A1:a%2Bb+%26c*').decode()}"


def source(server: Server, time: HandTime, pauses: list[float], options: str = "") -> TokenSource:
    endpoint = connection_of_client(client(server, options)).credentials
    assert isinstance(endpoint, TokenEndpoint)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.advance(int(seconds * 1000))

    return TokenSource(endpoint, lambda: time.now_ms() / 1000, sleep)


def test_a_token_is_kept_for_most_of_its_life(server: Server) -> None:
    time = HandTime()
    made = source(server, time, [])
    server.answer = lambda asked: answer(access_token=signed(claims(NOW_S, exp=NOW_S + 1000)))
    first = made.token()
    time.advance(799_000)
    assert (made.token(), len(server.asked)) == (first, 1)
    time.advance(1_000)
    server.answer = lambda asked: answer(access_token="a.b.c")
    assert [made.token(), made.token()] == ["a.b.c"] * 2
    assert len(server.asked) == 3, "a token that does not say when it ends is used once"


def test_a_token_is_used_to_its_end_while_its_server_is_away(server: Server) -> None:
    time, pauses = HandTime(), []
    made = source(server, time, pauses)
    server.answer = lambda asked: answer(access_token=signed(claims(NOW_S, exp=NOW_S + 1000)))
    first = made.token()
    time.advance(800_000)
    server.answer = lambda asked: (503, b"starting")
    assert made.token() == first
    asked, waited = len(server.asked), len(pauses)
    assert made.token() == first, "each connection would wait for the server"
    assert (len(server.asked), len(pauses)) == (asked, waited)
    time.advance(10_000)
    server.answer = lambda asked: answer(access_token=signed(claims(NOW_S, exp=NOW_S + 2000)))
    second = made.token()
    assert second != first
    server.answer = lambda asked: (503, b"gone")
    time.advance(2_000_000)
    with pytest.raises(AuthenticationFailed, match="status 503"):
        made.token()


@pytest.mark.parametrize("end", [float("nan"), float("inf"), 10**400], ids=["nan", "inf", "large"])
def test_a_token_whose_end_is_no_time_is_used_once(server: Server, end: float) -> None:
    made = source(server, HandTime(), [])
    server.answer = lambda asked: answer(access_token=signed(claims(NOW_S, exp=end)))
    made.token()
    made.token()
    assert len(server.asked) == 2


def test_a_server_that_fails_is_asked_again_for_a_while(server: Server) -> None:
    time, pauses = HandTime(), []
    made = source(server, time, pauses)
    server.answer = lambda asked: answer(access_token="a.b.c") if len(server.asked) == 4 else (503, b"busy")
    assert made.token() == "a.b.c"
    assert pauses == pytest.approx([0.1, 0.2, 0.4])
    server.answer = lambda asked: (503, b"s3cret")
    with pytest.raises(AuthenticationFailed, match="status 503") as failure:
        made.token()
    assert sum(pauses) < 11
    assert "s3cret" not in str(failure.value)


@pytest.mark.parametrize("status", [400, 401, 403, 412])
def test_a_refused_client_does_not_ask_again(server: Server, status: int) -> None:
    pauses: list[float] = []
    server.answer = lambda asked: (status, b"s3cret")
    with pytest.raises(AuthenticationFailed, match=f"status {status}"):
        source(server, HandTime(), pauses).token()
    assert not pauses


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"access_token": 1}', b'{"access_token": "s3cret\\u0001"}']
)
def test_an_answer_without_a_token_is_none(server: Server, body: bytes) -> None:
    server.answer = lambda asked: (200, body)
    with pytest.raises(AuthenticationFailed, match="token endpoint") as failure:
        source(server, HandTime(), []).token()
    assert "s3cret" not in str(failure.value)


def test_credentials_are_needed_and_not_shown(server: Server) -> None:
    with pytest.raises(ConfigError, match=r"client\.credentials\.client\.id must be set"):
        connection_of_client({**client(server), "sasl.jaas.config": f"{MODULE};"})
    shown = repr(connection_of_client(client(server)))
    assert SECRET not in shown


def test_librdkafka_asks_the_server_itself(server: Server) -> None:
    found = librdkafka_settings(client(server, ' scope="all" extension_a="b"'))
    assert {name.removeprefix("sasl.oauthbearer."): value for name, value in found.items()} == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "method": "oidc",
        "client.id": "me",
        "client.secret": SECRET,
        "token.endpoint.url": server.base + "/token",
        "scope": "all",
        "extensions": "a=b",
    }
    with pytest.raises(ConfigError, match="urlencode"):
        librdkafka_settings(client(server, **{"sasl.oauthbearer.header.urlencode": "true"}))


def test_a_node_does_not_wait_for_a_server_of_tokens(server: Server) -> None:
    of = "listener.name.inside."
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{of}oauthbearer.sasl.jaas.config": f"{MODULE};",
        TOKEN_URL: server.base,
    }
    with pytest.raises(ConfigError, match="between nodes only a file: URL"):
        security_to_brokers(ServerConfig.from_properties(defaults_without_file(), settings))
