"""The connection of a simulated client to the coordinator of one key: a transactional id or a group.

Any broker is asked for the coordinator, and the request is sent there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import Client
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest

GROUP, TRANSACTIONAL_ID = 0, 1
"""Key types of FindCoordinator."""
FIND_AGAIN_MS = 200


class Coordinated:
    """`node_id` is the last known coordinator, or None before the first answer. `purpose` names the connection."""

    def __init__(self, client: Client, key_type: int, key: str, purpose: str) -> None:
        self._client = client
        self._key_type = key_type
        self._key = key
        self._purpose = purpose
        self.node_id: int | None = None

    def forget(self) -> None:
        self.node_id = None

    def send(self, request: Any, still: Callable[[], bool], then: Callable[[Deferred[Any]], None]) -> None:
        """Send the request when the coordinator is known. `then` is not called if `still` returns False in the meantime."""
        client = self._client

        def found(done: Deferred[Any]) -> None:
            if not still():
                return
            try:
                answer = done.result().coordinators[0]
            except ChannelError:
                answer = None
            if answer is None or answer.error_code:
                client.later(find, FIND_AGAIN_MS)
                return
            self.node_id = answer.node_id
            ask()

        def find() -> None:
            if still():
                asked = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
                client.ask(client.any_broker(), asked, "metadata").on_done(found)

        def ask() -> None:
            assert self.node_id is not None
            client.ask(self.node_id, request, self._purpose).on_done(answered)

        def answered(done: Deferred[Any]) -> None:
            if still():
                then(done)

        if self.node_id is None:
            find()
        else:
            ask()


def outcome_of(done: Deferred[Any]) -> tuple[ErrorCode, Any]:
    """Return the top-level error (REQUEST_TIMED_OUT without an answer) and the answer."""
    try:
        answer = done.result()
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT, None
    return ErrorCode(answer.error_code), answer
