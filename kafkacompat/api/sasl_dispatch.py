"""Authentication on listeners with SASL, before any request is served: a Dispatcher that wraps the node's.

A connection's frames go to its authenticator until the exchange is complete, and again when the client reauthenticates
(KIP-368). After a failed exchange the response and the close of the connection are delayed by
connection.failed.authentication.delay.ms, which slows down password guessing.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import report
from kafkacompat.ports import passes
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Pending, Principal, Reply
from kafkacompat.security.sasl_authenticator import (
    Answer,
    AskedForVersions,
    EnabledMechanism,
    Failure,
    IllegalRequest,
    SaslServerAuthenticator,
    Work,
)
from kafkacompat.wire.errors import ErrorCode, WireError

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, Workers
    from kafkacompat.tasks import Started, Tasks

logger = logging.getLogger(__name__)

USER = "User"
_VERSIONS_ERROR_CODE = slice(8, 10)
"""The bytes of the error code in an ApiVersions reply, in every version: after size and correlation id."""
_NONE = b"\0\0"


class NobodyAuthenticates(CloseConnection):
    """The node could not find out who the client is, which says nothing about the client: it tries again."""


class AuthenticationFailed(CloseConnection):
    """The client has failed to authenticate. The reply goes out, if there is one, and the connection closes."""


class SaslDispatcher:
    """Implements the Dispatcher of net/. Requests on listeners without SASL pass through."""

    def __init__(
        self,
        served: ApiDispatcher,
        mechanisms: Mapping[str, Mapping[str, EnabledMechanism]],
        failure_delay_ms: int,
        clock: Clock,
        tasks: Tasks,
        workers: Workers,
    ) -> None:
        """`mechanisms`: the mechanisms of each listener with SASL, by the listener's name. `workers` carry out exchanges
        that may wait for files, and compute credentials."""
        self.served = served
        """The dispatcher of requests whose client is authenticated, or need not be."""
        self._mechanisms = mechanisms
        self._failure_delay_ms = failure_delay_ms
        self._clock = clock
        self._tasks = tasks
        self._workers = workers
        self._authenticators: dict[int, SaslServerAuthenticator] = {}
        self._waiting: dict[int, Started] = {}
        """By connection. Its next request waits for the answer, so a client has one at a time."""
        self._again: dict[int, int] = {}
        """Connections whose client was authenticated before, and authenticates again: when it has begun."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        if not connection.listener_is_sasl:
            return self.served.dispatch(connection, frame)
        authenticator = self._authenticators.get(connection.connection_id)
        if authenticator is None:
            authenticator = SaslServerAuthenticator(self._mechanisms[connection.listener_name])
            self._authenticators[connection.connection_id] = authenticator
        if authenticator.is_complete:
            if authenticator.nameless_because:
                raise CloseConnection(f"its principal has no name: {authenticator.nameless_because}")
            if authenticator.expires_ms is None:
                return self.served.dispatch(connection, frame)
            now_ms = self._clock.monotonic_ms()
            if not authenticator.begins_anew(int.from_bytes(frame[:2], "big"), now_ms):
                if authenticator.has_expired(now_ms):
                    if connection.meter is not None:
                        connection.meter.session_ended()
                    raise CloseConnection("its session has ended (connections.max.reauth.ms)")
                return self.served.dispatch(connection, frame)
            self._again[connection.connection_id] = now_ms
            _tell(connection, False)
        return self._authenticate(connection, authenticator, frame)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._authenticators.pop(connection.connection_id, None)
        self._again.pop(connection.connection_id, None)
        task = self._waiting.pop(connection.connection_id, None)
        if task is not None:
            task.cancel()
        self.served.connection_closed(connection)

    def _authenticate(
        self, connection: ConnectionInfo, authenticator: SaslServerAuthenticator, frame: memoryview
    ) -> Reply | Pending | None:
        outcome = authenticator.handle(frame, self._clock.monotonic_ms())
        if isinstance(outcome, AskedForVersions):
            return self._tell_versions(connection, authenticator, frame)
        if isinstance(outcome, Work):
            return self._carried_out(connection, self._worked(connection, authenticator, outcome))
        try:
            if isinstance(outcome, IllegalRequest):
                reply = self.served.refusal(outcome.header, frame, ErrorCode.ILLEGAL_SASL_STATE)
                reason = f"API {outcome.header.api_key} during SASL authentication"
                raise self._failure(connection, reply, reason)
            return self._end_step(connection, authenticator, outcome)
        except AuthenticationFailed as end:
            return self._carried_out(connection, self._closed_later(end))

    def _carried_out(
        self, connection: ConnectionInfo, answering: Coroutine[Any, None, Reply | None]
    ) -> Reply | Pending | None:
        """It ends with the connection, and then gives no answer."""
        reply: Deferred[Reply | None] = Deferred()
        task = self._tasks.start("an authentication", _given(reply, answering))
        if reply.done:
            return reply.result()
        self._waiting[connection.connection_id] = task
        return Pending(reply, blocks=True)

    async def _worked(
        self, connection: ConnectionInfo, authenticator: SaslServerAuthenticator, work: Work
    ) -> Reply | None:
        """Have a worker evaluate the client's message."""

        def evaluate() -> Any:
            if self._authenticators.get(connection.connection_id) is not authenticator:
                raise CloseConnection("it has been closed meanwhile")
            return work.evaluate()

        evaluated = self._workers.submit(evaluate)
        await when_all_done([evaluated])
        try:
            outcome = authenticator.worked(evaluated.result, self._clock.monotonic_ms())
            return self._end_step(connection, authenticator, outcome)
        except AuthenticationFailed as end:
            return await self._closed_later(end)
        except (CloseConnection, WireError):
            raise
        except Exception as problem:
            if not (isinstance(problem, OSError) or passes(problem)):
                report("an authentication", problem)
            raise NobodyAuthenticates(f"its authentication was not carried out: {problem}") from None

    async def _closed_later(self, end: AuthenticationFailed) -> Reply | None:
        """Wait before a failure is told, which slows down password guessing."""
        if self._failure_delay_ms:
            await self._tasks.sleep(self._failure_delay_ms)
        raise end

    def _end_step(
        self, connection: ConnectionInfo, authenticator: SaslServerAuthenticator, outcome: Answer | Failure
    ) -> Reply | None:
        """Raises AuthenticationFailed."""
        reply: Reply | None = None if outcome.reply is None else [outcome.reply]
        if isinstance(outcome, Failure):
            raise self._failure(connection, reply, outcome.reason)
        if authenticator.is_complete:
            assert authenticator.user is not None
            connection.principal = Principal(USER, authenticator.user, authenticator.token_authenticated)
            began_ms = self._again.pop(connection.connection_id, None)
            if connection.meter is not None:
                connection.meter.authenticated(
                    self._clock.monotonic_ms(),
                    may_again=authenticator.client_may_again,
                    began_ms=began_ms,
                )
            _tell(connection, True)
        return reply

    def _tell_versions(
        self, connection: ConnectionInfo, authenticator: SaslServerAuthenticator, frame: memoryview
    ) -> Reply | Pending | None:
        """Answer ApiVersions. After a refusal the client may try once more."""
        answer = self.served.dispatch(connection, frame)
        if isinstance(answer, list) and answer[0][_VERSIONS_ERROR_CODE] == _NONE:  # type: ignore[index]
            authenticator.versions_told()
        return answer

    def _failure(self, connection: ConnectionInfo, reply: Reply | None, reason: str) -> AuthenticationFailed:
        logger.warning("%s failed authentication: %s", connection, reason)
        if connection.meter is not None:
            is_again = connection.connection_id in self._again
            connection.meter.not_authenticated(self._clock.monotonic_ms(), again=is_again)
        return AuthenticationFailed("its authentication failed", reply)


async def _given(reply: Deferred[Reply | None], answering: Coroutine[Any, None, Reply | None]) -> None:
    try:
        answer = await answering
    except Exception as end:
        reply.fail(end)
    else:
        reply.resolve(answer)


def _tell(connection: ConnectionInfo, is_authenticated: bool) -> None:
    if connection.on_authentication is not None:
        connection.on_authentication(is_authenticated)
