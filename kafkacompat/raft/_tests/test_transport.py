"""How the quorum's transport reports nodes of another cluster."""

from __future__ import annotations

from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.raft.network_channel import KafkaNetworkChannel
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.vote_request import VoteRequest
from kafkacompat.wire.messages.vote_response import VoteResponse


class OneChannel:
    """Answers every request with the error that is set."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.on_refused: Any = None

    def get(self, host: str, port: int, purpose: str) -> OneChannel:
        return self

    def peer_versions(self, api_key: int) -> None:
        return None

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        return Deferred.of(VoteResponse(error_code=self.error))


def test_a_node_of_another_cluster_is_told_of_once() -> None:
    channel, said = OneChannel(), []
    transport = KafkaNetworkChannel(channel, said.append)  # type: ignore[arg-type]

    def ask(node_id: int) -> ErrorCode:
        return ErrorCode(transport.request(node_id, "host", 9093, VoteRequest(), 1000).result().error_code)

    assert (ask(2), said) == (ErrorCode.NONE, [])
    channel.error = ErrorCode.INCONSISTENT_CLUSTER_ID
    assert [ask(2), ask(2)] == [ErrorCode.INCONSISTENT_CLUSTER_ID] * 2
    assert len(said) == 1
    assert "node 2 at host:9093" in said[0]
    assert "INCONSISTENT_CLUSTER_ID" in said[0]
    channel.error = ErrorCode.NONE
    ask(2)
    channel.error = ErrorCode.INCONSISTENT_CLUSTER_ID
    ask(-2)
    assert said[1].startswith("the controller at host:9093")
