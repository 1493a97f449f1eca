"""Connections to listeners with SASL: nothing is served before the exchange is complete, and failures are answered late."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import CountingRandom, HandTime, HandWorkers
from kafkacompat.api.sasl_dispatch import NobodyAuthenticates, SaslDispatcher
from kafkacompat.config import EndPoint, ServerConfig, defaults_without_file
from kafkacompat.ports import WorkersBusy
from kafkacompat.ports.dispatcher import ANONYMOUS, CloseConnection, ConnectionInfo, Pending, Principal
from kafkacompat.security.delegation_tokens import TokenCredentials, token_settings
from kafkacompat.security.sasl_authenticator import EnabledMechanism, Preparation
from kafkacompat.security.sasl_server import Nameless, PlainSaslServer, initial_response
from kafkacompat.security.scram import SCRAM_BY_NAME, ScramMechanism
from kafkacompat.security.scram_exchange import ScramSaslClient
from kafkacompat.server.authentication import mechanisms_by_listener
from kafkacompat.tasks import Tasks
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import decoder, encoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import parse_request_header, parse_response_header, request_header_bytes
from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord

HANDSHAKE, AUTHENTICATE, VERSIONS, METADATA = 17, 36, 18, 3
DELAY_MS = 100
SESSION_MS = 10_000


class Served:
    """Stands for the node's dispatcher: records each frame and gives a fixed reply."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, Principal]] = []
        self.closed = 0
        self.versions_error = 0
        self.refused: list[tuple[int, ErrorCode]] = []

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Any:
        header = parse_request_header(frame)
        self.frames.append((header.api_key, connection.principal))
        return [bytearray(8) + self.versions_error.to_bytes(2, "big")]

    def refusal(self, header: Any, frame: memoryview, code: ErrorCode) -> Any:
        self.refused.append((header.api_key, code))
        return [b"refused"]

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.closed += 1


class Client:
    def __init__(
        self,
        max_reauth_ms: int = 0,
        delay_ms: int = DELAY_MS,
        name_of: Callable[[str], str] | None = None,
        blocks: bool = False,
    ) -> None:
        self.time = HandTime()
        self.workers = HandWorkers()
        self.served = Served()
        plain = EnabledMechanism(
            lambda: PlainSaslServer({"user_alice": "secret"}), max_reauth_ms, name_of, blocks
        )
        self.dispatcher = SaslDispatcher(
            self.served,  # type: ignore[arg-type]
            {"SAFE": {"PLAIN": plain}},
            delay_ms,
            self.time,
            Tasks(self.time),
            self.workers,
        )
        self.info = ConnectionInfo(1, "SAFE", "127.0.0.1", 9, listener_is_sasl=True)
        self.told: list[bool] = []
        self.info.on_authentication = self.told.append

    def send(self, key: int, version: int, **fields: Any) -> Any:
        out = request_header_bytes(key, version, 7, "client")
        encoder(request_class(key), version)(request_class(key)(**fields), out)
        return self.dispatcher.dispatch(self.info, memoryview(out))

    def log_in(self, password: str = "secret") -> Any:
        self.send(HANDSHAKE, 1, mechanism="PLAIN")
        return self.send(AUTHENTICATE, 2, auth_bytes=initial_response("alice", password))


def decoded(reply: Any, key: int, version: int) -> Any:
    body = bytes(reply[0])[4:]
    _, position = parse_response_header(body, key, version)
    return decoder(response_class(key), version)(body, position)[0]


def test_a_connection_of_another_listener_passes_through() -> None:
    client = Client()
    client.info = ConnectionInfo(2, "PLAINTEXT", "127.0.0.1", 9)
    client.send(METADATA, 12)
    assert client.served.frames == [(METADATA, ANONYMOUS)]


@pytest.mark.parametrize("key", [METADATA, AUTHENTICATE, 0])
def test_nothing_is_served_before_the_handshake(key: int) -> None:
    client = Client()
    with pytest.raises(WireError):
        client.send(key, request_class(key).MAX_VERSION)
    assert not client.served.frames


def test_an_authenticated_client_is_served_in_its_name() -> None:
    client = Client()
    answer = decoded(client.log_in(), AUTHENTICATE, 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert client.told == [True]
    client.send(METADATA, 12)
    assert client.served.frames == [(METADATA, Principal("User", "alice"))]


def test_a_client_is_known_by_the_token_that_it_has_shown() -> None:
    class WithToken(PlainSaslServer):
        def evaluate_response(self, response: bytes) -> bytes:
            self.token_authenticated = True
            return super().evaluate_response(response)

    client = Client(1_000)
    shown = EnabledMechanism(lambda: WithToken({"user_alice": "secret"}), 1_000)
    client.dispatcher = SaslDispatcher(
        client.served,  # type: ignore[arg-type]
        {"SAFE": {"PLAIN": shown}},
        DELAY_MS,
        client.time,
        Tasks(client.time),
        client.workers,
    )
    client.log_in()
    client.send(METADATA, 12)
    assert client.served.frames == [(METADATA, Principal("User", "alice", True))]


def test_the_bounds_of_a_stranger_hold_until_the_exchange_is_complete() -> None:
    client = Client()
    client.send(HANDSHAKE, 1, mechanism="PLAIN")
    assert not client.told


def test_versions_are_told_once_and_a_refused_request_for_them_may_be_repeated() -> None:
    client = Client()
    client.served.versions_error = ErrorCode.UNSUPPORTED_VERSION
    client.send(VERSIONS, 4)
    client.served.versions_error = 0
    client.send(VERSIONS, 0)
    with pytest.raises(WireError):
        client.send(VERSIONS, 0)
    assert len(client.served.frames) == 2


def test_a_failure_is_answered_late_and_then_the_connection_closed(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    pending = client.log_in("wrong")
    assert "of 127.0.0.1:9 on SAFE failed authentication" in caplog.text
    assert "wrong" not in caplog.text
    assert isinstance(pending, Pending)
    assert pending.blocks
    client.time.advance(DELAY_MS - 1)
    assert not pending.reply.done
    client.time.advance(1)
    with pytest.raises(CloseConnection) as end:
        pending.reply.result()
    answer = decoded(end.value.last_reply, AUTHENTICATE, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert client.info.principal == ANONYMOUS
    assert not client.told


def test_without_a_delay_it_is_answered_at_once() -> None:
    with pytest.raises(CloseConnection) as end:
        Client(delay_ms=0).log_in("wrong")
    assert end.value.last_reply is not None


def test_a_client_that_leaves_meanwhile_leaves_no_timer() -> None:
    client = Client()
    client.log_in("wrong")
    client.dispatcher.connection_closed(client.info)
    assert not client.time.pending()
    assert client.served.closed == 1


def test_another_request_during_the_exchange_is_refused_in_its_own_form() -> None:
    client = Client()
    client.send(HANDSHAKE, 1, mechanism="PLAIN")
    pending = client.send(METADATA, 12)
    client.time.advance(DELAY_MS)
    with pytest.raises(CloseConnection) as end:
        pending.reply.result()
    assert end.value.last_reply == [b"refused"]
    assert client.served.refused == [(METADATA, ErrorCode.ILLEGAL_SASL_STATE)]
    assert not client.served.frames


def test_a_session_that_has_ended_closes_its_connection() -> None:
    client = Client(SESSION_MS)
    assert decoded(client.log_in(), AUTHENTICATE, 2).session_lifetime_ms == SESSION_MS
    client.time.advance(SESSION_MS - 1)
    client.send(METADATA, 12)
    client.time.advance(1)
    with pytest.raises(CloseConnection):
        client.send(METADATA, 12)
    assert len(client.served.frames) == 1


def test_a_session_that_is_begun_anew_lasts_on() -> None:
    client = Client(SESSION_MS)
    client.log_in()
    client.time.advance(SESSION_MS - 1)
    client.log_in()
    assert client.told == [True, False, True]
    client.time.advance(SESSION_MS - 2)
    client.send(METADATA, 12)
    assert client.served.frames == [(METADATA, Principal("User", "alice"))]


def test_a_failure_to_begin_anew_ends_the_session() -> None:
    client = Client(SESSION_MS)
    client.log_in()
    pending = client.log_in("wrong")
    client.time.advance(DELAY_MS)
    with pytest.raises(CloseConnection):
        pending.reply.result()


def test_connections_do_not_know_of_each_other() -> None:
    client = Client()
    client.log_in()
    client.info = ConnectionInfo(2, "SAFE", "127.0.0.1", 10, listener_is_sasl=True)
    with pytest.raises(WireError):
        client.send(METADATA, 12)


def test_a_number_of_a_connection_that_has_ended_says_nothing_of_the_next() -> None:
    client = Client()
    client.log_in()
    client.dispatcher.connection_closed(client.info)
    with pytest.raises(WireError):
        client.send(METADATA, 12)


class Meter:
    def __init__(self) -> None:
        self.noted: list[str] = []

    def authenticated(self, now_ms: int, *, may_again: bool = False, began_ms: int | None = None) -> None:
        assert may_again
        self.noted.append("first" if began_ms is None else f"again in {now_ms - began_ms} ms")

    def not_authenticated(self, now_ms: int, *, again: bool = False) -> None:
        self.noted.append("failed again" if again else "failed")

    def session_ended(self) -> None:
        self.noted.append("ended")


def test_authentications_are_counted() -> None:
    meter, client = Meter(), Client(SESSION_MS)
    client.info.meter = meter
    client.log_in()
    for _ in range(2):
        client.time.advance(SESSION_MS // 2)
        client.send(HANDSHAKE, 1, mechanism="PLAIN")
        client.time.advance(20)
        client.send(AUTHENTICATE, 2, auth_bytes=initial_response("alice", "secret"))
    client.time.advance(SESSION_MS // 2)
    client.log_in("wrong")
    assert meter.noted == ["first", "again in 20 ms", "again in 20 ms", "failed again"]


def test_a_client_that_goes_on_after_its_session_is_counted() -> None:
    meter, client = Meter(), Client(SESSION_MS)
    client.info.meter = meter
    client.log_in()
    client.time.advance(SESSION_MS - 1)
    client.send(METADATA, 12)
    client.time.advance(1)
    with pytest.raises(CloseConnection, match="its session has ended"):
        client.send(METADATA, 12)
    assert meter.noted == ["first", "ended"]


def test_a_failed_authentication_is_counted() -> None:
    meter, client = Meter(), Client()
    client.info.meter = meter
    client.log_in("wrong")
    assert meter.noted == ["failed"]


def test_a_worker_carries_out_what_may_wait_for_files() -> None:
    client = Client(blocks=True)
    pending = client.log_in()
    assert isinstance(pending, Pending)
    assert pending.blocks
    assert not client.told
    client.workers.run()
    assert decoded(pending.reply.result(), AUTHENTICATE, 2).error_code == 0
    assert client.told == [True]
    assert client.info.principal == Principal("User", "alice")


def test_what_a_worker_refuses_is_answered_late() -> None:
    client = Client(blocks=True)
    pending = client.log_in("wrong")
    client.workers.run()
    assert not pending.reply.done
    client.time.advance(DELAY_MS)
    with pytest.raises(CloseConnection) as end:
        pending.reply.result()
    assert decoded(end.value.last_reply, AUTHENTICATE, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client = Client(blocks=True, delay_ms=0)
    pending = client.log_in("wrong")
    client.workers.run()
    with pytest.raises(CloseConnection, match="authentication failed"):
        pending.reply.result()


@pytest.mark.parametrize(
    ("problem", "is_a_bug"),
    [
        (WorkersBusy("1000 jobs wait"), False),
        (OSError(24, "too many open files"), False),
        (KeyError("a bug"), True),
    ],
)
def test_a_connection_is_closed_whose_authentication_is_not_carried_out(
    problem: Exception, is_a_bug: bool, faults: Faults
) -> None:
    client = Client(blocks=True)
    pending = client.log_in()
    _, answer = client.workers.submitted.pop()
    answer.fail(problem)
    assert faults.take() == [problem] * is_a_bug
    with pytest.raises(NobodyAuthenticates, match="was not carried out"):
        pending.reply.result()
    assert client.info.principal == ANONYMOUS


def test_nothing_is_done_for_a_client_that_has_gone_before_its_turn() -> None:
    client = Client(blocks=True)
    pending = client.log_in()
    client.dispatcher.connection_closed(client.info)
    client.workers.run()
    assert not pending.reply.done
    assert not client.told


def test_a_client_without_a_name_is_closed_at_the_first_request() -> None:
    def nameless(name: str) -> str:
        raise Nameless("no rule applies")

    client = Client(name_of=nameless)
    assert decoded(client.log_in(), AUTHENTICATE, 2).error_code == 0
    with pytest.raises(CloseConnection, match="no rule applies"):
        client.send(METADATA, 12)
    assert not client.served.frames


MECHANISM = SCRAM_BY_NAME["SCRAM-SHA-512"]


class TokenListener:
    """A listener with SCRAM and delegation tokens, and its clients."""

    def __init__(self) -> None:
        settings = {
            "delegation.token.secret.key": "secret",
            "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
        config = ServerConfig.from_properties(defaults_without_file(), settings)
        self.settings, self.workers, self.time = token_settings(config), HandWorkers(), HandTime()
        self.tokens = TokenCredentials(self.settings, CountingRandom())
        self.token: Any = DelegationTokenRecord(owner="User:alice", expiration_timestamp=10_000)

        def derive(token_id: str, mechanism: ScramMechanism) -> Preparation | None:
            found = self.tokens.derivation(token_id, self._of(token_id), mechanism)
            return (
                None if found is None else Preparation(found, partial(self.tokens.keep, token_id, mechanism))
            )

        mechanisms = mechanisms_by_listener(
            config,
            [EndPoint("PLAINTEXT", "", 1, "SASL_PLAINTEXT")],
            lambda user, mechanism: None,
            CountingRandom(),
            lambda: 0,
            lambda token_id, mechanism: self.tokens.of(token_id, self._of(token_id), mechanism),
            None,
            derive,
        )
        self.dispatcher = SaslDispatcher(Served(), mechanisms, 0, self.time, Tasks(self.time), self.workers)  # type: ignore[arg-type]
        self.connections = 0

    def _of(self, token_id: str) -> Any:
        return self.token if token_id == "t" else None

    def begin(self, token_id: str = "t") -> tuple[ConnectionInfo, ScramSaslClient, Any]:
        """The answer to the first message of a new connection."""
        self.connections += 1
        info = ConnectionInfo(self.connections, "PLAINTEXT", "127.0.0.1", 9, listener_is_sasl=True)
        password = b64encode(self.settings.hmac(token_id)).decode()
        client = ScramSaslClient(MECHANISM, token_id, password, f"nonce{self.connections}", is_token=True)
        self.send(info, HANDSHAKE, 1, mechanism=MECHANISM.name)
        return info, client, self.send(info, AUTHENTICATE, 2, auth_bytes=client.initial_response())

    def send(self, info: ConnectionInfo, key: int, version: int, **fields: Any) -> Any:
        out = request_header_bytes(key, version, 7, "client")
        encoder(request_class(key), version)(request_class(key)(**fields), out)
        return self.dispatcher.dispatch(info, memoryview(out))

    def end(self, info: ConnectionInfo, client: ScramSaslClient, reply: Any) -> None:
        final = client.evaluate_challenge(bytes(decoded(reply, AUTHENTICATE, 2).auth_bytes))
        reply = self.send(info, AUTHENTICATE, 2, auth_bytes=final)
        assert client.evaluate_challenge(bytes(decoded(reply, AUTHENTICATE, 2).auth_bytes)) is None
        assert info.principal == Principal("User", "alice", True)


def test_a_worker_derives_the_key_of_a_token_and_that_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few milliseconds, which anyone can ask for who knows the id of a token."""
    derived: list[int] = []
    honest = ScramMechanism.salted_password

    def counted(self: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        derived.append(iterations)
        return honest(self, password, salt, iterations)

    listener = TokenListener()
    monkeypatch.setattr(ScramMechanism, "salted_password", counted)
    begun = [listener.begin() for _ in range(3)]
    assert (derived, len(listener.workers.submitted)) == ([], 3)
    assert all(isinstance(pending, Pending) and pending.blocks for _, _, pending in begun)
    listener.workers.run()
    assert derived == [4096]
    monkeypatch.undo()
    for info, client, pending in begun:
        listener.end(info, client, pending.reply.result())
    info, client, reply = listener.begin()
    assert not listener.workers.submitted
    listener.end(info, client, reply)


def test_for_a_token_that_there_is_not_nothing_is_derived() -> None:
    listener = TokenListener()
    with pytest.raises(CloseConnection):
        listener.begin("other")
    info, _, pending = listener.begin()
    listener.token = None  # deleted while its key is derived
    listener.workers.run()
    with pytest.raises(CloseConnection):
        pending.reply.result()
    assert info.principal == ANONYMOUS
