"""Authentication on a SASL listener: SaslHandshake, the mechanism's exchange, and re-authentication (KIP-368).

Pure: a frame and the time in, an outcome out. Until the exchange is complete, only one ApiVersions request is accepted
besides. Follows Apache Kafka's SaslServerAuthenticator. No outcome contains a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.security.sasl_server import Nameless, SaslAuthenticationError, SaslError, SaslServer
from kafkacompat.wire.apis import APIS, ApiKey, request_class
from kafkacompat.wire.codec import decoder, encoder
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import RequestHeader, parse_request_header, response_header_bytes
from kafkacompat.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkacompat.wire.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest

REAUTHENTICATION_EVERY_MS = 1000
"""The shortest interval between two re-authentications."""
FIRST_HANDSHAKE_WITH_AUTHENTICATE = 1
"""After an older handshake the mechanism's messages are sent without request headers."""
_SIZE = Layout(">i")


class Preparation(NamedTuple):
    """What has to be computed, by a worker, before a client's message can be evaluated."""

    compute: Callable[[], Any]
    use: Callable[[Any], None]
    """Takes the result, in the loop."""


class EnabledMechanism(NamedTuple):
    """One of a listener's `sasl.enabled.mechanisms`."""

    begin: Callable[[], SaslServer]
    """Begins a new exchange."""
    max_reauth_ms: int
    """connections.max.reauth.ms: the length of a session; 0 means forever."""
    name_of: Callable[[str], str] | None = None
    """The user's name for an authorization id. Raises Nameless. None: it is the name."""
    blocks: bool = False
    """Its exchanges may wait for files, so a worker carries them out."""
    preparation_for: Callable[[bytes], Preparation | None] | None = None
    """For a client's message. None: nothing ever has to be computed before."""


class Answer(NamedTuple):
    """Send this complete reply, including its size. None: the client waits for none."""

    reply: bytes | None


class Failure(NamedTuple):
    """After connection.failed.authentication.delay.ms send the reply, if there is one, and close the connection."""

    reply: bytes | None
    reason: str


class AskedForVersions(NamedTuple):
    """An ApiVersions request, which the usual handler answers."""


class IllegalRequest(NamedTuple):
    """A request in place of SaslAuthenticate: handled like a Failure, with ILLEGAL_SASL_STATE in the response of that
    API."""

    header: RequestHeader


class Work(NamedTuple):
    """A worker has to call this. Its result, or its exception, is for `worked`."""

    evaluate: Callable[[], Any]


Outcome = Answer | Failure | AskedForVersions | IllegalRequest | Work


class _State(Enum):
    HANDSHAKE_OR_VERSIONS = 0
    HANDSHAKE = 1
    """The versions were sent."""
    AUTHENTICATE = 2
    BAD_MECHANISM = 3
    """The handshake was for another mechanism than the session's: the next message fails."""
    COMPLETE = 4
    FAILED = 5


class SaslServerAuthenticator:
    """The authenticator of one connection. WireError from any method closes it at once, without an answer."""

    __slots__ = (
        "_before",
        "_has_headers",
        "_mechanism",
        "_mechanisms",
        "_prepared",
        "_reauthentication_began_ms",
        "_server",
        "_state",
        "_worked_for",
        "client_may_again",
        "expires_ms",
        "nameless_because",
        "token_authenticated",
        "user",
    )

    def __init__(self, mechanisms: Mapping[str, EnabledMechanism]) -> None:
        self._mechanisms = mechanisms
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._has_headers = False
        self._before: tuple[str, str] | None = None
        """Mechanism and user of the session that is being re-authenticated."""
        self._reauthentication_began_ms: int | None = None
        self._state = _State.HANDSHAKE_OR_VERSIONS
        self._worked_for: RequestHeader | None = None
        """The request whose message is with a worker. None if the message has no header."""
        self._prepared: Callable[[Any], bytes | None] | None = None
        """Evaluates the message, with what a worker computes for it."""
        self.client_may_again = False
        """Whether the client knows that its session may end, and how to authenticate again (KIP-368)."""
        self.user: str | None = None
        """Set once authenticated, also during re-authentication."""
        self.nameless_because = ""
        """Why no rule gives the authenticated client a name. As in Apache Kafka, its first request closes the connection."""
        self.token_authenticated = False
        """Whether the client has shown a delegation token."""
        self.expires_ms: int | None = None
        """When the session ends without re-authentication. None means never."""

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def versions_told(self) -> None:
        """An ApiVersions request was answered with versions: no second one is accepted."""
        self._state = _State.HANDSHAKE

    def begins_anew(self, api_key: int, now_ms: int) -> bool:
        """Whether this request on an authenticated connection begins a re-authentication, and so belongs to `handle`."""
        if api_key != ApiKey.SASL_HANDSHAKE or self.expires_ms is None:
            return False
        began_ms = self._reauthentication_began_ms
        if began_ms is not None and now_ms - began_ms < REAUTHENTICATION_EVERY_MS:
            return False
        assert self.user is not None
        self._reauthentication_began_ms = now_ms
        self._before = (self._mechanism, self.user)
        self._has_headers = False
        self._server = None
        self._state = _State.HANDSHAKE
        return True

    def has_expired(self, now_ms: int) -> bool:
        """A session without any lifetime, from a token taken within the clock skew, is over at once."""
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def handle(self, frame: memoryview, now_ms: int) -> Outcome:
        """The outcome of one frame, while not complete."""
        if self._state is _State.AUTHENTICATE:
            if self._has_headers:
                outcome = self._authenticate(frame, now_ms)
            else:
                outcome = self._message(None, bytes(frame), now_ms)
        elif self._state is _State.BAD_MECHANISM:
            outcome = Failure(None, "another mechanism than the session began with")
        elif self._state in (_State.HANDSHAKE_OR_VERSIONS, _State.HANDSHAKE):
            outcome = self._handshake_or_versions(frame)
        else:
            raise WireError("a frame behind the end of a SASL exchange")
        if isinstance(outcome, (Failure, IllegalRequest)):
            self._state = _State.FAILED
        return outcome

    def worked(self, result: Callable[[], Any], now_ms: int) -> Answer | Failure:
        """The outcome of Work. `result` returns what its function has returned, or raises what it has raised."""
        header, self._worked_for = self._worked_for, None
        prepared, self._prepared = self._prepared, None
        evaluated = result if prepared is None else lambda: prepared(result())
        outcome = self._evaluated(header, evaluated, now_ms)
        if isinstance(outcome, Failure):
            self._state = _State.FAILED
        return outcome

    def _handshake_or_versions(self, frame: memoryview) -> Outcome:
        header = parse_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS and self._state is _State.HANDSHAKE_OR_VERSIONS:
            return AskedForVersions()
        if header.api_key != ApiKey.SASL_HANDSHAKE:
            raise WireError(f"request of API {header.api_key} before authentication")
        request: SaslHandshakeRequest = _decoded(header, frame)
        self._has_headers = header.api_version >= FIRST_HANDSHAKE_WITH_AUTHENTICATE
        answer = SaslHandshakeResponse(mechanisms=list(self._mechanisms))
        enabled = self._mechanisms.get(request.mechanism)
        if enabled is None:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return Failure(_reply(header, answer), "a SASL mechanism that is not enabled")
        if self._before is not None and self._before[0] != request.mechanism:
            self._state = _State.BAD_MECHANISM
        else:
            self._mechanism, self._server = request.mechanism, enabled.begin()
            self._state = _State.AUTHENTICATE
        return Answer(_reply(header, answer))

    def _authenticate(self, frame: memoryview, now_ms: int) -> Outcome:
        header = parse_request_header(frame)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            return IllegalRequest(header)
        request: SaslAuthenticateRequest = _decoded(header, frame)
        if header.api_version > 0:
            self.client_may_again = True
        return self._message(header, bytes(request.auth_bytes), now_ms)

    def _message(self, header: RequestHeader | None, message: bytes, now_ms: int) -> Outcome:
        assert self._server is not None
        evaluate = partial(self._server.evaluate_response, message)
        enabled = self._mechanisms[self._mechanism]
        if enabled.blocks:
            self._worked_for = header
            return Work(evaluate)
        preparation = None if enabled.preparation_for is None else enabled.preparation_for(message)
        if preparation is not None:

            def prepared(computed: Any) -> bytes | None:
                preparation.use(computed)
                return evaluate()

            self._worked_for, self._prepared = header, prepared
            return Work(preparation.compute)
        return self._evaluated(header, evaluate, now_ms)

    def _evaluated(
        self, header: RequestHeader | None, result: Callable[[], bytes | None], now_ms: int
    ) -> Answer | Failure:
        """The answer to a message, with or without a header."""
        try:
            token = result()
            self._name()
        except SaslAuthenticationError as error:
            return (
                Failure(None, error.reason)
                if header is None
                else self._refused(header, str(error), error.reason)
            )
        except SaslError as error:
            if header is None:
                raise WireError(f"SASL with {self._mechanism}: {error}") from None
            again = "authentication" if self._before is None else "re-authentication"
            told = f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
            return self._refused(header, told, f"{told}: {error}")
        lifetime_ms = self._complete(now_ms)
        if header is None:
            return Answer(None if token is None else _SIZE.pack(len(token)) + token)
        answer = SaslAuthenticateResponse(auth_bytes=token or b"", session_lifetime_ms=lifetime_ms)
        return Answer(_reply(header, answer))

    def _name(self) -> None:
        """Once the exchange is complete, the user's name."""
        assert self._server is not None
        user = self._server.authorization_id
        if user is None:
            return
        name_of = self._mechanisms[self._mechanism].name_of
        if name_of is not None:
            try:
                user = name_of(user)
            except Nameless as problem:
                if self._before is not None:
                    raise WireError(f"re-authentication: {problem}") from None
                self.nameless_because = str(problem)
        if self._before is not None and user != self._before[1]:
            raise SaslAuthenticationError(
                f"Cannot change principals during re-authentication from User.{self._before[1]}: User.{user}"
            )
        self.user = user

    def _complete(self, now_ms: int) -> int:
        """How long the session may last from now on. 0 means forever, or that the exchange continues."""
        assert self._server is not None
        if self._server.authorization_id is None:
            return 0
        self.token_authenticated = self._server.token_authenticated
        bounds = [] if self._server.lifetime_ms is None else [self._server.lifetime_ms]
        max_reauth_ms = self._mechanisms[self._mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            bounds.append(max_reauth_ms)
        self._server = None
        self._state = _State.COMPLETE
        lifetime_ms = max(0, min(bounds, default=0))
        self.expires_ms = now_ms + lifetime_ms if bounds else None
        return lifetime_ms

    def _refused(self, header: RequestHeader, text: str, reason: str) -> Failure:
        answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
        return Failure(_reply(header, answer), reason)


def _decoded(header: RequestHeader, frame: memoryview) -> Any:
    """Raises WireError, also for an unsupported version."""
    api = APIS[header.api_key]
    if not api.oldest <= header.api_version <= api.latest:
        raise WireError(f"API {header.api_key} has no version {header.api_version}")
    return decoder(request_class(header.api_key), header.api_version)(frame, header.body_offset)[0]


def _reply(header: RequestHeader, answer: Any) -> bytes:
    out = bytearray(_SIZE.size)
    out += response_header_bytes(header.api_key, header.api_version, header.correlation_id)
    encoder(type(answer), header.api_version)(answer, out)
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return bytes(out)
