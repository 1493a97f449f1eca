"""The channel from this node to the active controller, whichever node that is.

A request is sent to the active controller. It is repeated after a lost connection or NOT_CONTROLLER, until it is
answered or its timeout is over. As in Kafka's NodeToControllerChannelManager, each purpose has a connection, so that a
slow request does not delay heartbeats. While this node is the active controller, no socket is used.

A request may therefore be handled twice, if the answer of the first controller was lost. All requests sent here
tolerate that.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kafkacompat.api.request_context import NotController
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import (
    ChannelError,
    ChannelFull,
    ConnectionLost,
    RequestTimedOut,
)
from kafkacompat.ports import Channels, Clock
from kafkacompat.tasks import Started, Tasks, WakeUp, forget_locals_left
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode

RETRY_BACKOFF_MS = 50
REQUESTS_WAITING_MAX = 1000
"""Requests of one purpose that may wait, for any reason."""
NO_TIMEOUT_MS = 2**53
"""The timeout of a request that may take any time. A float can still represent it exactly."""
DEFAULT_ATTEMPT_TIMEOUT_MS = 30_000
"""controller.socket.timeout.ms"""

UNANSWERED = (ChannelError, NotController, OSError)
"""Why a request may have no answer. OSError: the disk of this node's own controller has no room for the record. Anything
else is a bug."""

NO_VERSIONS = (0, -1)
"""Those of an API that a node does not serve."""

Address = tuple[int, str, int]
"""Node id, host and port."""
LocalCall = Callable[[Any], Deferred[Any]]
Wrap = Callable[[Any], Coroutine[Any, None, Any]]


class _Call:
    __slots__ = ("answer", "deadline_ms", "local", "message", "retry", "task", "wrap")

    def __init__(
        self, message: Any, deadline_ms: int, local: LocalCall | None, wrap: Wrap | None, retry: WakeUp
    ) -> None:
        self.message = message
        self.deadline_ms = deadline_ms
        self.local = local
        self.wrap = wrap
        self.answer: Deferred[Any] = Deferred()
        self.retry = retry
        """Called when another controller may be active."""
        self.task: Started | None = None


class NodeToControllerChannelManager:
    """`active` returns the active controller's address, or None while it is unknown. `local` handles a request on this node."""

    def __init__(
        self,
        node_id: int,
        purpose: str,
        channels: Channels,
        clock: Clock,
        tasks: Tasks,
        active: Callable[[], Address | None],
        local: LocalCall | None = None,
        attempt_timeout_ms: int = DEFAULT_ATTEMPT_TIMEOUT_MS,
    ) -> None:
        self._node_id = node_id
        self._purpose = purpose
        self._channels = channels
        self._clock = clock
        self._tasks = tasks
        self._active = active
        self._local = local
        self._attempt_timeout_ms = attempt_timeout_ms
        self._calls: dict[_Call, None] = {}
        """Unanswered requests, oldest first."""
        self._closed = False

    @property
    def requests_waiting(self) -> int:
        return len(self._calls)

    def request(
        self, message: Any, timeout_ms: int, *, local: LocalCall | None = None, wrap: Wrap | None = None
    ) -> Deferred[Any]:
        """Return the active controller's answer.

        `local` replaces the channel's function for requests that this node handles. Another node gets what `wrap(message)`
        makes, which is called only when the request is sent there.

        Fails with RequestTimedOut after `timeout_ms`, with UnsupportedByPeer if the controller does not support the
        request, and with ConnectionLost if the channel is closed.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        call = _Call(message, deadline_ms, local or self._local, wrap, WakeUp(self._tasks))
        if self._closed:
            call.answer.fail(ConnectionLost("the channel to the controller is closed"))
        elif len(self._calls) >= REQUESTS_WAITING_MAX:
            call.answer.fail(ChannelFull(f"{REQUESTS_WAITING_MAX} requests wait for the controller"))
        else:
            self._calls[call] = None
            call.task = self._tasks.start(
                f"a request to the controller: {self._purpose}", self._carry_out(call)
            )
        return call.answer

    def versions(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and the highest version of an API that the active controller serves, or NO_VERSIONS. None while it is
        this node, or not connected."""
        address = self._active()
        if address is None or address[0] == self._node_id:
            return None
        _, host, port = address
        channel = self._channels.get(host, port, self._purpose)
        if channel.peer_versions(ApiKey.API_VERSIONS) is None:
            return None
        return channel.peer_versions(api_key) or NO_VERSIONS

    def try_now(self) -> None:
        """Another controller may be active, or serve: requests that wait for their next attempt are sent now."""
        for call in list(self._calls):
            call.retry.call()

    def close(self) -> None:
        """Fail all waiting requests with ConnectionLost."""
        self._closed = True
        calls, self._calls = self._calls, {}
        for call in calls:
            if call.task is not None:
                call.task.cancel()
            call.answer.fail(ConnectionLost("the channel to the controller was closed"))

    async def _carry_out(self, call: _Call) -> None:
        try:
            message = await self._sent_until_answered(call)
        except Exception as error:
            forget_locals_left(error)
            if self._is_over(call):
                call.answer.fail(error)
        else:
            if self._is_over(call):
                call.answer.resolve(message)
        finally:
            # The error keeps this frame, and the call has the answer, which keeps the error.
            del call

    def _is_over(self, call: _Call) -> bool:
        """False if the channel was closed meanwhile, which has failed the answer."""
        if call not in self._calls:
            return False
        del self._calls[call]
        return True

    async def _sent_until_answered(self, call: _Call) -> Any:
        while (left_ms := call.deadline_ms - self._clock.monotonic_ms()) > 0:
            try:
                message = await self._sent(call, left_ms)
            except (NotController, ConnectionLost, RequestTimedOut):
                pass
            else:
                if getattr(message, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return message
            left_ms = call.deadline_ms - self._clock.monotonic_ms()
            await call.retry.wait(max(0, min(RETRY_BACKOFF_MS, left_ms)))
        raise RequestTimedOut("no active controller answered in time")

    async def _sent(self, call: _Call, left_ms: int) -> Any:
        """The answer of the controller that is active now. Raises NotController if none is known."""
        address = self._active()
        if address is None:
            raise NotController
        node_id, host, port = address
        if node_id == self._node_id:
            if call.local is None:
                raise NotController
            return await call.local(call.message)
        message = call.message if call.wrap is None else await call.wrap(call.message)
        channel = self._channels.get(host, port, self._purpose)
        return await channel.request(message, min(left_ms, self._attempt_timeout_ms))
