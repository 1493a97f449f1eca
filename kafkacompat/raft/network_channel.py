"""The quorum's requests over the node's channels.

It picks a channel for each request and translates failures for the quorum. Long fetches have separate connections, so
that a vote never waits for one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kafkacompat.addresses import host_and_port
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError, UnsupportedByPeer
from kafkacompat.ports import Channels
from kafkacompat.raft.contracts import PeerUnavailable, PeerUnsupported
from kafkacompat.wire.errors import ErrorCode

FETCH = 1
FIRST_NODE_ID = 0
"""Lower ids are bootstrap servers with unknown node ids."""


def _nobody(node_id: int) -> None:
    """The default before a driver sets `on_refused`."""


def _silent(text: str) -> None:
    """The default without a log."""


class KafkaNetworkChannel:
    """raft.contracts.NetworkChannel."""

    def __init__(self, channels: Channels, note: Callable[[str], None] = _silent) -> None:
        """`note` is called once for each node of another cluster. The quorum continues to ask such a node, as in
        Kafka."""
        self.on_refused: Callable[[int], None] = _nobody
        self._channels = channels
        self._note = note
        self._foreign: set[tuple[str, int]] = set()
        """Addresses already reported. Bounded by the addresses that the quorum ever had."""

    def request(
        self, node_id: int, host: str, port: int, message: Any, timeout_ms: int, *, min_version: int = 0
    ) -> Deferred[Any]:
        purpose = "raft-fetch" if message.API_KEY == FETCH else "raft"
        channel = self._channels.get(host, port, purpose)
        if node_id >= FIRST_NODE_ID:
            channel.on_refused = partial(self._refused, node_id)
        answer: Deferred[Any] = Deferred()

        def answered(done: Deferred[Any]) -> None:
            try:
                response = done.result()
            except UnsupportedByPeer as error:
                answer.fail(PeerUnsupported(str(error)))
            except ChannelError as error:
                answer.fail(PeerUnavailable(str(error)))
            else:
                self._look_at(response, node_id, host, port)
                answer.resolve(response)

        peer = channel.peer_versions(message.API_KEY)
        if peer is not None and peer[1] < min_version:
            return _failed(PeerUnsupported(f"node {node_id} knows only version {peer[1]}"))
        channel.request(message, timeout_ms).on_done(answered)
        return answer

    def _look_at(self, response: Any, node_id: int, host: str, port: int) -> None:
        if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._foreign.discard((host, port))
        elif (host, port) not in self._foreign:
            self._foreign.add((host, port))
            name = f"node {node_id}" if node_id >= FIRST_NODE_ID else "the controller"
            self._note(
                f"{name} at {host_and_port(host, port)} refuses this node's requests with INCONSISTENT_CLUSTER_ID: the "
                "cluster.id of meta.properties is not the id of the cluster that controller.quorum.bootstrap.servers or "
                "controller.quorum.voters lead to"
            )

    def _refused(self, node_id: int) -> None:
        self.on_refused(node_id)


def _failed(error: Exception) -> Deferred[Any]:
    deferred: Deferred[Any] = Deferred()
    deferred.fail(error)
    return deferred
