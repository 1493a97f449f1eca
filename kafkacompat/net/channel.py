"""One connection to another node for this node's own requests: typed messages out, typed messages back.

It connects on demand, agrees on versions (ApiVersions, like Kafka's NetworkClient), sends in the order of the calls,
matches replies, bounds waiting requests and memory, and backs off before it retries. Everything runs in the loop's
thread: `request` sends at once if the socket accepts it.

As in Kafka, a request in flight that times out closes the connection, because later ones would wait as long. The
others in flight are lost with it. While connecting, requests wait in line. If the attempt fails all of them are lost
at once, and the next request starts the next attempt after the backoff.

If the peer closes an established connection the channel reconnects at once. If that is refused it calls `on_refused`:
the peer's process is gone. A close alone never counts.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

import trio

from kafkacompat import __version__
from kafkacompat.addresses import host_and_port
from kafkacompat.deferred import Deferred
from kafkacompat.net.dialing import dial
from kafkacompat.net.failures import (
    ChannelError,
    ChannelFull,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedByPeer,
)
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.settings import ChannelSettings
from kafkacompat.ports import Clock, TimerHandle, Timers
from kafkacompat.security.sasl_client import (
    NO_SECURITY,
    REAUTHENTICATE_AFTER,
    SASL_VERSIONS,
    AuthenticationFailed,
    ClientSecurity,
)
from kafkacompat.wire.apis import ApiKey, request_class, response_class
from kafkacompat.wire.codec import decoder
from kafkacompat.wire.errors import EncodeError, ErrorCode, WireError
from kafkacompat.wire.headers import parse_response_header, request_frame
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse

if TYPE_CHECKING:
    from kafkacompat.net.loop_wait import LoopWait, WaitsInPlace
    from kafkacompat.net.tls_socket import AnySocket
    from kafkacompat.security.sasl_client import SaslClientAuthenticator
    from kafkacompat.wire.message import Message

SOFTWARE_NAME = "kafkacompat"

AUTHENTICATING_MAX = 8
"""Threads at once, those included whose connection was given up while they wait for a server."""
_AUTHENTICATING = trio.CapacityLimiter(AUTHENTICATING_MAX)
_ERROR_CODE = Struct(">h")


async def agree_on_versions(
    sock: AnySocket, buffer: ReceiveBuffer, client_id: str | None
) -> dict[int, tuple[int, int]]:
    """API key -> (lowest, highest) version that the peer supports. Raises ConnectionLost, WireError or OSError."""
    version = ApiVersionsRequest.MAX_VERSION
    while True:
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        reply, position = await _ask(sock, buffer, message, version, client_id)
        if len(reply) < position + _ERROR_CODE.size:
            raise WireError("a reply without an error code")
        code: int = _ERROR_CODE.unpack_from(reply, position)[0]
        # A peer answers an unsupported version in the oldest one.
        form = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        response: ApiVersionsResponse = decoder(ApiVersionsResponse, form)(reply, position)[0]
        served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        if not code:
            return served
        lower = min(served.get(ApiKey.API_VERSIONS, (0, 0))[1], version - 1)
        if code != ErrorCode.UNSUPPORTED_VERSION or lower < 0:
            raise ConnectionLost(f"the other side answers ApiVersions with error {code}")
        version = lower


async def authenticate(
    sock: AnySocket, buffer: ReceiveBuffer, client_id: str | None, authenticator: SaslClientAuthenticator
) -> int:
    """Authenticate this node. Returns how long the session lasts in ms; 0 means forever. Raises AuthenticationFailed,
    and the errors above."""
    response: Any = None
    while True:
        # In a thread, because it derives a key from a password, or waits for a server that issues tickets.
        try:
            request = await trio.to_thread.run_sync(
                authenticator.step, response, abandon_on_cancel=True, limiter=_AUTHENTICATING
            )
        except RuntimeError as error:  # no thread can start now
            raise ConnectionLost(f"not authenticated: {error}") from error
        if request is None:
            return authenticator.session_lifetime_ms
        assert request.API_KEY is not None
        version = SASL_VERSIONS[request.API_KEY]
        reply, position = await _ask(sock, buffer, request, version, client_id)
        response = decoder(response_class(request.API_KEY), version)(reply, position)[0]


async def _ask(
    sock: AnySocket, buffer: ReceiveBuffer, message: Message, version: int, client_id: str | None
) -> tuple[memoryview, int]:
    """The reply, and the position of its body."""
    assert message.API_KEY is not None
    await _send_all(sock, request_frame(message, version, 0, client_id))
    while (reply := buffer.next_frame()) is None:
        await receive_some(sock, buffer)
    answered_id, position = parse_response_header(reply, message.API_KEY, version)
    if answered_id:
        raise WireError(f"a reply to request {answered_id}, not to 0")
    return reply, position


async def receive_some(sock: AnySocket, buffer: ReceiveBuffer) -> None:
    """Wait for bytes. Raises ConnectionLost at the end, or OSError."""
    while True:
        try:
            _take_some(sock, buffer)
            return
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)


def _take_some(sock: AnySocket, buffer: ReceiveBuffer) -> None:
    """Raises BlockingIOError where nothing is there, and as `receive_some`."""
    received = sock.recv_into(buffer.unviewed_room())
    if not received:
        raise ConnectionLost("the other side closed the connection")
    buffer.end += received


async def _send_all(sock: AnySocket, data: bytearray) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


_log = logging.getLogger(__name__)


class ClientSession:
    """The session of a channel, over all its connections. Without SASL it never ends."""

    __slots__ = ("_clock", "_peer", "_refusal_told", "_renew_at_ms", "_security", "is_over")

    def __init__(self, security: ClientSecurity, clock: Clock, peer: str) -> None:
        self._security = security
        self._clock = clock
        self._peer = peer
        self._renew_at_ms: int | None = None
        self._refusal_told = ""
        self.is_over = False
        """The channel must authenticate again before it sends another request. Requests already sent are answered
        first."""

    async def secure(self, sock: socket.socket, host: str) -> AnySocket:
        """The connection to use from now on. Raises OSError."""
        context = self._security.context
        if context is None:
            return sock
        from kafkacompat.net.tls_socket import secured

        return await secured(sock, context, host)

    def not_opened(self, error: Exception) -> None:
        """A refused certificate is logged once while the refusal lasts. With TLS 1.3 the peer's refusal comes behind the
        handshake, in place of the first reply."""
        if self._security.context is not None and isinstance(error, ConnectionAbortedError):
            self._tell(f"no TLS with {self._peer}: {error}")

    async def begin(self, sock: AnySocket, buffer: ReceiveBuffer, client_id: str, host: str) -> None:
        """Authenticate. Raises ConnectionLost if the peer refuses this node, which is logged once while the refusal
        lasts."""
        self._renew_at_ms = None
        authenticator = self._security.authenticator(host)
        if authenticator is None:
            self._has_begun()
            return
        try:
            lifetime_ms = await authenticate(sock, buffer, client_id, authenticator)
        except AuthenticationFailed as error:
            text = f"authentication with {self._peer} failed: {error}"
            self._tell(text)
            raise ConnectionLost(text) from None
        self._has_begun()
        if lifetime_ms:
            self._renew_at_ms = self._clock.monotonic_ms() + int(lifetime_ms * REAUTHENTICATE_AFTER)

    def _has_begun(self) -> None:
        # Not before: a request between those of the exchange would end the connection.
        self.is_over = False
        self._refusal_told = ""

    def _tell(self, refusal: str) -> None:
        if refusal != self._refusal_told:
            self._refusal_told = refusal
            _log.error("%s", refusal)

    def ends(self) -> bool:
        """Whether it has just become `is_over`."""
        if self._renew_at_ms is None or self.is_over or self._clock.monotonic_ms() < self._renew_at_ms:
            return False
        self.is_over = True
        return True


REQUESTS_WAITING_MAX = 128
"""Requests in line and in flight together, per channel."""
REDIALS_MAX = 5
"""Attempts after a lost connection that were accepted and then lost again, as happens while the peer's process is ending."""
LOST = (OSError, WireError, ConnectionLost, trio.TooSlowError, MemoryError)
"""What ends a connection, and nothing else. There may be memory for a response when it is asked for again."""


class _Request:
    __slots__ = ("deadline_ms", "key", "max_version", "message", "reply", "timeout_ms", "version")

    def __init__(self, message: Any, max_version: int | None, timeout_ms: int) -> None:
        self.message = message
        self.key: int = message.API_KEY
        self.max_version = max_version
        self.version = -1
        self.reply: Deferred[Any] = Deferred()
        self.timeout_ms = timeout_ms
        self.deadline_ms = 0


class _Reading:
    """The wait for bytes of a channel's task, in the turns of a poller in the loop's place. Replies are delivered there."""

    __slots__ = ("_buffer", "_channel", "_error", "_poller", "_scope", "_socket", "_task")

    def __init__(
        self,
        channel: Channel,
        scope: trio.CancelScope,
        sock: socket.socket,
        buffer: ReceiveBuffer,
        poller: WaitsInPlace,
    ) -> None:
        self._channel = channel
        self._scope = scope
        self._socket = sock
        self._buffer = buffer
        self._poller = poller
        self._task: trio.lowlevel.Task | None = None
        """The task, while it waits."""
        self._error: Exception | None = None

    async def until_the_task_is_needed(self) -> None:
        """Raises what ends the connection."""
        self._poller.add_guest(self._socket.fileno(), self)
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def readable(self) -> None:
        channel, scope = self._channel, self._scope
        try:
            _take_some(self._socket, self._buffer)
            channel.deliver_all(scope, self._buffer)
        except BlockingIOError:
            return
        except Exception as error:  # the task raises it
            self._error = error
            self._end()
        else:
            if channel.must_authenticate:
                self._end()

    def writable(self) -> None:
        """Not waited for. A socket that has failed is readable too."""

    def dismissed(self) -> None:
        self._wake()

    def _end(self) -> None:
        if self._task is not None:  # it was not cancelled by what the replies did
            self._poller.remove(self._socket.fileno())
            self._wake()

    def _wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _give_up(self, _raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
        self._task = None
        self._poller.remove(self._socket.fileno())
        return trio.lowlevel.Abort.SUCCEEDED


class Channel:
    """See the module. Created by `Channels.get`."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        nursery: trio.Nursery,
        clock: Clock,
        timers: Timers,
        settings: ChannelSettings,
        security: ClientSecurity = NO_SECURITY,
        wait: LoopWait | None = None,
    ) -> None:
        """`wait` has the poller that waits in the loop's place, if there is one."""
        self._wait = wait
        self.host = host
        self.port = port
        self.on_refused: Callable[[], None] | None = None
        """The peer's process is gone: it closed an established connection and then refused another."""
        self._client_id = client_id
        self._nursery = nursery
        self._clock = clock
        self._timers = timers
        self._settings = settings
        self._socket: AnySocket | None = None
        self._versions: dict[int, tuple[int, int]] | None = None
        """The versions that the peer supports. None until agreed on this connection."""
        self._agreed: dict[tuple[int, int | None], int] = {}
        """The version of each API in use, under its key and the caller's bound."""
        self._timer: TimerHandle | None = None
        """At the first deadline, or earlier: it is left as it is when a request is answered."""
        self._timer_at_ms = 0
        self._waiting: deque[_Request] = deque()
        self._in_flight: deque[tuple[int, _Request]] = deque()
        self._output: deque[memoryview] = deque()
        self._correlation_id = 0
        self._scope: trio.CancelScope | None = None
        """The scope of the task that connects and receives, while it runs."""
        self._failures = 0
        self._may_dial_at_ms = 0
        self._closed = False
        self._session = ClientSession(security, clock, self._name())
        self._listening = trio.CancelScope()
        """The scope of the wait for bytes from the peer."""

    @property
    def is_ready(self) -> bool:
        """Connected, and versions agreed."""
        return self._versions is not None

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_at_rest(self) -> bool:
        """Neither connected nor connecting, and without requests. Whoever has it may use it again."""
        return self._scope is None and not self.requests_waiting

    @property
    def requests_waiting(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        """(lowest, highest) version that the peer supports. None if it does not support the API, or is not connected."""
        return None if self._versions is None else self._versions.get(api_key)

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        """The response, at the highest version that both sides support (at most `max_version`).

        Fails with ConnectionLost, RequestTimedOut or UnsupportedByPeer. `records` of a response are views of memory
        that does not change while they are held.
        """
        request = _Request(message, max_version, timeout_ms)
        if self._closed:
            request.reply.fail(ConnectionLost("the channel is closed"))
        elif self.requests_waiting >= REQUESTS_WAITING_MAX:
            request.reply.fail(ChannelFull(f"{REQUESTS_WAITING_MAX} requests wait for {self._name()}"))
        else:
            deadline_ms = request.deadline_ms = self._clock.monotonic_ms() + timeout_ms
            if self._timer is None or deadline_ms < self._timer_at_ms:
                self._arm(deadline_ms)
            if self._session.ends() and not self._in_flight:
                self._listening.cancel()
            if self._versions is not None and not self._session.is_over:
                self._send(request)
            else:
                self._waiting.append(request)
                self._ensure_connecting()
        return request.reply

    def close(self) -> None:
        """Close for good. Waiting requests are lost."""
        self._closed = True
        self._disconnect("the channel was closed")

    # Connecting.

    def _ensure_connecting(self) -> None:
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._nursery.start_soon(self._run, self._scope)

    async def _run(self, scope: trio.CancelScope) -> None:
        """Connect and receive until the connection is lost. Reconnect at once after an established one was lost."""
        reason = "the node stops"
        redials = 0
        try:
            with scope:
                while True:
                    await self._back_off()
                    opened_ms: int | None = None
                    try:
                        sock, buffer = await self._open(scope)
                        opened_ms = self._clock.monotonic_ms()
                        await self._receive(scope, sock, buffer)
                    except ConnectionRefusedError as error:
                        reason = _text(error)
                        self._lose(scope, reason)
                        if redials:
                            self._tell_refused()
                        return
                    except LOST as error:
                        reason = _text(error)
                        if redials >= REDIALS_MAX or (opened_ms is None and not redials):
                            return
                        # It was established: check at once whether the peer still listens.
                        redials = 1 if self._has_lasted(opened_ms) else redials + 1
                        self._lose(scope, reason, keep_running=True)
        finally:
            self._lose(scope, reason)

    def _has_lasted(self, opened_ms: int | None) -> bool:
        """Whether a connection lasted, so that a peer that closes every connection is not dialled forever."""
        lasted_ms = -1 if opened_ms is None else self._clock.monotonic_ms() - opened_ms
        return lasted_ms >= self._settings.reconnect_backoff_max_ms

    async def _back_off(self) -> None:
        wait_ms = self._may_dial_at_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            await trio.sleep(wait_ms / 1000)

    async def _open(self, scope: trio.CancelScope) -> tuple[AnySocket, ReceiveBuffer]:
        """Open a connection and agree on versions. The requests in line are then sent."""
        settings = self._settings
        buffer = ReceiveBuffer(settings.response_max_bytes)
        try:
            with trio.fail_after(settings.connection_setup_timeout_ms / 1000):
                sock = await self._session.secure(await dial(self.host, self.port), self.host)
                if self._scope is not scope:
                    sock.close()
                    raise ConnectionLost("the channel was closed")
                self._socket = sock
                versions = await agree_on_versions(sock, buffer, self._client_id)
                await self._session.begin(sock, buffer, self._client_id, self.host)
        except LOST as error:
            self._session.not_opened(error)
            self._failures += 1
            backoff_ms = settings.reconnect_backoff_ms << min(self._failures - 1, 16)
            self._may_dial_at_ms = self._clock.monotonic_ms() + min(
                backoff_ms, settings.reconnect_backoff_max_ms
            )
            raise
        if self._scope is not scope:
            raise ConnectionLost("the channel was closed")
        self._failures = 0
        self._may_dial_at_ms = self._clock.monotonic_ms() + settings.reconnect_backoff_ms
        self._versions = versions
        self._agreed.clear()
        self._send_waiting()
        return sock, buffer

    def _send_waiting(self) -> None:
        versions = self._versions
        while self._waiting and self._versions is versions:
            self._send(self._waiting.popleft())

    # Requests and replies.

    def _send(self, request: _Request) -> None:
        """Send a request on the established connection, or fail it if the peer does not support it."""
        if request.reply.done:
            return
        version = self._agreed.get((request.key, request.max_version))
        if version is None:
            version = self._agree(request)
            if version is None:
                return
        request.version = version
        try:
            correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
            frame = request_frame(request.message, version, correlation_id, self._client_id)
        except EncodeError as error:
            own = request_class(request.key)
            self._finish(request, UnsupportedByPeer(f"{own.__name__} version {version}: {error}"))
            return
        except MemoryError:
            self._finish(request, ConnectionLost(f"no memory for a request to {self._name()}"))
            return
        self._correlation_id = correlation_id
        self._in_flight.append((correlation_id, request))
        self._write(frame)

    def _agree(self, request: _Request) -> int | None:
        """The version of the request, which is kept for the next one of its kind. None if there is none: then it has failed."""
        assert self._versions is not None
        served = self._versions.get(request.key)
        own = request_class(request.key)
        low = max(own.MIN_VERSION, served[0]) if served else 0
        high = min(own.MAX_VERSION, served[1]) if served else -1
        if request.max_version is not None:
            high = min(high, request.max_version)
        if low > high:
            text = f"{self._name()} serves no version of {own.__name__} that this node has"
            self._finish(request, UnsupportedByPeer(text))
            return None
        self._agreed[request.key, request.max_version] = high
        return high

    def _write(self, frame: bytearray) -> None:
        sock = self._socket
        assert sock is not None
        rest = memoryview(frame)
        if not self._output:
            try:
                rest = rest[sock.send(rest) :]
            except BlockingIOError:
                pass
            except OSError:
                return  # the receiving task notices it and fails the requests
            if not rest:
                return
            self._nursery.start_soon(self._write_rest, sock)
        self._output.append(rest)

    async def _write_rest(self, sock: AnySocket) -> None:
        """Send what the socket did not accept at once."""
        while self._socket is sock and self._output:
            try:
                await trio.lowlevel.wait_writable(sock)
                while self._socket is sock and self._output:
                    rest = self._output[0]
                    rest = rest[sock.send(rest) :]
                    if rest:
                        self._output[0] = rest
                    else:
                        self._output.popleft()
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return

    async def _receive(self, scope: trio.CancelScope, sock: AnySocket, buffer: ReceiveBuffer) -> None:
        """Deliver replies until the connection ends, which is reported by an exception."""
        while True:
            self.deliver_all(scope, buffer)
            if self.must_authenticate:
                with trio.fail_after(self._settings.connection_setup_timeout_ms / 1000):
                    await self._session.begin(sock, buffer, self._client_id, self.host)
                self._send_waiting()
            poller = None if self._wait is None else self._wait.owner
            with trio.CancelScope() as self._listening:
                # A TLS socket may have bytes that are not in the system's socket any more.
                if poller is None or type(sock) is not socket.socket:
                    await receive_some(sock, buffer)
                else:
                    await _Reading(self, scope, sock, buffer, poller).until_the_task_is_needed()
            await trio.lowlevel.checkpoint()  # a peer that always sends must not keep other tasks waiting

    @property
    def must_authenticate(self) -> bool:
        """Before anything else is sent, and no reply is waited for."""
        return self._session.is_over and not self._in_flight

    def deliver_all(self, scope: trio.CancelScope, buffer: ReceiveBuffer) -> None:
        """Deliver the replies in the buffer. Raises WireError, or ConnectionLost if the connection was given up meanwhile."""
        while (frame := buffer.next_frame()) is not None:
            self._deliver(frame)
            if self._scope is not scope:
                raise ConnectionLost("the channel was closed")

    def _deliver(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise WireError("a reply that nobody waits for")
        correlation_id, request = self._in_flight[0]
        answered_id, position = parse_response_header(frame, request.key, request.version)
        if answered_id != correlation_id:
            raise WireError(f"a reply to request {answered_id}, not to {correlation_id}")
        message = decoder(response_class(request.key), request.version)(frame, position)[0]
        self._in_flight.popleft()
        self._finish(request, message)

    def _finish(self, request: _Request, outcome: Any) -> None:
        if request.reply.done:
            return
        try:
            if isinstance(outcome, ChannelError):
                request.reply.fail(outcome)
            else:
                request.reply.resolve(outcome)
        except Exception:
            # The receiver has a bug. The other requests on this connection must not be affected.
            _log.exception("a reply of %s could not be used", self._name())

    # Timeouts. One timer serves all requests: most are answered long before.

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self._timers.call_at(at_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        unanswered = [request for _, request in self._in_flight] + list(self._waiting)
        for request in unanswered:
            if request.deadline_ms <= now_ms:
                self._timed_out(request, request.timeout_ms)
        left = [request.deadline_ms for request in unanswered if not request.reply.done]
        if left and (self._timer is None or min(left) < self._timer_at_ms):
            self._arm(min(left))

    def _timed_out(self, request: _Request, timeout_ms: int) -> None:
        if request.reply.done:
            return
        name = type(request.message).__name__
        error = RequestTimedOut(f"{self._name()} did not answer {name} within {timeout_ms} ms")
        if request in self._waiting:
            self._waiting.remove(request)
            self._finish(request, error)
            return
        self._finish(request, error)
        self._disconnect(str(error))

    # Losing a connection.

    def _disconnect(self, reason: str) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.cancel()
        self._drop(reason)

    def _lose(self, scope: trio.CancelScope, reason: str, keep_running: bool = False) -> None:
        """Handle the end of the connection of `scope`'s task. Nothing happens if another task has taken over."""
        if self._scope is not scope:
            return
        if not keep_running:
            self._scope = None
        self._drop(reason)

    def _drop(self, reason: str) -> None:
        sock, self._socket = self._socket, None
        self._versions = None
        self._agreed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._output.clear()
        if sock is not None:
            trio.lowlevel.notify_closing(sock)
            sock.close()
        lost = [request for _, request in self._in_flight]
        lost.extend(self._waiting)
        self._in_flight.clear()
        self._waiting.clear()
        for request in lost:
            self._finish(request, ConnectionLost(f"{self._name()}: {reason}"))

    def _tell_refused(self) -> None:
        if self.on_refused is not None and not self._closed:
            self.on_refused()

    def _name(self) -> str:
        return host_and_port(self.host, self.port)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
