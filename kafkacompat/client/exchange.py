"""One connection to a broker as bytes: one request out, its answer in. No sockets and no clock.

A shell sends what `send` returns, and gives what arrives to `receive` until that reports the whole answer. `response`
then decodes it. A connection begins with the requests of `opening`: ApiVersions, and SASL if there are credentials.
After an error the shell closes the connection.

An error names the broker's address and the API, never what a request or an answer contains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import SASL_VERSIONS, AuthenticationFailed
from kafkacompat.wire.apis import ApiKey, response_class
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import EncodeError, ErrorCode, WireError
from kafkacompat.wire.headers import FRAME_SIZE, RESPONSE, parse_response_header, request_frame
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse

if TYPE_CHECKING:
    from kafkacompat.security.sasl_client import SaslClientAuthenticator

API_VERSIONS_VERSION = 0
"""Every broker serves it."""
OPENING_KEYS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
CORRELATION_IDS = 1 << 31
TLS_ALERT = b"\x15\x03"
"""The first bytes with which a listener with TLS refuses a connection in the clear."""

M = TypeVar("M", bound=Message)


class BrokerAway(CommandFailed):
    """The broker cannot be reached, or the connection was lost. A retry may find it, or another broker in its place."""


class NoAnswer(BrokerAway):
    """The broker took the connection, but an answer did not come in time."""


class Awaited:
    """The request whose answer is awaited."""

    __slots__ = ("api_key", "correlation_id", "version")

    def __init__(self, correlation_id: int, api_key: int, version: int) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.version = version

    @property
    def name(self) -> str:
        return ApiKey(self.api_key).name


class Exchange:
    """Each request uses the highest version that both sides know."""

    __slots__ = (
        "_authenticator",
        "_awaited",
        "_client_id",
        "_correlation_id",
        "_is_served",
        "_received",
        "_response_bytes_max",
        "_versions",
        "peer",
    )

    def __init__(
        self,
        peer: str,
        client_id: str,
        response_bytes_max: int,
        authenticator: SaslClientAuthenticator | None = None,
    ) -> None:
        """`peer`: the broker's address, for messages. `authenticator`: None for a listener without SASL."""
        # A broker may advertise a text that no page or terminal can show.
        self.peer = peer.encode(errors="backslashreplace").decode()
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._authenticator = authenticator
        self._versions: dict[int, tuple[int, int]] = {}
        """The lowest and the highest version of each API that the broker serves."""
        self._correlation_id = 0
        self._awaited: Awaited | None = None
        self._received = bytearray()
        self._is_served = False
        """Whether a request after those of `opening` was answered."""

    def opening(self, response: Message | None) -> Message | None:
        """Return the first request for None, then the next one for each response. None: the connection is ready.

        With credentials, it may take milliseconds to derive a key from a password, or wait for a server that issues
        tickets. Raises CommandFailed if the broker refuses the login, which no retry can change.
        """
        if response is None:
            return ApiVersionsRequest()
        if isinstance(response, ApiVersionsResponse):
            if response.error_code != ErrorCode.NONE:
                raise CommandFailed(f"{self.peer} answers API_VERSIONS with error {response.error_code}")
            self._versions = {
                each.api_key: (each.min_version, each.max_version) for each in response.api_keys
            }
            response = None
        if self._authenticator is None:
            return None
        try:
            return self._authenticator.step(response)
        except AuthenticationFailed as failure:
            raise CommandFailed(f"authentication with {self.peer} failed: {failure}") from None

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker supports this version of an API."""
        lowest, highest = self._versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def send(self, request: Message, max_version: int | None = None) -> bytearray:
        """Return the bytes of a request, which is then awaited. Raises CommandFailed if both sides have no version in
        common; the connection stays of use."""
        assert self._awaited is None, "one request at a time"
        assert request.API_KEY is not None
        version = self._opening_version(request)
        if version is None:
            version = self._agreed_version(request, max_version)
        correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        awaited = Awaited(correlation_id, request.API_KEY, version)
        try:
            frame = request_frame(request, version, correlation_id, self._client_id)
        except EncodeError as error:
            raise CommandFailed(f"{awaited.name} cannot be asked in version {version}: {error}") from error
        self._correlation_id, self._awaited = correlation_id, awaited
        return frame

    def receive(self, data: bytes | bytearray | memoryview) -> bool:
        """Take bytes as they arrive, cut anywhere. Return whether the answer is complete. Raises CommandFailed for what
        is no answer to the request."""
        self._received += data
        if self._awaited is None:
            raise CommandFailed(f"{self.peer} sends an answer that nobody has asked for")
        if len(self._received) < FRAME_SIZE.size:
            return False
        size: int = FRAME_SIZE.unpack_from(self._received)[0]
        if not RESPONSE.size <= size <= self._response_bytes_max:
            if self._received.startswith(TLS_ALERT):
                raise CommandFailed(
                    f"{self.peer} has TLS, so security.protocol must be SSL or SASL_SSL in the client's properties"
                )
            raise CommandFailed(
                f"the answer of {self.peer} to {self._awaited.name} claims {size} bytes, "
                f"and at most {self._response_bytes_max} are read"
            )
        surplus = len(self._received) - FRAME_SIZE.size - size
        if surplus > 0:
            raise CommandFailed(
                f"{self.peer} sends {surplus} bytes behind its answer to {self._awaited.name}"
            )
        return surplus == 0

    @property
    def response_bytes(self) -> int:
        """What has arrived of the answer."""
        return len(self._received)

    def response(self, response_type: type[M]) -> M:
        """Decode the complete answer. Raises CommandFailed. The next request may be sent."""
        awaited, received = self._awaited, self._received
        assert awaited is not None
        self._awaited, self._received = None, bytearray()
        self._is_served = self._is_served or awaited.api_key not in OPENING_KEYS
        answer = memoryview(received).toreadonly()[FRAME_SIZE.size :]
        try:
            answered_id, position = parse_response_header(answer, awaited.api_key, awaited.version)
            if answered_id != awaited.correlation_id:
                raise WireError(f"it is the one to request {answered_id}, not to {awaited.correlation_id}")
            return decode(response_type, awaited.version, answer, position)
        except WireError as error:
            raise CommandFailed(
                f"the answer of {self.peer} to {awaited.name} cannot be read: {error}"
            ) from error

    def any_response(self) -> Message:
        """Like `response`, for a request of `opening`."""
        assert self._awaited is not None
        return self.response(response_class(self._awaited.api_key))

    def unreachable(self, reason: object) -> BrokerAway:
        """The error of a connection that cannot be made."""
        return BrokerAway(f"no broker answers at {self.peer}: {reason}")

    def certificate_refused(self, reason: str) -> CommandFailed:
        return CommandFailed(f"the certificate of {self.peer} is refused: {reason}")

    def handshake_failed(self, reason: object) -> BrokerAway:
        """The error of a TLS handshake, unless the certificate is refused."""
        return BrokerAway(f"TLS with {self.peer} failed: {reason}{self._doubt()}")

    def closed(self) -> BrokerAway:
        """The error of a connection that the broker has closed."""
        return BrokerAway(f"the broker at {self.peer} closed the connection{self._doubt()}")

    def broken(self, error: OSError) -> BrokerAway:
        """The error of a connection that the operating system reports as lost."""
        return BrokerAway(f"the broker at {self.peer} did not answer: {error}{self._doubt()}")

    def timed_out(self, timeout_s: float) -> NoAnswer:
        asked = "" if self._awaited is None else f" {self._awaited.name}"
        return NoAnswer(f"the broker at {self.peer} did not answer{asked} within {timeout_s:g} s")

    def _doubt(self) -> str:
        """A listener closes the connections of clients that use TLS or SASL in another way than it does."""
        return (
            ""
            if self._is_served
            else " (does security.protocol in the client's properties fit this listener?)"
        )

    def _opening_version(self, request: Message) -> int | None:
        if isinstance(request, ApiVersionsRequest) and not self._versions:
            return API_VERSIONS_VERSION
        assert request.API_KEY is not None
        return SASL_VERSIONS.get(request.API_KEY)

    def _agreed_version(self, request: Message, max_version: int | None) -> int:
        key = cast(int, request.API_KEY)
        if key not in self._versions:
            raise CommandFailed(f"the broker at {self.peer} does not serve {ApiKey(key).name}")
        lowest, highest = self._versions[key]
        known = request.MAX_VERSION if max_version is None else min(max_version, request.MAX_VERSION)
        version = min(highest, known)
        if version < max(lowest, request.MIN_VERSION):
            raise CommandFailed(
                f"the broker at {self.peer} serves {ApiKey(key).name} in versions {lowest} to {highest}, "
                "which are not known here"
            )
        return version
