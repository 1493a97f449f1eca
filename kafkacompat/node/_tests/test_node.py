"""Registration in order, producer ids without gaps in time, topics on demand one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.config import EndPoint, ServerConfig, defaults_without_file
from kafkacompat.deferred import Deferred
from kafkacompat.node.auto_topics import OnDemandTopics, creatable_topic
from kafkacompat.node.lifecycle import BrokerIdentity, BrokerLifecycle, BrokerState, previous_broker_epoch
from kafkacompat.node.producer_ids import BlockProducerIds
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse


class Controller:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answers: list[Deferred[Any]] = []

    def _call(self, name: str, value: Any) -> Deferred[Any]:
        self.calls.append((name, value))
        self.answers.append(Deferred())
        return self.answers[-1]

    def register_broker(self, request: Any) -> Deferred[int]:
        return self._call("register", request)

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Deferred[None]:
        return self._call("unfence", (broker_id, broker_epoch))

    def shut_down_broker(self, broker_id: int, broker_epoch: int) -> Deferred[None]:
        return self._call("shut down", (broker_id, broker_epoch))


def lifecycle(controller: Controller) -> BrokerLifecycle:
    listeners = (EndPoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"), EndPoint("TLS", "h", 9094, "SSL"))
    return BrokerLifecycle(
        controller, BrokerIdentity(1, "c", b"\x01" * 16, listeners, (b"\x02" * 16,), "r", 7)
    )


def test_a_broker_registers_unfences_and_shuts_down_in_its_epoch() -> None:
    controller = Controller()
    life = lifecycle(controller)
    life.register()
    request = controller.calls[0][1]
    assert [(each.name, each.port, each.security_protocol) for each in request.listeners] == [
        ("PLAINTEXT", 9092, 0),
        ("TLS", 9094, 1),
    ]
    assert {each.name for each in request.features} == {
        "metadata.version",
        "kraft.version",
        "transaction.version",
        "group.version",
        "eligible.leader.replicas.version",
        "share.version",
        "streams.version",
    }
    assert (request.previous_broker_epoch, request.rack, request.log_dirs) == (7, "r", [b"\x02" * 16])
    controller.answers[0].resolve(13)
    assert life.state is BrokerState.RECOVERY
    life.unfence()
    controller.answers[1].resolve(None)
    assert life.state is BrokerState.RUNNING
    done = life.shut_down()
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert not done.done
    controller.answers[2].resolve(None)
    assert done.done
    assert controller.calls[1:] == [("unfence", (1, 13)), ("shut down", (1, 13))]
    assert life.broker_epoch == 13


def test_a_broker_that_never_registered_has_nothing_to_shut_down() -> None:
    controller = Controller()
    assert lifecycle(controller).shut_down().done
    assert controller.calls == []


def test_steps_out_of_order_are_a_bug() -> None:
    with pytest.raises(RuntimeError):
        lifecycle(Controller()).unfence()


@pytest.mark.parametrize(
    ("marks", "epoch"),
    [([15, 15], 15), ([15], 15), ([15, None], -1), ([15, 16], -1), ([None], -1), ([-1], -1), ([], -1)],
)
def test_all_directories_must_agree_on_a_clean_stop(marks: list[int | None], epoch: int) -> None:
    assert previous_broker_epoch(marks) == epoch


def test_producer_ids_never_repeat_and_never_wait_when_blocks_come_in_time() -> None:
    asked: list[Deferred[tuple[int, int]]] = []

    def allocate() -> Deferred[tuple[int, int]]:
        asked.append(Deferred())
        return asked[-1]

    ids = BlockProducerIds(allocate)
    assert ids.next_producer_id() is None
    assert ids.next_producer_id() is None
    assert len(asked) == 1
    asked[0].resolve((0, 10))
    assert [ids.next_producer_id() for _ in range(8)] == list(range(8))
    assert len(asked) == 1
    assert ids.next_producer_id() == 8
    assert len(asked) == 2
    asked[1].resolve((500, 10))
    assert [ids.next_producer_id() for _ in range(2)] == [9, 500]
    assert len(asked) == 2


def test_an_immediate_block_is_used_at_once() -> None:
    blocks = iter([(0, 1), (1, 1), (2, 1), (3, 1)])
    ids = BlockProducerIds(lambda: Deferred.of(next(blocks)))
    assert [ids.next_producer_id() for _ in range(3)] == [0, 1, 2]


def config() -> ServerConfig:
    return ServerConfig.from_properties({**defaults_without_file(), "num.partitions": "4"})


def test_internal_topics_get_their_own_settings() -> None:
    topic = creatable_topic(config(), "__consumer_offsets")
    assert (topic.num_partitions, topic.replication_factor) == (50, 1)
    assert {each.name: each.value for each in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    transactions = {
        each.name: each.value for each in creatable_topic(config(), "__transaction_state").configs
    }
    assert (transactions["min.insync.replicas"], transactions["unclean.leader.election.enable"]) == (
        "1",
        "false",
    )
    shares = {each.name: each.value for each in creatable_topic(config(), "__share_group_state").configs}
    assert (shares["cleanup.policy"], shares["retention.ms"]) == ("delete", "-1")
    assert creatable_topic(config(), "mine").num_partitions == 4


def test_a_topic_is_created_once_at_a_time_and_again_after_a_failure_t15() -> None:
    sent: list[Any] = []
    answers: list[Deferred[Any]] = []
    failures: list[tuple[str, int, str | None]] = []

    def create(request: Any) -> Deferred[Any]:
        sent.append([topic.name for topic in request.topics])
        answers.append(Deferred())
        return answers[-1]

    topics = OnDemandTopics(config(), create, lambda *failure: failures.append(failure))
    topics.request(["a", "b"])
    topics.request(["a"])
    topics.request(["b", "c"])
    assert sent == [["a", "b"], ["c"]]
    refused = CreatableTopicResult(name="a", error_code=38, error_message="no brokers")
    answers[0].resolve(CreateTopicsResponse(topics=[refused, CreatableTopicResult(name="b")]))
    assert failures == [("a", 38, "no brokers")]
    topics.request(["a"])
    assert sent[-1] == ["a"]
