"""What `kafkacompat quorum` makes of the answers of several brokers."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.cli import voters
from kafkacompat.cli.view import Quorum, QuorumRefused, quorum_of
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    TopicData,
)

TOLD = Quorum(2, 5, {2: b"directory"}, {}, {2: 10})


class Brokers:
    """A cluster whose brokers answer with a quorum, with none, or not at all."""

    def __init__(self, answers: dict[int, Quorum | BrokerAway | None]) -> None:
        self._answers = answers
        self.asked: list[int] = []

    def node_ids(self) -> list[int]:
        return list(self._answers)

    def node(self, node_id: int) -> int:
        return node_id

    def answer(self, node_id: int) -> Quorum | None:
        self.asked.append(node_id)
        found = self._answers[node_id]
        if isinstance(found, BrokerAway):
            raise found
        return found


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({1: TOLD}, TOLD),
        ({1: BrokerAway("it did not answer"), 2: TOLD, 3: TOLD}, TOLD),
        ({1: None, 2: TOLD, 3: TOLD}, TOLD),
        ({1: None, 2: BrokerAway("it did not answer")}, None),
    ],
)
def test_the_next_broker_is_asked_if_one_does_not_tell_the_quorum(
    answers: dict[int, Any], told: Quorum | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: Any = Brokers(answers)
    monkeypatch.setattr(voters, "quorum_of", cluster.answer)
    assert voters.quorum_told(cluster) == told
    assert cluster.asked == [1, 2][: len(answers)]


@pytest.mark.parametrize(
    ("nodes", "listener"),
    [
        # Before version 2 of DescribeQuorum.
        ([], "CONTROLLER"),
        (
            [
                Node(node_id=1, listeners=[Listener(name="ONE")]),
                Node(node_id=2, listeners=[Listener(name="QUORUM")]),
            ],
            "QUORUM",
        ),
    ],
)
def test_a_voter_is_added_with_the_name_of_the_leaders_listener(nodes: list[Node], listener: str) -> None:
    partition = PartitionData(leader_id=2, leader_epoch=5, current_voters=[], observers=[])
    answer = DescribeQuorumResponse(topics=[TopicData(partitions=[partition])], nodes=nodes)

    class Leader:
        def call(self, *_: object) -> DescribeQuorumResponse:
            return answer

    remote: Any = Leader()
    found = quorum_of(remote)
    assert found is not None
    assert found.listener == listener


def test_a_user_who_may_not_describe_the_cluster_is_told_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __enter__(self) -> Refusing:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def node_ids(self) -> list[int]:
            return [1, 2]

        def node(self, node_id: int) -> Refusing:
            assert node_id == 1
            return self

        def call(self, *_: object) -> DescribeQuorumResponse:
            return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(voters, "Cluster", lambda *_: Refusing())
    monkeypatch.setattr(voters, "CHANGE_TIMEOUT_S", 0.0)
    with pytest.raises(QuorumRefused, match="the metadata quorum: CLUSTER_AUTHORIZATION_FAILED"):
        voters.quorum_now(ClusterAddress())
