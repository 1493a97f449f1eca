"""The quorum's requests: requests of other nodes that wait for an answer, and this node's requests in flight.

It remembers the callers, converts to and from wire messages (loaded on first use, because a single-node quorum never
needs them), and reports every transport failure to the core. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.batches import BrokenBatch
from kafkacompat.raft.contracts import PeerUnavailable, PeerUnsupported
from kafkacompat.wire.errors import ErrorCode, WireError

if TYPE_CHECKING:
    from kafkacompat.raft.contracts import NetworkChannel
    from kafkacompat.raft.event_pump import EventPump
    from kafkacompat.raft.messages import Response
    from kafkacompat.raft.quorum import QuorumCore
    from kafkacompat.raft.quorum_state import Member, QuorumSettings
    from kafkacompat.raft.voter_set import Endpoints
    from kafkacompat.tasks import Tasks

KRAFT_VERSION = "kraft.version"
PROBE_SINCE = 4
"""The ApiVersions version that includes features with a minimum level of 0."""


class QuorumCalls:
    """Waiting requests are bounded by the connections: each has one answer pending, at most until its deadline."""

    core: QuorumCore
    """Set once, before any call."""

    def __init__(
        self,
        member: Member,
        settings: QuorumSettings,
        listener_name: str,
        transport: NetworkChannel,
        tasks: Tasks,
        pump: EventPump,
        note: Callable[[str], None],
    ) -> None:
        self._member = member
        self._settings = settings
        self._listener_name = listener_name
        self._transport = transport
        self._tasks = tasks
        self._enter = pump.enter
        self._forget = pump.forget
        self._note = note
        self._waiting: dict[int, tuple[Any, int, str, Deferred[Any]]] = {}
        """Request id -> (wire request, its version, its listener, its answer)."""
        self._next_request_id = 0
        transport.on_refused = lambda node_id: pump.enter(events.PeerRefused(node_id))

    # As server.

    def receive(self, message: Any, api_version: int, listener: str | None) -> Deferred[Any]:
        """The answer names the leader's address on the same listener, which the sender can speak to."""
        from kafkacompat.raft import wire_server

        try:
            request = wire_server.decode_request(message, api_version, self._member.cluster_id)
        except wire_server.QuorumRequestRefused as refused:
            return Deferred.of(refused.response)
        request_id = self._next_request_id
        self._next_request_id += 1
        deferred: Deferred[Any] = Deferred()
        self._waiting[request_id] = (message, api_version, listener or self._listener_name, deferred)
        event = events.RequestReceived(request_id, request)

        def abandoned() -> None:
            """Its connection was closed. While a step waits for space, such requests would add up."""
            if self._forget(event):
                del self._waiting[request_id]

        deferred.when_abandoned = abandoned
        self._enter(event)
        return deferred

    def answer(self, request_id: int, response: Response, records: Any) -> None:
        from kafkacompat.raft import wire_server

        message, api_version, listener, deferred = self._waiting.pop(request_id)
        try:
            encoded = wire_server.encode_response(message, response, api_version, listener, records)
        except Exception as error:
            # The step itself is complete. If one peer cannot be reached, only that request fails.
            deferred.fail(error)
        else:
            deferred.resolve(encoded)

    # As client.

    def _address(self, endpoints: Endpoints) -> tuple[str, int] | None:
        """The endpoint of the default controller listener, otherwise the first one."""
        for name, host, port in endpoints:
            if name == self._listener_name:
                return host, port
        return endpoints[0][1:] if endpoints else None

    def send(self, each: effect.Send) -> None:
        address = self._address(each.endpoints)
        try:
            from kafkacompat.raft import wire_client
        except (ImportError, OSError) as error:
            self._note(f"a request to node {each.node_id} cannot be sent now: {error}")
            address = None
        if address is None:
            self._enter(events.RequestFailed(each.correlation_id))
            return
        message, min_version = wire_client.encode_request(each.request)
        answer = self._transport.request(
            each.node_id, *address, message, self._settings.request_timeout_ms, min_version=min_version
        )
        self._tasks.start("a request of the quorum", self._take(each, answer))

    async def _take(self, each: effect.Send, answer: Deferred[Any]) -> None:
        """Give the core the answer, or the failure."""
        from kafkacompat.raft import wire_client

        try:
            message = await answer
            voters = self.core.voters
            response = wire_client.decode_response(
                each.request, message, self._listener_name, voters.latest, voters.kraft_version
            )
        except PeerUnsupported:
            self._enter(events.RequestFailed(each.correlation_id, ErrorCode.UNSUPPORTED_VERSION))
        except (PeerUnavailable, WireError, wire_client.AnswerMalformed, BrokenBatch):
            self._enter(events.RequestFailed(each.correlation_id))
        except Exception as error:
            self._note(f"a peer's answer to {type(each.request).__name__} cannot be read: {error!r}")
            self._enter(events.RequestFailed(each.correlation_id))
        else:
            self._enter(events.ResponseReceived(each.correlation_id, response))

    def probe(self, each: effect.ProbeVoter) -> None:
        from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest

        address = self._address(each.endpoints)
        if address is None:
            self._enter(events.VoterProbed(each.voter, None))
            return
        request = ApiVersionsRequest(client_software_name="kafkacompat", client_software_version="1")
        answer = self._transport.request(
            each.voter.id, *address, request, self._settings.request_timeout_ms, min_version=PROBE_SINCE
        )
        self._tasks.start("a probe of a would-be voter", self._take_features(each, answer))

    async def _take_features(self, each: effect.ProbeVoter, answer: Deferred[Any]) -> None:
        supported: tuple[int, int] | None = None
        try:
            response = await answer
            if response.error_code == ErrorCode.NONE:
                # A node that does not list the feature supports only level 0.
                supported = (0, 0)
                for feature in response.supported_features:
                    if feature.name == KRAFT_VERSION:
                        supported = (feature.min_version, feature.max_version)
        except (PeerUnsupported, PeerUnavailable, WireError):
            pass
        except Exception as error:
            supported = None
            self._note(f"the answer of would-be voter {each.voter.id} cannot be read: {error!r}")
        self._enter(events.VoterProbed(each.voter, supported))
