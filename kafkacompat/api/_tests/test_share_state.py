"""The APIs between brokers for the state of share-partitions, and how their coordinator is found."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api, served_versions
from kafkacompat.api._tests.test_access import authorizer
from kafkacompat.api._tests.test_rights import CLUSTER, mine
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.long_requests import RequestTasks
from kafkacompat.api.share_keys import share_partition_key
from kafkacompat.deferred import Deferred
from kafkacompat.ids import SHARE_STATE_TOPIC, partition_for_key
from kafkacompat.partition._tests.kit import NODE_ID, partition_image, topic_image
from kafkacompat.security.acl import AclOperation
from kafkacompat.share.service import SharePartitionKey
from kafkacompat.tasks import Tasks
from kafkacompat.wire.apis import ApiKey, request_class, response_class
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.errors import error_text
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest

TOPIC_ID = bytes(15) + b"\x07"
KEY = "a:b:AAAAAAAAAAAAAAAAAAAABw:3"
METHODS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "initialize_state",
    ApiKey.READ_SHARE_GROUP_STATE: "read_state",
    ApiKey.WRITE_SHARE_GROUP_STATE: "write_state",
    ApiKey.DELETE_SHARE_GROUP_STATE: "delete_state",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "read_state_summary",
}
CASES = [(key, version) for key in METHODS for version in served_versions(key)]


class Coordinator:
    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answer: Deferred[Any] = Deferred()

    def __getattr__(self, name: str) -> Any:
        def ask(request: Any) -> Deferred[Any]:
            self.asked.append((name, request))
            return self.answer

        return ask


def asking(key: ApiKey) -> Any:
    """A request for two partitions of one topic and one of another."""
    kind: Any = request_class(key)
    module = __import__(kind.__module__, fromlist=["PartitionData"])
    topic = getattr(
        module, next(name for name in vars(module) if name.endswith(("StateData", "SummaryData")))
    )
    return kind(
        group_id="g",
        topics=[
            topic(topic_id=TOPIC_ID, partitions=[module.PartitionData(partition=each) for each in (0, 5)]),
            topic(topic_id=bytes(16), partitions=[module.PartitionData(partition=1)]),
        ],
    )


def told(answer: Any) -> list[tuple[bytes, int, int, str | None]]:
    return [
        (topic.topic_id, each.partition, each.error_code, each.error_message)
        for topic in answer.results
        for each in topic.partitions
    ]


@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_coordinator_answers(key: ApiKey, version: int) -> None:
    api = Api()
    coordinator: Any = Coordinator()
    api.node.share_coordinator = coordinator
    pending = api.send(asking(key), version)
    ((method, request),) = coordinator.asked
    assert (method, request.group_id, len(request.topics)) == (METHODS[key], "g", 2)
    make: Any = response_class(key)
    coordinator.answer.resolve(make(results=[]))
    api.settle()
    assert api.decoded(pending.reply.result(), key, version).results == []


@pytest.mark.parametrize(("key", "version"), CASES)
def test_only_brokers_may_ask(key: ApiKey, version: int) -> None:
    api = Api()
    coordinator: Any = Coordinator()
    api.node.share_coordinator = coordinator
    api.node.authorizer = authorizer()
    code = E.CLUSTER_AUTHORIZATION_FAILED
    assert told(api.call(asking(key), version)) == [
        (topic_id, partition, code, error_text(code))
        for topic_id, partition in ((TOPIC_ID, 0), (TOPIC_ID, 5), (bytes(16), 1))
    ]
    assert coordinator.asked == []
    api.node.authorizer = authorizer(mine(CLUSTER, AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    api.send(asking(key), version)
    assert len(coordinator.asked) == 1


@pytest.mark.parametrize("key", METHODS)
def test_a_coordinator_that_fails_is_an_error_of_every_share_partition(key: ApiKey) -> None:
    api = Api()
    coordinator: Any = Coordinator()
    coordinator.answer.fail(RuntimeError("a bug"))
    api.node.share_coordinator = coordinator
    codes = {code for _, _, code, _ in told(api.call(asking(key), 0))}
    assert codes == {E.UNKNOWN_SERVER_ERROR}


# --- the coordinator of a share-partition


def found(api: Api, key: str, version: int = 6) -> tuple[int, int]:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    (coordinator,) = api.call(request, version).coordinators
    return coordinator.error_code, coordinator.node_id


def with_state_topic(leader: int = NODE_ID) -> Api:
    """Only the partition of KEY is led."""
    index = partition_for_key(KEY, 50)
    images = {each: partition_image(leader=leader if each == index else -1) for each in range(50)}
    return Api(topic_image(SHARE_STATE_TOPIC, images))


def test_a_share_partition_is_placed_by_its_key() -> None:
    assert found(with_state_topic(), KEY) == (E.NONE, NODE_ID)
    assert found(with_state_topic(), KEY + ":::") == (E.NONE, NODE_ID)  # as Java splits
    assert found(with_state_topic(-1), KEY) == (E.COORDINATOR_NOT_AVAILABLE, -1)


def test_the_answer_waits_for_the_topic_that_the_first_look_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    api, there = Api(), Deferred[None]()
    api.dispatcher = ApiDispatcher(api.node, RequestTasks(Tasks(api.world.time)))

    async def created(name: str) -> None:
        assert (name, api.creator.asked) == (
            SHARE_STATE_TOPIC,
            [[SHARE_STATE_TOPIC]] * len(api.creator.asked),
        )
        await there

    monkeypatch.setattr(api.creator, "created", created)
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[KEY])
    waiting = [api.send(request, 6) for _ in range(3)]
    assert not any(each.reply.done for each in waiting)
    api.node.image = with_state_topic().node.image
    there.resolve(None)
    # There may be as many as clients, so each has a turn of its own.
    for number, pending in enumerate(waiting):
        assert [each.reply.done for each in waiting] == [True] * number + [False] * (3 - number)
        api.world.time.fire_next()
        (found_one,) = api.decoded(pending.reply.result(), FindCoordinatorRequest.API_KEY, 6).coordinators
        assert (found_one.error_code, found_one.node_id) == (E.NONE, NODE_ID)


def test_the_state_topic_is_created_at_the_first_look() -> None:
    api = Api()
    assert found(api, KEY) == (E.COORDINATOR_NOT_AVAILABLE, -1)
    assert api.creator.asked == [[SHARE_STATE_TOPIC]]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "g",
        "g:AAAAAAAAAAAAAAAAAAAABw",
        "g:AAAAAAAAAAAAAAAAAAAABw:",
        ":AAAAAAAAAAAAAAAAAAAABw:0",
        " \t:AAAAAAAAAAAAAAAAAAAABw:0",
        "g:t:0",
        "g:AAAAAAAAAAAAAAAAAAAAB!w:0",
        "g:AAAAAAAAAAAAAAAAAAAABw=:0",
        "g:AAAAAAAAAAAAAAAAAAAABw:x",
        "g:AAAAAAAAAAAAAAAAAAAABw: 1",
        "g:AAAAAAAAAAAAAAAAAAAABw:2147483648",
    ],
)
def test_keys_that_name_no_share_partition(key: str) -> None:
    api = with_state_topic()
    assert found(api, key) == (E.INVALID_REQUEST, -1)
    with pytest.raises(ValueError):
        share_partition_key(key)


def test_a_key_is_read_from_the_right() -> None:
    assert share_partition_key(KEY) == SharePartitionKey("a:b", TOPIC_ID, 3)
    assert share_partition_key("g:AAAAAAAAAAAAAAAAAAAABw:-1").partition == -1
    assert share_partition_key(KEY).coordinator_key == KEY


@pytest.mark.parametrize("version", [4, 5])
def test_older_versions_know_no_share_partitions(version: int) -> None:
    assert found(with_state_topic(), KEY, version) == (E.INVALID_REQUEST, -1)


def test_only_brokers_may_look() -> None:
    api = with_state_topic()
    api.node.authorizer = authorizer()
    assert found(api, KEY) == (E.CLUSTER_AUTHORIZATION_FAILED, -1)
    api.node.authorizer = authorizer(mine(CLUSTER, AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    assert found(api, KEY) == (E.NONE, NODE_ID)
