"""Clean shutdowns, producer ids without delay between blocks, and one creation per topic at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import HandTime
from kafkacompat.api.request_context import ControllerTimedOut
from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.deferred import Deferred
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.node import auto_topic_creation_manager
from kafkacompat.node.auto_topic_creation_manager import (
    CREATED_WITHIN_MS,
    FAILED_US,
    MAX_IN_FLIGHT,
    AutoTopicCreationManager,
    creatable_topic,
)
from kafkacompat.node.forwarding_manager import EnvelopeRefused
from kafkacompat.node.rpc_producer_id_manager import RESUMED_COST, AllocationRefused, RPCProducerIdManager
from kafkacompat.tasks import TURN_COST, Tasks
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import CreatableTopic
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse


def test_producer_ids_never_repeat_and_never_wait_when_blocks_come_in_time() -> None:
    asked: list[Deferred[tuple[int, int]]] = []

    def allocate() -> Deferred[tuple[int, int]]:
        asked.append(Deferred())
        return asked[-1]

    ids = RPCProducerIdManager(allocate, Tasks(HandTime()))
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
    ids = RPCProducerIdManager(lambda: Deferred.of(next(blocks)), Tasks(HandTime()))
    assert [ids.next_producer_id() for _ in range(3)] == [0, 1, 2]


def test_many_requests_that_waited_for_a_block_are_resumed_a_few_in_each_turn_and_in_order() -> None:
    block: Deferred[tuple[int, int]] = Deferred()
    time = HandTime()
    ids = RPCProducerIdManager(lambda: block, Tasks(time))
    resumed: list[int] = []
    for number in range(500):
        ids.when_available().on_done(lambda _, number=number: resumed.append(number))  # type: ignore[misc]
    block.resolve((0, 1_000))
    most = TURN_COST // RESUMED_COST + 1
    assert 0 < len(resumed) <= most
    while len(resumed) < 500:
        before = len(resumed)
        assert time.step()
        assert len(resumed) - before <= most
    assert resumed == list(range(500))
    assert ids.when_available().done


def test_a_request_without_a_producer_id_waits_for_the_block_but_not_for_ever() -> None:
    asked: list[Deferred[tuple[int, int]]] = []
    time = HandTime()

    def allocate() -> Deferred[tuple[int, int]]:
        asked.append(Deferred())
        return asked[-1]

    ids = RPCProducerIdManager(allocate, Tasks(time))
    first, second = ids.when_available(), ids.when_available()
    assert (len(asked), first.done, second.done) == (1, False, False)
    asked[0].resolve((7, 2))
    assert first.done
    assert second.done
    assert [ids.next_producer_id() for _ in range(2)] == [7, 8]
    assert len(asked) == 2
    # The next block does not come. No request waits longer than a client would.
    late = ids.when_available()
    time.advance(999)
    assert not late.done
    time.advance(1)
    assert late.done
    assert ids.next_producer_id() is None
    # A refusal ends the wait at once, and the next request asks again.
    refused = ids.when_available()
    assert len(asked) == 2
    asked[1].fail(AllocationRefused("no"))
    assert refused.done
    assert ids.next_producer_id() is None
    assert len(asked) == 3
    asked[2].resolve((500, 10))
    assert ids.when_available().done
    assert ids.next_producer_id() == 500
    time.advance(5_000)


def test_a_bug_in_an_allocation_is_reported_and_the_next_request_asks_again(faults: Faults) -> None:
    asked: list[Deferred[tuple[int, int]]] = []

    def allocate() -> Deferred[tuple[int, int]]:
        asked.append(Deferred())
        return asked[-1]

    ids = RPCProducerIdManager(allocate, Tasks(HandTime()))
    bug = KeyError("a bug")
    for problem, reported in ((ConnectionLost("gone"), []), (bug, [bug])):
        assert ids.next_producer_id() is None
        asked.pop().fail(problem)
        assert faults.take() == reported
    assert ids.next_producer_id() is None
    asked.pop().resolve((7, 2))
    assert ids.next_producer_id() == 7


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


def test_other_topics_have_the_controllers_defaults_where_the_broker_sets_none() -> None:
    """A controller on a node of its own may have other defaults."""
    unset = ServerConfig.from_properties(defaults_without_file())
    assert not {"num.partitions", "default.replication.factor"} & unset.originals.keys()
    topic = creatable_topic(unset, "mine")
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    own = ServerConfig.from_properties({**unset.originals, "default.replication.factor": "3"})
    topic = creatable_topic(own, "mine")
    assert (topic.num_partitions, topic.replication_factor) == (-1, 3)


def test_a_topic_is_created_once_at_a_time_and_again_after_a_failure() -> None:
    sent: list[Any] = []
    answers: list[Deferred[Any]] = []
    failures: list[tuple[str, int, str | None]] = []

    def create(request: Any, asker: Any) -> Deferred[Any]:
        sent.append([topic.name for topic in request.topics])
        answers.append(Deferred())
        return answers[-1]

    topics = AutoTopicCreationManager(
        config(), create, lambda *failure: failures.append(failure), Tasks(HandTime()), HandTime()
    )
    topics.request(["a", "b"])
    topics.request(["a"])
    topics.request(["b", "c"])
    assert sent == [["a", "b"], ["c"]]
    refused = CreatableTopicResult(name="a", error_code=38, error_message="no brokers")
    answers[0].resolve(CreateTopicsResponse(topics=[refused, CreatableTopicResult(name="b")]))
    assert failures == [("a", 38, "no brokers")]
    topics.request(["a"])
    assert sent[-1] == ["a"]


@pytest.mark.parametrize(
    ("problem", "is_a_bug"),
    [
        (ControllerTimedOut("nobody"), False),
        (EnvelopeRefused("another configuration"), False),
        (OSError(28, "no room"), False),
        (KeyError("a bug"), True),
    ],
)
def test_a_topic_whose_creation_has_no_answer_is_asked_for_again(
    problem: Exception, is_a_bug: bool, faults: Faults
) -> None:
    answers: list[Deferred[Any]] = []
    failures: list[tuple[str, int, str | None]] = []

    def create(request: Any, asker: Any) -> Deferred[Any]:
        answers.append(Deferred())
        return answers[-1]

    topics = AutoTopicCreationManager(
        config(), create, lambda *failure: failures.append(failure), Tasks(HandTime()), HandTime()
    )
    topics.request(["a"])
    answers[0].fail(problem)
    assert faults.take() == [problem] * is_a_bug
    assert failures == [("a", ErrorCode.REQUEST_TIMED_OUT, str(problem))]
    topics.request(["a"])
    assert len(answers) == 2


def test_a_topic_for_whose_creation_there_was_no_memory_is_created_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def create(request: Any, asker: Any) -> Deferred[Any]:
        asked.append(request)
        return Deferred()

    topics = AutoTopicCreationManager(config(), create, lambda *_: None, Tasks(HandTime()), HandTime())

    def lacks_memory(*_: object) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(auto_topic_creation_manager, "creatable_topic", lacks_memory)
        with pytest.raises(MemoryError):
            topics.request(["a"])
    topics.request(["a"])
    assert len(asked) == 1


@pytest.mark.parametrize("is_answered", [True, False])
def test_very_many_topics_that_are_not_made_are_told_in_steps(is_answered: bool) -> None:
    answer: Deferred[Any] = Deferred()
    time = HandTime()
    told: list[str] = []
    topics = AutoTopicCreationManager(
        config(), lambda *_: answer, lambda name, *_: told.append(name), Tasks(time), time
    )
    names = [f"t{index}" for index in range(MAX_IN_FLIGHT)]
    topics.request(names)
    if is_answered:
        refused = [CreatableTopicResult(name=name, error_code=38) for name in names]
        answer.resolve(CreateTopicsResponse(topics=refused))
    else:
        answer.fail(ControllerTimedOut("nobody"))
    counts = [len(told)]
    while time.step():
        counts.append(len(told))
    assert told == names
    assert max(later - earlier for earlier, later in pairwise([0, *counts])) <= TURN_COST // FAILED_US
    assert not topics._in_flight


@pytest.mark.parametrize("end", ["known", "made by another", "refused", "unanswered", "late"])
def test_a_topic_that_is_being_created_is_waited_for(end: str) -> None:
    answer: Deferred[Any] = Deferred()
    time = HandTime()
    tasks = Tasks(time)
    topics = AutoTopicCreationManager(config(), lambda *_: answer, lambda *_: None, tasks, time)
    assert tasks.start("not requested", topics.created("a")).done
    topics.request(["a"])
    waiting = [tasks.start("waits", topics.created("a")) for _ in range(2)]
    topics.on_image(MetadataImage())
    assert not any(each.done for each in waiting)
    match end:
        case "known" | "made by another":
            code = ErrorCode.NONE if end == "known" else ErrorCode.TOPIC_ALREADY_EXISTS
            answer.resolve(CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=code)]))
            assert not any(each.done for each in waiting)
            topics.on_image(MetadataImage(topics={"a": TopicImage("a", bytes(16), {})}))
        case "refused":
            refused = CreatableTopicResult(name="a", error_code=38)
            answer.resolve(CreateTopicsResponse(topics=[refused]))
        case "unanswered":
            answer.fail(ControllerTimedOut("nobody"))
        case "late":
            time.advance(CREATED_WITHIN_MS - 1)
            assert not any(each.done for each in waiting)
            time.advance(1)
    assert all(each.done for each in waiting)
    assert topics._awaited == {}


@pytest.mark.parametrize("reason", ["nobody", ""])
def test_the_error_of_a_streams_groups_topic_is_told_and_holds_back_another_attempt(reason: str) -> None:
    answers: list[Deferred[Any]] = []

    def create(request: Any, asker: Any) -> Deferred[Any]:
        answers.append(Deferred())
        return answers[-1]

    time = HandTime()
    topics = AutoTopicCreationManager(config(), create, lambda *failure: None, Tasks(time), time)
    asker: Any = None

    def ask() -> None:
        topics.create_streams_internal_topics([CreatableTopic(name="a")], asker, 1000)

    ask()
    ask()
    assert (len(answers), topics.streams_creation_errors(["a"])) == (1, {})
    answers[0].fail(ControllerTimedOut(reason))
    assert topics.streams_creation_errors(["a", "b"]) == {"a": reason or "The request timed out."}
    time.advance(999)
    ask()
    assert len(answers) == 1
    time.advance(1)
    assert topics.streams_creation_errors(["a"]) == {}
    ask()
    assert len(answers) == 2
